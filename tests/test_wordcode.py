"""``ecoc codebook``: build, show, nearest."""

import json
from pathlib import Path

import pytest
import torch

import ecoc
from ecoc.cli import main
from ecoc.codes import KINDS
from tests.training.tiny import trained, write_corpus


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codebook")
    corpus = write_corpus(folder / "corpus")
    assert main(["codebook", "build", "--corpus", str(corpus), "--bits", "48", "--out", str(folder / "code")]) == 0
    return folder / "code"


def test_nearest_words_are_those_of_all_pairs(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codebook", "nearest", str(code), "w7", "--k", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    words = ecoc.WordCode(code)
    codewords = words.codebook.encode(torch.arange(len(words.vocabulary)))
    own = words.vocabulary.encode_words(["w7"])[0]
    distances = {w: int((codewords[i] ^ codewords[own]).sum()) for i, w in enumerate(words.vocabulary.words)}
    del distances["w7"]
    assert [pair["distance"] for pair in found] == sorted(distances.values())[:5]
    assert all(distances[pair["word"]] == pair["distance"] for pair in found)
    assert main(["codebook", "nearest", str(code), "w7", "--k", "2"]) == 0
    assert capsys.readouterr().out.split()[1] == found[0]["word"]


def test_words_at_the_same_distance_come_in_order_of_frequency() -> None:
    counts = torch.tensor([1.0, 9.0, 5.0, 7.0])
    codebook = ecoc.codes.build("onehot", 4, 4, counts)
    distances, ids = codebook.neighbours(torch.tensor([0, 1]), 3)
    assert ids.tolist() == [[1, 3, 2], [3, 2, 0]] and (distances == 2).all()
    with pytest.raises(ValueError, match="k must be between 1 and 3"):
        codebook.neighbours(torch.tensor([0]), 4)


def test_show_says_what_the_code_is_like(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codebook", "show", str(code), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    words = ecoc.WordCode(code)
    codewords = words.codebook.encode(torch.arange(len(words.vocabulary)))
    all_pairs = (codewords.unsqueeze(0) ^ codewords.unsqueeze(1)).sum(-1)[~torch.eye(len(codewords), dtype=torch.bool)]
    assert facts["mean_distance"] == pytest.approx(float(all_pairs.float().mean()), abs=0.01)
    assert facts["minimum_distance"] == int(all_pairs.min()) and facts["corrects"] == (int(all_pairs.min()) - 1) // 2
    assert facts["words"] == 32 and facts["bits"] == 48 and facts["kind"] == "semantic"
    assert main(["codebook", "show", str(code)]) == 0
    assert "minimum distance: " in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_built_and_shown(kind: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    bits = {"bch": 15, "hadamard": 16, "convolutional": 22, "onehot": 32}.get(kind, 24)
    line = ["codebook", "build", "--corpus", str(corpus), "--codebook", kind, "--bits", str(bits)]
    assert main([*line, "--out", str(tmp_path / "code")]) == 0
    assert main(["codebook", "show", str(tmp_path / "code")]) == 0


def test_a_run_trains_with_a_code_that_was_built_before(code: Path, tmp_path: Path) -> None:
    run = trained(tmp_path, codebook=str(code), bits=None, epochs=1)
    assert ecoc.WordCode(run).codebook.fingerprint == ecoc.WordCode(code).codebook.fingerprint


BAD_LINES = {
    "no such word": (["codebook", "nearest", "{code}", "zebra"], "'zebra' is not in the vocabulary"),
    "no such folder": (["codebook", "show", "nowhere"], "nowhere has no vocabulary.json: give the folder of a run"),
    "it exists": (["codebook", "build", "--out", "{code}"], "exists: --overwrite replaces it"),
    "no such kind": (["train", "--corpus", "{corpus}", "--codebook", "magic", "--out", "x"], "no folder and no kind"),
    "other bits": (
        ["train", "--corpus", "{corpus}", "--codebook", "{code}", "--bits", "64", "--out", "x"],
        "has 48 bits, not 64",
    ),
    "another vocabulary": (
        ["train", "--corpus", "{corpus}", "--max-size", "20", "--codebook", "{code}", "--out", "x"],
        "is for another vocabulary (32 words, the data has 20)",
    ),
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_mistake_is_one_line_and_exit_code_2(
    bad: str, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line, message = BAD_LINES[bad]
    assert main([word.format(code=code, corpus=code.parent / "corpus") for word in line]) == 2
    shown = [text for text in capsys.readouterr().err.splitlines() if text.startswith("ecoc: ")]
    assert len(shown) == 1 and message in shown[0]


def test_a_softmax_run_has_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, head="softmax", epochs=1)
    assert main(["codebook", "show", str(run)]) == 2
    assert "its head uses no code" in capsys.readouterr().err
