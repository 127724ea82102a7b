"""A trained captioner in use, from Python and from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ecoc
from ecoc.captioning import LONGEST, TrainedCaptioner
from ecoc.cli import main
from ecoc.data.scenes import builtin_scenes
from ecoc.training import train
from ecoc.training.launch import caption_data
from tests.training.test_captions import scenes, write_captions
from tests.training.tiny import trained

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """METEOR has its own test; here it would take longer than all the rest."""
    monkeypatch.setattr("ecoc.captioning.meteor", lambda *_: (0.125, ""))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(scenes(tmp_path_factory.mktemp("scenes") / "run", epochs=4, lr=0.02), progress=False)


@pytest.fixture(scope="module")
def with_features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    given = write_captions(folder / "data")
    return train(scenes(folder / "run", head="softmax", epochs=2, lr=0.02, **given), progress=False)


@torch.no_grad()
def test_a_beam_of_one_is_greedy(run: Path) -> None:
    captioner = TrainedCaptioner(run)
    data, _ = builtin_scenes(120)
    _, features = next(data.evaluation("test", 5))
    model, words = captioner.model, captioner.vocabulary
    for row, (best,) in zip(features, captioner.captions(features, beam=1), strict=True):
        hidden, state = model.advance(torch.tensor([words.eos]), model.begin(row.unsqueeze(0)))
        tokens, total = [], 0.0
        while len(tokens) < LONGEST and tokens[-1:] != [words.eos]:
            log_probs = model.head.log_prob(hidden)[0]
            log_probs[words.unk] = -torch.inf
            tokens.append(int(log_probs.argmax()))
            total += float(log_probs.max())
            hidden, state = model.advance(torch.tensor(tokens[-1:]), state)
        assert best.words == words.words_of([token for token in tokens if token != words.eos])
        assert best.score == pytest.approx(total, abs=1e-4)


def test_unknown_words_are_never_said(with_features: Path) -> None:
    captioner = TrainedCaptioner(with_features)
    unknown, features = captioner.vocabulary.unk, torch.randn(3, *captioner.parts.features)
    with torch.no_grad():
        captioner.model.head.bias[unknown] = 90.0
    hidden, _ = captioner.model.advance(torch.full((3,), captioner.vocabulary.eos), captioner.model.begin(features))
    assert (captioner.model.head.predict(hidden) == unknown).all()
    found = captioner.captions(features, beam=3)
    assert all("<unk>" not in sentence.words for sentences in found for sentence in sentences)


def test_eval_tells_of_its_own_split_alone_and_looks_at_the_file_to_write_first(
    with_features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captioner = TrainedCaptioner(with_features)
    options = captioner.options
    with np.load(options.features) as stored:
        arrays = dict(stored)
    ids = {
        split: image.id for split, (image, *_) in caption_data(options, vocabulary=captioner.vocabulary).images.items()
    }
    for lost, code in (("train", 0), ("test", 1)):
        kept = arrays["imgid"] != ids[lost]
        fewer = tmp_path / f"{lost}.npz"
        np.savez(fewer, feats=arrays["feats"][kept], imgid=arrays["imgid"][kept])
        assert main(["caption", "eval", str(with_features), "--features", str(fewer), "--json"]) == code
        printed = capsys.readouterr()
        assert json.loads(printed.out)["left_out"] == code
        assert (f"left out {ids[lost]}: without features" in printed.err) == bool(code)
    assert main(["caption", "eval", str(with_features), "--out", str(tmp_path)]) == 2
    assert "is a folder: give a file" in capsys.readouterr().err


def test_without_java_the_rest_is_there(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ecoc.captioning.meteor", lambda *_: (None, "METEOR unavailable (needs java)"))
    assert main(["caption", "eval", str(run), "--beam", "1"]) == 0
    shown = capsys.readouterr().out
    assert "cider:" in shown and "METEOR unavailable (needs java)" in shown and "meteor:" not in shown


def test_eval_gives_every_metric_by_name(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caption", "eval", str(run), "--json", "--out", str(tmp_path / "found/captions.json")]) == 0
    scores = json.loads(capsys.readouterr().out)
    metrics = {"bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider", "meteor", "perplexity"}
    assert set(scores) >= metrics | {"images", "beam", "decoder_parameters", "parameters", "bytes", "cpu_seconds"}
    assert scores["images"] == 12 and scores["beam"] == 5 and 0.2 < scores["bleu1"] <= 1
    assert scores["meteor"] == 0.125
    found = json.loads((tmp_path / "found/captions.json").read_text())
    captioner, (data, _) = TrainedCaptioner(run), builtin_scenes(120)
    images, features = next(data.evaluation("test", 12))
    best = [sentences[0].text for sentences in captioner.captions(features)]
    assert found == [{"image_id": image.id, "caption": text} for image, text in zip(images, best, strict=True)]
    assert main(["caption", "eval", str(run), "--split", "val", "--beam", "2"]) == 0
    shown = capsys.readouterr().out
    assert "perplexity (normalised):" in shown and "split: val" in shown and "cider:" in shown


def test_the_perplexity_of_eval_is_that_of_validation(with_features: Path) -> None:
    scores, skipped = TrainedCaptioner(with_features).evaluate("val", beam=1)
    records = [json.loads(line) for line in (with_features / "log.jsonl").read_text().splitlines()]
    valid = [r["valid_perplexity"]["normalised"] for r in records if r["event"] == "epoch"]
    assert scores["perplexity"]["normalised"] == pytest.approx(min(valid), rel=1e-4) and not skipped


def test_describe_reads_pictures_and_reports_the_others(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, pictures = builtin_scenes(120)
    good = tmp_path / "scene.png"
    Image.fromarray(pictures[100]).save(good)
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    given = [str(good), str(tmp_path / "cut.jpg"), str(tmp_path / "nowhere.png")]
    page = tmp_path / "page.html"
    assert main(["caption", "describe", str(run), *given, "--sentences", "2", "--html", str(page)]) == 1
    printed = capsys.readouterr()
    captioner = TrainedCaptioner(run)
    wanted = captioner.captions(torch.from_numpy(pictures[100:101]).float() / 255)[0][:2]
    assert [line.split(maxsplit=1)[1] for line in printed.out.splitlines()[1:]] == [one.text for one in wanted]
    assert f"left out {tmp_path / 'cut.jpg'}" in printed.err and f"left out {tmp_path / 'nowhere.png'}" in printed.err
    assert wanted[0].text in page.read_text() and "cut.jpg" in page.read_text()
    assert main(["caption", "describe", str(run), str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentences"][0]["sentence"] == wanted[0].text


def test_a_folder_for_the_page_is_refused_before_the_work(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["caption", "describe", str(run), "--html", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "is a folder; give a file, such as" in printed.err and not printed.out


def test_a_page_says_how_its_scores_were_divided(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["caption", "describe", str(run), "--length-power", "0.7", "--html", str(page)]) == 0
    assert "log probability, divided by its length to the power 0.7." in page.read_text()


def test_pictures_may_stand_before_and_after_flags(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(tmp_path / f"{number}.png") for number in range(3)]
    for name in names:
        Image.fromarray(builtin_scenes(120)[1][0]).save(name)
    lines = [[str(run), "--json", *names], [str(run), names[0], "--json", *names[1:]], ["--json", str(run), *names]]
    for line in lines:
        assert main(["caption", "describe", *line]) == 0
        assert [json.loads(one)["image"] for one in capsys.readouterr().out.splitlines()] == names
    with pytest.raises(SystemExit):
        main(["caption", "describe", str(run), *names, "--jason"])
    assert "unrecognized arguments: --jason (see ecoc caption describe --help)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["caption", "eval", str(run), "more"])
    assert "unrecognized arguments: more" in capsys.readouterr().err


def test_without_pictures_it_describes_scenes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caption", "describe", str(run), "--sentences", "1"]) == 0
    assert capsys.readouterr().out.count("test scene") == 12


def test_photographs_need_the_projection_of_the_features(
    with_features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "black.png")
    assert main(["caption", "describe", str(with_features), str(tmp_path / "black.png")]) == 2
    assert "was trained on features of shape (32,)" in capsys.readouterr().err
    assert main(["caption", "describe", str(with_features)]) == 2
    assert "give some to describe" in capsys.readouterr().err


def test_images_left_out_are_told_and_the_rest_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = write_captions(tmp_path / "data")
    with np.load(tmp_path / "data/vector.npz") as archive:
        feats, ids = archive["feats"], archive["imgid"]
    np.savez(tmp_path / "data/vector.npz", feats=feats[:-3], imgid=ids[:-3])
    options = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    small = ["--hidden", "16", "--layers", "1", "--epochs", "1", "--head", "softmax", "--threads", "1"]
    run = str(tmp_path / "run")
    assert main(["caption", "train", *options, *small, "--out", run]) == 0
    assert "3 without features (such as 117)" in capsys.readouterr().err
    assert main(["caption", "eval", run, "--beam", "1"]) == 1
    printed = capsys.readouterr()
    rest = [image for image in builtin_scenes(120)[0].split("test") if int(image.id) < 117]
    assert f"images: {len(rest)}\n" in printed.out and "left out 119: without features" in printed.err


def test_a_run_of_the_other_kind_is_told_apart(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = trained(tmp_path)
    assert main(["eval", str(run)]) == 2 and "is a captioner" in capsys.readouterr().err
    assert main(["caption", "eval", str(text)]) == 2 and "is a language model" in capsys.readouterr().err
    assert isinstance(ecoc.load(run), ecoc.TrainedCaptioner) and isinstance(ecoc.load(text), ecoc.TrainedModel)
    assert main(["info", str(run)]) == 0
    assert "encoder:" in capsys.readouterr().out


def test_other_features_than_those_of_training_are_refused(
    with_features: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = with_features.parent / "data/grid.npz"
    assert main(["caption", "eval", str(with_features), "--features", str(grid)]) == 2
    assert "the features have shape (4, 8)" in capsys.readouterr().err
    assert main(["caption", "eval", str(run), "--features", str(grid)]) == 2
    assert "built-in scenes" in capsys.readouterr().err


def test_a_captioner_is_saved_without_its_training(run: Path, tmp_path: Path) -> None:
    TrainedCaptioner(run).save_pretrained(tmp_path / "small")
    assert not (tmp_path / "small/last.ckpt").exists()
    features = torch.rand(2, 64, 64, 3)
    again = TrainedCaptioner.from_pretrained(tmp_path / "small")
    assert again.captions(features) == TrainedCaptioner(run).captions(features)
