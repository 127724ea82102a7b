"""The command line: what it prints, how it fails."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

import ecoc
from ecoc.cli import COMMANDS, _field_help, main
from ecoc.options import TrainOptions, typed
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
    assert set(help_) == {field.name for field in fields(options)} and all(help_.values())


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
    assert main(["eval", str(run), "--free-running", "100000"]) == 2
    assert "--free-running must be at most" in capsys.readouterr().err
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


def test_unknown_words_are_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", str(run), "w1 xyzzy plugh w2 xyzzy"]) == 0
    told = "ecoc: not in the vocabulary, read as <unk>: "
    assert capsys.readouterr().err == f"{told}xyzzy, plugh\n"
    assert main(["generate", str(run), "--prompt", " ".join(f"x{i}" for i in range(13)), "--tokens", "2"]) == 0
    assert capsys.readouterr().err == f"{told}{', '.join(f'x{i}' for i in range(10))} and 3 more\n"
    assert main(["suggest", str(run), "w1 w2 <unk> <eos>"]) == 0
    assert not capsys.readouterr().err


def test_the_python_interface_mirrors_the_commands(run: Path) -> None:
    model = ecoc.load(run)
    assert len(model.suggest("w1", 3)) == 3
    assert model.generate("w1", tokens=4, seed=1) == model.generate("w1", tokens=4, seed=1)
    assert 1 < model.perplexity("w1 w7 w19\nw2 w14") < 100
    assert "code: Codebook(semantic, 32 tokens x 24 bits" in model.summary()


BAD_LINES = {
    "missing folder": (["eval", "nowhere"], "nowhere is no folder of a run: train one"),
    "unknown head": (["train", "--head", "maxout"], "--head maxout is unknown: choose one of softmax"),
    "contradiction": (["train", "--head", "softmax", "--bits", "64"], "--bits needs a code: use --head ecoc"),
    "another head's option": (["train", "--samples", "9", "--head", "adaptive"], "--samples is for sampled, nce"),
    "both": (["train", "--resume", "--overwrite"], "--resume and --overwrite contradict each other"),
    "missing corpus": (["train", "--corpus", "no/such/folder", "--out", "x"], "no/such/folder"),
    "no steps between saves": (["train", "--save-every", "0"], "--save-every must be at least 1"),
    "no epochs": (["train", "--epochs", "0"], "--epochs must be at least 1"),
    "missing vectors": (["train", "--corpus", "{corpus}", "--out", "x", "--vectors", "none.vec"], "ecoc: none.vec: no"),
    "useless vectors": (
        ["train", "--corpus", "{corpus}", "--out", "x", "--head", "softmax", "--vectors", "contexts"],
        "--vectors has no use here",
    ),
    "too few bits": (["train", "--corpus", "{corpus}", "--out", "x", "--bits", "3"], "--bits 3 cannot tell 32 words"),
    "latent policy on softmax": (
        ["train", "--corpus", "{corpus}", "--out", "x", "--head", "softmax", "--feeding", "curriculum"],
        "--feeding curriculum on --head softmax: it needs a head with latent variables (ecoc, hierarchical)",
    ),
    "cold temperature": (
        ["train", "--feeding", "differentiable", "--temperature", "0"],
        "--feeding differentiable on --head ecoc: --temperature must be above 0",
    ),
    "endless temperature": (
        ["train", "--feeding", "soft", "--head", "softmax", "--temperature", "inf"],
        "--feeding soft on --head softmax: --temperature must be above 0 (from 1e-6 to 1e6), got inf",
    ),
    "temperature that is a word": (["train", "--feeding", "soft", "--temperature", "hot"], "hot is unknown: annealed"),
    "temperature that cannot be learned": (
        ["train", "--feeding", "soft-curriculum", "--temperature", "learned"],
        "--feeding soft-curriculum on --head ecoc: no gradient reaches its --temperature",
    ),
    "a schedule that leaves its range": (
        ["train", "--feeding", "scheduled", "--mixing", "1.5"],
        "--feeding scheduled on --head ecoc: --mixing must be above 0 and at most 1, got 1.5",
    ),
    "a policy that never acts": (
        ["train", "--feeding", "scheduled", "--mixing", "0"],
        "--feeding scheduled on --head ecoc: --mixing must be above 0",
    ),
    "nothing mixed into targets": (["train", "--mixing", "0"], "--mixing is for --feeding scheduled"),
    "no step to feed": (["train", "--feeding", "scheduled", "--bptt", "1"], "use --bptt 2 or more"),
    "unknown schedule": (
        ["caption", "train", "--feeding", "soft", "--schedule", "cosine"],
        "--feeding soft on --head ecoc: --schedule cosine is unknown: choose one of sigmoid",
    ),
    "unknown thresholds": (
        ["train", "--feeding", "curriculum", "--thresholds", "wavy"],
        "--thresholds wavy is unknown",
    ),
    "relaxed codes by token": (
        ["train", "--feeding", "differentiable", "--input", "token"],
        "--feeding differentiable on --head ecoc: it feeds relaxed codes: use --head ecoc with --input code",
    ),
    "relaxed turns": (
        ["train", "--feeding", "differentiable", "--head", "hierarchical", "--tree", "binary"],
        "--feeding differentiable on --head hierarchical: it feeds relaxed codes",
    ),
    "weighted paths": (
        ["train", "--feeding", "soft-curriculum", "--head", "hierarchical"],
        "--feeding soft-curriculum on --head hierarchical: it feeds weighted codes",
    ),
    "soft spans by token": (
        ["train", "--feeding", "soft", "--objective", "span-mass", "--input", "token"],
        "--feeding soft on --head ecoc: with a span objective it feeds expected bits",
    ),
    "a policy's option for another": (["train", "--mixing", "0.5"], "--mixing is for --feeding scheduled"),
    "nothing to run freely": (["eval", "x", "--free-running", "0"], "--free-running must be at least 1"),
    **{
        f"{name} {value}": (["train", f"--{name}={value}"], f"--{name} must be ")
        for name, value in [
            ("max-seconds", "0"),
            ("max-seconds", "nan"),
            ("threads", "0"),
            ("patience", "-1"),
            ("clip", "0"),
            ("clip", "nan"),
            ("lr", "0"),
            ("lr", "1e9"),
            ("bits", "0"),
            ("bits", "100000000"),
            ("dropout", "1"),
            ("seed", "-1"),
            ("predictor-layers", "3"),
        ]
    },
    "not a number": (["train", "--hidden", "abc"], "argument --hidden: invalid int value: 'abc'"),
    "no run given": (["eval"], "the following arguments are required: RUN"),
    "unknown objective": (["train", "--objective", "foo"], "--objective foo is unknown: choose one of likelihood"),
    "spans without a span code": (
        ["train", "--objective", "span-mass", "--codebook", "semantic"],
        "--objective span-mass needs a span code",
    ),
    "samples that nothing draws": (["train", "--objective", "bits", "--samples", "9"], "--samples is for --objective"),
    "vectors that nothing starts from": (["train", "--start-from-vectors"], "add --input token"),
    "two texts": (["eval", "x", "--file", "y", "--split", "valid"], "--file stands for the text"),
    "beam and draws": (["generate", "x", "--beam", "3", "--top-k", "5"], "--beam searches and draws nothing"),
    "beam of nothing": (["generate", "x", "--beam", "0"], "--beam must be at least 1"),
    "a file in the way": (
        ["train", "--corpus", "{corpus}", "--out", "corpus/train.txt/run"],
        "corpus/train.txt",
    ),
    "a batch larger than the text": (
        ["train", "--corpus", "{corpus}", "--out", "x", "--bits", "24", "--batch", "100000"],
        "--batch must be below the",
    ),
    "config that is none": (["train", "--config", "nothing.yaml"], "--config nothing.yaml cannot be read"),
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_mistake_is_one_line_and_exit_code_2(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    line, message = BAD_LINES[bad]
    try:
        code = main([word.format(corpus=corpus) for word in line])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
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


BAD_CONFIGS = {
    "hiden: 3": "option hiden is unknown",
    "max-seconds: 3\nfoo: 1": "option foo is unknown",
    "hidden: abc": "hidden must be a whole number, got 'abc'",
    "hidden:": "hidden must be a whole number, got None",
    "batch: 20.5": "batch must be a whole number, got 20.5",
    "dropout: none": "dropout must be a number, got 'none'",
    "epochs: true": "epochs must be a whole number, got True",
    "tie: 'no'": "tie must be true or false, got 'no'",
    "a list": "has no options: write one a line",
    "hidden: [": "cannot be read",
}


@pytest.mark.parametrize("text", BAD_CONFIGS)
def test_a_mistake_in_a_config_is_one_line_too(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert main(["train", "--config", str(tmp_path / "run.yaml")]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 1 and shown[0].startswith("ecoc: --config") and BAD_CONFIGS[text] in shown[0]


def test_numbers_that_yaml_takes_for_text_are_numbers(tmp_path: Path) -> None:
    values = typed(TrainOptions, {"lr": "1e-3", "batch": 20.0, "max-seconds": 5, "temperature": 0.5}, "here")
    assert values == {"lr": 0.001, "batch": 20, "max_seconds": 5.0, "temperature": "0.5"}


DAMAGE = {
    "best.safetensors": ["cut", "flip", "another run's"],
    "last.ckpt": ["cut", "flip", "another run's"],
    "vocabulary.json": ["cut", "another run's"],
    "codebook.safetensors": ["cut", "flip", "another run's", "gone"],
    "config.json": ["cut"],
}


@pytest.mark.parametrize(("name", "damage"), [(name, damage) for name, kinds in DAMAGE.items() for damage in kinds])
def test_a_damaged_or_foreign_file_is_one_line(
    name: str, damage: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    content = (copy / name).read_bytes()
    if damage == "cut":
        (copy / name).write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        place = len(content) * 2 // 3
        (copy / name).write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    elif damage == "gone":
        (copy / name).unlink()
    else:
        other = trained(tmp_path / "other", max_size=25, hidden=12, epochs=1)
        shutil.copy(other / name, copy / name)
    line = ["train", "--resume", "--out", str(copy)] if name == "last.ckpt" else ["suggest", str(copy), "w1"]
    assert main(line) == 2
    shown = [text for text in capsys.readouterr().err.splitlines() if text.startswith("ecoc: ")]
    assert len(shown) == 1 and (name in shown[0] or "does not fit" in shown[0] or "vocabulary" in shown[0])


def test_a_log_that_a_kill_cut_off_does_not_matter(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    log = copy / "log.jsonl"
    log.write_text(log.read_text() + '5\n{"a": 1}\n{"event": "epo')
    assert ecoc.load(copy).sizes() == ecoc.load(run).sizes()


def test_an_interrupt_outside_training_is_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ecoc.language.evaluate", interrupted)
    assert main(["eval", str(run)]) == 130
    assert capsys.readouterr().err.endswith("ecoc: stopped\n")


def test_codebook_build_does_not_replace_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codebook", "build", "--out", str(run), "--overwrite"]) == 2
    assert "so --overwrite leaves it alone" in capsys.readouterr().err and (run / "best.safetensors").exists()


def test_evaluation_reads_the_ids_that_training_left(run: Path, tmp_path: Path) -> None:
    scores = ecoc.load(run).evaluate("test")
    ecoc.load(run).save_pretrained(tmp_path / "shared")
    again = ecoc.load(tmp_path / "shared").evaluate("test")  # these ids are made anew
    assert scores == again


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
