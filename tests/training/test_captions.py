"""Training a captioner: it learns from drawn scenes and from features, and goes on after a kill."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecoc.data.scenes import builtin_scenes
from ecoc.options import CaptionTrainOptions
from ecoc.training import train
from ecoc.training.journal import Journal
from ecoc.training.launch import prepared
from ecoc.training.run import build_captioner
from tests.training.test_training import ROOT, Killed, assert_same_run, log_of

SMALL: dict[str, Any] = {"hidden": 24, "layers": 1, "epochs": 2, "batch": 60, "save_every": 3, "threads": 1}


def write_captions(folder: Path, **change: Any) -> dict[str, Any]:
    """Scenes as Karpathy's JSON with features: how much of each colour is in each quarter of the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    data, pictures = builtin_scenes(120)
    quarters = pictures.reshape(120, 2, 32, 2, 32, 3).mean((2, 4)).reshape(120, 4, 3) / 255
    features = np.pad(quarters, ((0, 0), (0, 0), (0, 5))).astype(np.float32)
    entries = [
        {"imgid": image.id, "split": split, "sentences": [{"tokens": caption} for caption in image.captions]}
        for split, images in data.images.items()
        for image in images
    ]
    with gzip.open(folder / "captions.json.gz", "wt") as file:
        json.dump({"images": entries}, file)
    np.savez(folder / "grid.npz", feats=features, imgid=np.arange(120))
    np.savez(folder / "vector.npz", feats=features.reshape(120, -1), imgid=np.arange(120))
    given = {"captions": str(folder / "captions.json.gz"), "features": str(folder / "vector.npz"), "min_count": 2}
    return given | change


def scenes(out: Path, **more: Any) -> CaptionTrainOptions:
    if more.get("head", "ecoc") == "ecoc":
        more = {"bits": 24} | more
    return CaptionTrainOptions(out=str(out), **({"scenes": 120} if "captions" not in more else {}), **SMALL | more)


def test_words_start_as_large_as_images(tmp_path: Path) -> None:
    options = scenes(tmp_path / "run", head="softmax")
    table = build_captioner(options, prepared(options, tmp_path)[1]).embedding.get_parameter("weight")
    assert float(table.detach().std()) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("head", ["softmax", "ecoc"])
def test_it_learns_from_scenes(head: str, tmp_path: Path) -> None:
    run = train(scenes(tmp_path / "run", head=head, epochs=6, lr=0.02), progress=False)
    epochs = [record["valid_perplexity"]["normalised"] for record in log_of(run) if record["event"] == "epoch"]
    assert epochs[-1] < 0.6 * epochs[0]


@pytest.mark.parametrize(
    "more",
    [
        {"image": "first", "head": "softmax"},
        {"image": "state", "feeding": "scheduled", "schedule": "constant"},
        {"image": "each", "feeding": "differentiable", "schedule": "constant"},
        {"image": "attention", "feeding": "curriculum", "schedule": "constant", "sequential": True},
        {"image": "first", "objective": "bits"},
    ],
    ids=lambda more: "-".join(str(value) for value in more.values()),
)
def test_it_learns_from_features(more: dict[str, Any], tmp_path: Path) -> None:
    given = write_captions(tmp_path / "data")
    if more["image"] == "attention":
        given["features"] = given["features"].replace("vector", "grid")
    run = train(scenes(tmp_path / "run", **given, **more, epochs=4, lr=0.02), progress=False)
    epochs = [record for record in log_of(run) if record["event"] == "epoch"]
    perplexities = [record["valid_perplexity"]["normalised"] for record in epochs]
    assert perplexities[-1] < 0.8 * perplexities[0]
    assert ("mixing" in epochs[-1]) == ("feeding" in more)
    if "feeding" in more:
        assert epochs[-1]["mixing"] == 0.5 and 0 < epochs[-1]["changed_inputs"] < 1


@pytest.mark.parametrize("killed_at", [2, 10])
def test_a_killed_captioner_goes_on_to_the_same_result(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(scenes(tmp_path / "whole", feeding="scheduled", schedule="constant"), progress=False)
    step = Journal.step

    def killing(self: Journal, number: int, *rest: object) -> None:
        if number == killed_at:
            raise Killed
        step(self, number, *rest)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "step", killing)
        train(scenes(tmp_path / "run", feeding="scheduled", schedule="constant"), progress=False)
    assert_same_run(train(CaptionTrainOptions(out=str(tmp_path / "run"), resume=True), progress=False), whole)


def test_other_captions_or_features_are_noticed(tmp_path: Path) -> None:
    given = write_captions(tmp_path / "data")
    run = train(scenes(tmp_path / "run", **given), progress=False)
    with np.load(tmp_path / "data/vector.npz") as archive:
        np.savez(tmp_path / "data/vector.npz", feats=archive["feats"] + 1, imgid=archive["imgid"])
    with pytest.raises(ValueError, match="has changed since"):
        train(CaptionTrainOptions(out=str(run), resume=True), progress=False)


def test_moved_files_are_found(tmp_path: Path) -> None:
    given = write_captions(tmp_path / "data")
    run = train(scenes(tmp_path / "run", **given, epochs=1), progress=False)
    before = log_of(run)
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = {name: given[name].replace("/data/", "/moved/") for name in ("captions", "features")}
    train(CaptionTrainOptions(out=str(run), resume=True, **moved), progress=False)
    assert log_of(run) == before


def test_a_language_model_is_not_resumed_as_a_captioner(tmp_path: Path) -> None:
    run = train(scenes(tmp_path / "run"), progress=False)
    config = json.loads((run / "config.json").read_text())
    assert config["command"] == "caption train"
    (run / "config.json").write_text(json.dumps({"command": "train", "out": str(run)}))
    with pytest.raises(ValueError, match="is a run of `ecoc train`"):
        train(CaptionTrainOptions(out=str(run), resume=True), progress=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features": None}, "--features is missing"),
        ({"captions": None}, "--captions is missing"),
        ({"scenes": 100}, "--scenes is for the built-in set"),
        ({"image": "attention"}, "needs a grid"),
        ({"image": "sideways"}, "--image sideways is unknown"),
        ({"min_count": 100_000}, "occur 100000 times"),
        ({"projection": "nowhere.npz"}, "no such file"),
    ],
)
def test_mistakes_are_said(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    given = write_captions(tmp_path / "data") | change
    with pytest.raises(ValueError, match=said):
        train(CaptionTrainOptions(out=str(tmp_path / "run"), **SMALL | given), progress=False)
    assert not (tmp_path / "run").exists()


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Captions of a batch are shared out unevenly, and still each word counts the same."""
    given = write_captions(tmp_path / "data") | {"dropout": 0.0, "recurrent_dropout": 0.0, "head": "softmax"}
    alone = train(scenes(tmp_path / "alone", **given), progress=False)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(scenes(tmp_path / "both", **given).as_dict() | {"out": str(tmp_path / "both")}))
    values = {k: v for k, v in json.loads(config.read_text()).items() if k != "command" and v is not None}
    config.write_text(json.dumps(values))  # JSON is YAML
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command = [*torchrun, "ecoc.cli", "caption", "train", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    curves = [[r["train_loss"] for r in log_of(run) if r["event"] == "epoch"] for run in (alone, tmp_path / "both")]
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)
