"""The command line: what it prints, how it fails."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ecoc
from ecoc.cli import COMMANDS, _field_help, main
from tests.training.tiny import trained, write_corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("cli"), epochs=4, lr=0.02)


def test_help_does_not_load_torch() -> None:
    code = "import sys; from ecoc.cli import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit('torch' in sys.modules)"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0 and "--codebook" in done.stdout and time.perf_counter() - started < 30


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    options = COMMANDS[command][0]
    help_ = _field_help(options)
    assert set(help_) == set(options.__dataclass_fields__) and all(help_.values())


def test_eval_prints_one_object(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    wanted = {"perplexity", "bits_per_token", "accuracy", "tokens", "decoder_parameters", "parameters", "bytes"}
    assert set(scores) >= wanted | {"cpu_seconds"}
    assert scores["decoder_parameters"] == 24 * 17 and scores["perplexity"]["normalised"] < 20
    assert main(["eval", str(run), "--split", "valid"]) == 0
    assert "perplexity (normalised):" in capsys.readouterr().out


def test_free_running_says_how_the_loss_grows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--free-running", "3", "--json"]) == 0
    free = json.loads(capsys.readouterr().out)["free_running"]
    assert len(free["loss"]) == 4 and free["growth"][0] == pytest.approx(0, abs=1e-5) and free["growth"][3] > 0
    assert main(["eval", str(run), "--free-running", "2", "--sampled"]) == 0
    assert "fed with its own outputs (sampled)" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "w1 w2", "never seen words", "w3 " * 10_000])
def test_any_prompt_works(run: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", str(run), text, "--k", "4", "--json"]) == 0
    suggestions = json.loads(capsys.readouterr().out)
    assert len(suggestions) == 4 and "<unk>" not in [s["word"] for s in suggestions]
    assert all(0 < s["probability"] < 1 for s in suggestions)
    for more in (["--temperature", "0"], ["--top-p", "0.5", "--count", "2"], ["--beam", "3"]):
        assert main(["generate", str(run), "--prompt", text, "--tokens", "5", *more]) == 0
        assert capsys.readouterr().out.strip()


def test_the_python_interface_mirrors_the_commands(run: Path) -> None:
    model = ecoc.load(run)
    assert len(model.suggest("w1", 3)) == 3
    assert model.generate("w1", tokens=4, seed=1) == model.generate("w1", tokens=4, seed=1)
    assert 1 < model.perplexity("w1 w7 w19\nw2 w14") < 100
    assert "code: Codebook(semantic, 32 tokens x 24 bits" in model.describe()


BAD_LINES = {
    "missing folder": (["eval", "nowhere"], "nowhere is no folder of a run: train one"),
    "unknown head": (["train", "--head", "maxout"], "--head maxout is unknown: choose one of softmax"),
    "contradiction": (["train", "--head", "softmax", "--bits", "64"], "--bits needs a code: use --head ecoc"),
    "another head's option": (["train", "--samples", "9", "--head", "adaptive"], "--samples is for sampled, nce"),
    "both": (["train", "--resume", "--overwrite"], "--resume and --overwrite contradict each other"),
    "missing corpus": (["train", "--corpus", "no/such/folder", "--out", "x"], "no/such/folder"),
    "no steps between saves": (["train", "--save-every", "0"], "--save-every must be at least 1"),
    "no epochs": (["train", "--epochs", "0"], "--epochs must be at least 1"),
    "missing vectors": (["train", "--corpus", "{corpus}", "--out", "x", "--vectors", "none.vec"], "none.vec: no such"),
    "useless vectors": (
        ["train", "--corpus", "{corpus}", "--out", "x", "--head", "softmax", "--vectors", "contexts"],
        "--vectors has no use here",
    ),
    "too few bits": (["train", "--corpus", "{corpus}", "--out", "x", "--bits", "3"], "bits=3 cannot tell 32 tokens"),
    "latent policy on softmax": (
        ["train", "--corpus", "{corpus}", "--out", "x", "--head", "softmax", "--feeding", "curriculum"],
        "feeding 'curriculum' needs a head with latent variables (ecoc, hierarchical), Softmax has none",
    ),
    "cold temperature": (
        [
            "train",
            "--corpus",
            "{corpus}",
            "--out",
            "x",
            "--bits",
            "24",
            "--feeding",
            "differentiable",
            "--temperature",
            "0",
        ],
        "feeding 'differentiable' on ECOC: temperature must be above 0",
    ),
    "a schedule that leaves its range": (
        ["train", "--corpus", "{corpus}", "--out", "x", "--bits", "24", "--feeding", "scheduled", "--mixing", "1.5"],
        "feeding 'scheduled' on ecoc: schedule leaves [0, 1]",
    ),
    "a policy's option for another": (["train", "--mixing", "0.5"], "--mixing is for --feeding scheduled"),
    "nothing to run freely": (["eval", "x", "--free-running", "0"], "--free-running must be at least 1"),
    "config that is none": (["train", "--config", "nothing.yaml"], "--config nothing.yaml cannot be read"),
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_mistake_is_one_line_and_exit_code_2(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    line, message = BAD_LINES[bad]
    assert main([word.format(corpus=corpus) for word in line]) == 2
    shown = [text for text in capsys.readouterr().err.splitlines() if text.startswith("ecoc: ")]
    assert len(shown) == 1 and message in shown[0]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]  # nothing is left behind


def test_options_come_from_yaml_and_flags_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    config = tmp_path / "run.yaml"
    config.write_text(f"corpus: {corpus}\nhidden: 16\nlayers: 1\nepochs: 1\nbatch: 4\nbits: 24\nsave-every: 50\n")
    assert main(["train", "--config", str(config), "--out", str(tmp_path / "run"), "--hidden", "12"]) == 0
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["hidden"] == 12 and stored["bits"] == 24 and stored["save_every"] == 50
    config.write_text("hiden: 3\n")
    assert main(["train", "--config", str(config)]) == 2
    assert "options that are unknown: hiden" in capsys.readouterr().err


def test_a_saved_model_is_the_run_without_what_only_training_needs(run: Path, tmp_path: Path) -> None:
    model = ecoc.load(run)
    model.save_pretrained(tmp_path / "shared")
    assert not (tmp_path / "shared" / "last.ckpt").exists() and not (tmp_path / "shared" / "data").exists()
    copy = ecoc.TrainedModel.from_pretrained(tmp_path / "shared")
    assert copy.suggest("w1 w7", 5) == model.suggest("w1 w7", 5) and copy.sizes() == model.sizes()
    with pytest.raises(ValueError, match="is not empty"):
        model.save_pretrained(tmp_path / "shared")
    with pytest.raises(ValueError, match="is the run itself"):
        model.save_pretrained(run)
