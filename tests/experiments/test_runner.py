"""Running rows: equal conditions, nothing twice, and nothing lost when killed."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from ecoc.cli import main
from ecoc.experiments import runner
from ecoc.experiments.process import Failed
from ecoc.experiments.results import Result, read_results
from ecoc.experiments.rows import configs, read_study, studies
from ecoc.feeding import Schedule
from ecoc.options import CaptionTrainOptions, ReproduceOptions, TrainOptions, typed
from tests.experiments.tiny import ROOT, Here, change, read, with_two_rates

RESULTS = read_results(ROOT / "results")


@pytest.mark.usefixtures("here")
def test_every_row_is_tuned_trained_and_recorded(study: ReproduceOptions, tmp_path: Path) -> None:
    with_two_rates(tmp_path)
    for job in runner.jobs(study):
        job.run()
        assert job.finished and job.done == job.work == 5  # two rates, two epochs, the evaluation
    found = read(study)
    assert set(found) == {"Softmax", "Code"}
    for result in found.values():
        assert set(result.tuning) == {"1e-05", "0.02"} and result.tuning["0.02"] < result.tuning["1e-05"]
        assert result.options["lr"] == 0.02 and "--lr 0.02" in result.command and result.seed == 1
        assert len(result.curve) == 2 and result.cost["epochs"] == 2 and result.cost["cpu_seconds"] > 0
        assert result.test["perplexity"]["normalised"] > 1 and result.valid["tokens"] != result.test["tokens"]
        last = result.curve[-1]["valid_perplexity"]["normalised"]
        assert result.valid["perplexity"]["normalised"] == pytest.approx(last, rel=1e-4)
        assert result.cost["peak_memory_bytes"] > 1e6 and result.versions["torch"] and result.commit
    assert found["Softmax"].paper == {"test": 5.0} and found["Code"].note == "a note"
    sizes = found["Code"].sizes
    assert sizes["decoder_parameters"] == 24 * 17 and sizes["bytes"] > 4 * sizes["parameters"]  # the code is not free
    assert not list(Path(study.out).rglob("best.safetensors"))


@pytest.mark.usefixtures("here")
def test_the_command_trains_the_same_and_a_finished_row_is_not_run_again(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.rows = "Code"
    (job,) = runner.jobs(study)
    job.run()
    result = read(study)["Code"]
    arguments = result.command.split()[1:]
    arguments[arguments.index("DATA")] = str(tmp_path)
    assert main([*arguments, "--threads", "1", "--out", str(tmp_path / "again")]) == 0
    records = [json.loads(line) for line in (tmp_path / "again/log.jsonl").read_text().splitlines()]
    again = [r["valid_perplexity"] for r in records if r["event"] == "epoch"]
    assert again == [record["valid_perplexity"] for record in result.curve]
    monkeypatch.setattr(runner.Job, "_start", lambda *_: pytest.fail("run again"))
    job.run()  # as another runner does that had to wait for this one
    assert runner.reproduce(study, progress=False) == [] and read(study)["Code"] == result
    path = tmp_path / "configs/tiny/code.yaml"
    more = {"note": "another note", "paper": {"text": {"test": 6.0}}}  # no reason to run it again
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | more))
    assert runner.reproduce(study, progress=False) == []
    assert read(study)["Code"] == replace(result, note="another note", paper={"test": 6.0})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_runner_goes_on(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """What it started is stopped by an interrupt or waited for; the result is that of a runner never killed."""
    study.rows = "Code"
    whole = ReproduceOptions(**{**vars(study), "results": str(tmp_path / "whole"), "out": str(tmp_path / "whole-runs")})
    with monkeypatch.context() as patch:
        patch.setattr(runner.Job, "_start", lambda job, arguments: Here(job, arguments))
        runner.jobs(whole)[0].run()
    code = (
        "import sys; from pathlib import Path; from ecoc.commands.experiments import reproduce_command\n"
        "from ecoc.experiments import rows; from ecoc.options import ReproduceOptions\n"
        f"rows.configs = lambda: Path({str(tmp_path / 'configs')!r})\n"
        f"reproduce_command(ReproduceOptions(**{vars(study)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 120
    while not list(Path(study.out).rglob("run/config.json")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    process.wait()
    (lock,) = Path(study.out).rglob(".Code.small.seed1.lock")
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
    assert held is (number == signal.SIGKILL) and not Path(study.results, "tiny").exists()
    assert runner.reproduce(study, progress=False) == []
    mine, other = read(study)["Code"], read(whole)["Code"]
    assert mine.test == other.test
    assert [r["valid_perplexity"] for r in mine.curve] == [r["valid_perplexity"] for r in other.curve]


def test_a_row_that_fails_is_told_and_the_others_go_on(
    study: ReproduceOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = tmp_path / "configs/tiny/softmax.yaml"
    row.write_text(yaml.safe_dump({"row": "Softmax", "options": {"head": "softmax", "batch": 100_000}}))
    given = [
        part for name in ("data_dir", "results", "out") for part in (f"--{name.replace('_', '-')}", vars(study)[name])
    ]
    assert main(["reproduce", "tiny", *given]) == 1
    said = capsys.readouterr()
    assert "failed: Softmax on" in said.err and "--batch must be below" in said.err
    next_ = f"Next: ecoc report --results {study.results}"
    assert f"tiny, 1 of 2 rows run, 0 were there before. {next_}\n" in said.out
    assert set(read(study)) == {"Code"}
    assert main(["reproduce", "tiny", *given, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == ["to", "finished"] and listed[1].endswith("Code")
    assert main(["reproduce", "tiny", *given, "--rows", "Softmax"]) == 1
    assert capsys.readouterr().out.endswith("0 of 1 rows run, 0 were there before.\n")
    assert main(["reproduce", "tiny", *given, "--rows", "Code"]) == 0
    assert f"0 of 1 rows run, 1 were there before. {next_}, or --results FOLDER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"study": "table9"}, "study table9 is unknown"),
        ({"budget": "huge"}, "no budget huge"),
        ({"rows": "Nobody"}, "has no row Nobody"),
        ({"corpora": "bible"}, "does not run on bible"),
        ({"data_dir": None}, "--data-dir is missing"),
        ({"data_dir": "nowhere"}, "--data-dir: nowhere is not there"),
        ({"vectors": "nowhere.vec"}, "--vectors: nowhere.vec is not there"),
        ({"results": "text/train.txt"}, "File exists: 'text/train.txt'"),
    ],
)
def test_mistakes_are_said_before_anything_runs(study: ReproduceOptions, change: dict, said: str) -> None:
    with pytest.raises((ValueError, OSError), match=said):
        runner.reproduce(ReproduceOptions(**{**vars(study), **change}), progress=False)
    assert not Path(study.out).exists()


def test_a_finished_row_is_replaced_only_if_asked_for(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    monkeypatch.setattr(runner.Job, "run", lambda job: ran.append(job.row.name))
    study.rows = "Code"
    (job,) = runner.jobs(study)
    replace(job.blank, options=job.options() | {"lr": 0.02}).save(Path(study.results))
    assert runner.reproduce(study, progress=False) == ran == []
    change(tmp_path, "code.yaml", options={"head": "ecoc", "bits": 32})
    with pytest.raises(ValueError, match=r"run with other options, rates or files: Code on text, seed 1: choose"):
        runner.reproduce(study, progress=False)
    assert ran == []
    assert runner.reproduce(replace(study, overwrite=True), progress=False) == [] and ran == ["Code"]


def test_a_copy_is_no_further_seed(study: ReproduceOptions) -> None:
    result = runner.jobs(study)[0].blank
    result.save(Path(study.results))
    path = result.path(Path(study.results))
    shutil.copy(path, path.with_name("old.json"))
    with pytest.raises(ValueError, match=r"old.json and .*seed1.json are results of the same row and seed: delete one"):
        read_results(Path(study.results))


def test_every_seed_is_run_once(study: ReproduceOptions) -> None:
    study.rows, study.seeds = "Code,Softmax,Code", 3
    found = [(job.row.name, job.seed, job.options()["seed"]) for job in runner.jobs(study)]
    assert found == [(row, seed, seed) for seed in (1, 2, 3) for row in ("Code", "Softmax")]


def test_rows_that_need_vectors_say_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--vectors FILE .* is missing for .*Code-ECOC"):
        runner.reproduce(ReproduceOptions("table1", rows="Code-ECOC", data_dir=".", results=str(tmp_path)))
    with pytest.raises(ValueError, match="needs --captions and --features"):
        runner.reproduce(ReproduceOptions("table2", results=str(tmp_path)))
    assert main(["reproduce", "table1", "--list"]) == 0  # which needs no data


def test_a_text_that_is_missing_is_said_before_anything_runs(tmp_path: Path) -> None:
    """The text of the row, and the one that its learning rate is chosen on."""
    settings = ReproduceOptions("table1", rows="NCE", data_dir=str(tmp_path), results=str(tmp_path / "results"))
    tuned = tmp_path / "tuned"
    shutil.copytree(ROOT / "results/table1/ptb", tuned / "table1/ptb")
    with pytest.raises(ValueError, match=r"wikitext-2: .* wiki\.train\.tokens"):
        runner.reproduce(replace(settings, corpora="wikitext-2", results=str(tuned)))
    (tmp_path / "wikitext-2").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / f"wikitext-2/wiki.{split}.tokens").write_text("a text\n")
    with pytest.raises(ValueError, match=r"ptb: .* ptb\.train\.txt"):
        runner.reproduce(replace(settings, corpora="wikitext-2"))
    with pytest.raises(ValueError, match="wikitext-2: not the published files"):
        runner.reproduce(replace(settings, corpora="wikitext-2", results=str(tuned)))


def test_captions_that_are_none_are_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captions.json").write_text("{")
    given = [f"--{name}={tmp_path / 'captions.json'}" for name in ("captions", "features", "projection")]
    arguments = ["reproduce", "table2", "--rows", "Full-SM", *given, "--results", str(tmp_path), "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert "captions.json" in capsys.readouterr().err and not list(tmp_path.glob("table2"))


def test_rows_keep_to_their_corpora(study: ReproduceOptions, tmp_path: Path) -> None:
    path = tmp_path / "configs/tiny/code.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"corpora": ["other"]}))
    assert [job.row.name for job in runner.jobs(study)] == ["Softmax"]
    study.rows = "Code"
    with pytest.raises(ValueError, match="Code is not run on text: see --list"):
        runner.jobs(study)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"corpora": ["text"]}))
    assert [job.row.name for job in runner.jobs(study)] == ["Code"]


@pytest.mark.parametrize("name", studies())
def test_every_config_is_right(name: str) -> None:
    """Names, options and values of all rows are ones that the commands take."""
    study = read_study(name)
    kind = {"train": TrainOptions, "caption train": CaptionTrainOptions}[study.command]
    settings = ReproduceOptions(name, data_dir=".", vectors="glove.txt", captions="c.json", features="f.npz")
    for budget in study.budgets:
        settings.budget = budget
        for job in runner.jobs(settings):
            for more in ({}, {"epochs": 1}):  # tuning takes one epoch
                options = job.options() | {"lr": study.learning_rates[0]} | more
                kind(**typed(kind, {key: job._filled(value) for key, value in options.items()}, job.row.name))
    files = list((configs() / name).glob("*.yaml"))
    assert len(files) == len(study.rows) + 1 and all(path.read_text().startswith("# ") for path in files)


def test_the_papers_rows_are_all_there() -> None:
    paper = "Full-SM Rand-Sample-SM Uni-Sample-SM Rand-Hierarchical-SM Uni-Hierarchical-SM Adaptive-SM NCE Random-ECOC "
    first = read_study("table1").rows[:10]
    assert [row.name for row in first] == [*paper.split(), "Uni-ECOC", "Embedding-ECOC"]
    assert all(set(row.paper) == {"ptb", "wikitext-2", "wikitext-103"} for row in first)
    assert [bool(row.paper) for row in read_study("table2").rows] == [True] * 11 + [False]  # ours is last


def test_results_are_read_again_and_damaged_ones_told(tmp_path: Path) -> None:
    result = Result("table1", "Full-SM", "ptb", 1, "small", test={"perplexity": {"normalised": 100.0}})
    result.save(tmp_path)
    assert read_results(tmp_path) == [result]
    result.path(tmp_path).write_text('{"study": "table1"')
    with pytest.raises(ValueError, match=r"Full-SM.small.seed1.json is no result, or damaged"):
        read_results(tmp_path)
    with pytest.raises(ValueError, match="is no folder"):
        read_results(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("row", 5),
        ("seed", "one"),
        ("seed", True),
        ("cost", 5),
        ("cost", {"threads": "one"}),
        ("tuning", {"0.1": "low"}),
        ("test", []),
        ("test", {"perplexity": 5}),
        ("test", {"perplexity": {"normalised": float("nan")}}),
        ("test", {"perplexity_by_band": [1]}),
        ("test", {"perplexity_by_band": {"1-100": 5}}),
        ("valid", {"perplexity": {"normalised": "low"}}),
        ("curve", [1, 2]),
        ("curve", [{}]),
        ("curve", [{"cpu_seconds": 1, "valid_perplexity": 5}]),
        ("extra", {"flips": 5}),
        ("extra", {"accuracy": ["all"]}),
        ("extra", {"captions": [1]}),
    ],
)
def test_a_result_says_which_of_its_values_is_damaged(tmp_path: Path, name: str, wrong: object) -> None:
    result = Result("table1", "Full-SM", "ptb", 1, "small")
    result.save(tmp_path)
    result.path(tmp_path).write_text(json.dumps(asdict(result) | {name: wrong}))
    with pytest.raises(ValueError, match=rf"Full-SM.small.seed1.json is no result, or damaged \(its {name}\S* .*is no"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", studies())
def test_rows_that_share_a_tuning_differ_only_in_what_the_first_epoch_does_not_do(name: str) -> None:
    study = read_study(name)
    rows = {row.name: row for row in study.rows}
    for row in study.rows:
        if row.tuned_as:
            other, own = ({**rows[one].options, "feeding": ""} for one in (row.tuned_as, row.name))
            assert other == own and row.by_corpus == rows[row.tuned_as].by_corpus
            assert Schedule(epochs=1)(0) == 0.0 and "schedule" not in study.options


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: f"{one.study}/{one.corpus}/{one.row}/{one.seed}")
def test_results_here_are_of_the_configs_here(result: Result) -> None:
    settings = ReproduceOptions(result.study, result.budget, result.row, result.corpus, result.seed)
    settings.results = str(ROOT / "results")
    job = runner.jobs(settings)[-1]
    assert job.state == "finished" and (result.note, result.paper) == (job.blank.note, job.blank.paper)
    assert not result.tuning or f"{result.options['lr']:g}" == min(result.tuning, key=result.tuning.__getitem__)
    assert "-dirty" not in result.commit + result.evaluated


def test_a_row_that_breaks_does_not_hide_what_the_others_did(
    study: ReproduceOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: runner.Job) -> None:
        if job.row.name == "Softmax":
            raise OSError("no space left")
        raise Failed("Code failed")

    monkeypatch.setattr(runner.Job, "run", broken)
    failed = sorted(runner.reproduce(study, progress=False))
    assert failed[0] == "Code failed" and "Softmax on text, seed 1" in failed[1] and "no space left" in failed[1]
