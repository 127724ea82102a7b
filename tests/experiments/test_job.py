"""One row: how it is tuned, when it is run anew, what its result says of how it was made."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from ecoc import __version__
from ecoc.data import open_captions
from ecoc.experiments import job as row_job
from ecoc.experiments import record, runner
from ecoc.experiments.process import Failed, alone, output_of, start
from ecoc.experiments.record import digest, flags
from ecoc.experiments.results import Result, read_results
from ecoc.experiments.rows import SHARED
from ecoc.options import ReproduceOptions
from ecoc.training.journal import read_log
from ecoc.training.trainer import Trainer
from tests.experiments.tiny import change, read, with_two_rates
from tests.training.test_captions import write_captions
from tests.training.tiny import write_corpus


@pytest.mark.usefixtures("here")
def test_tuning_goes_on_where_it_was(study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_two_rates(tmp_path)
    job = runner.jobs(study)[0]
    folder = job.folder.with_name(f"{job.folder.name}.tuning")
    folder.mkdir(parents=True)
    known = job._asked(job.options() | {"epochs": 1}) | {"tuning": {"1e-05": 1.5}}
    (folder / "tuning.json").write_text(json.dumps(known))
    started = []
    monkeypatch.setattr(
        runner.Job, "_process", lambda self, options, *_: started.append((options["lr"], options["epochs"]))
    )
    monkeypatch.setattr(row_job, "read_log", lambda run: [{"event": "epoch", "valid_perplexity": {"normalised": 2.5}}])
    monkeypatch.setattr(row_job.shutil, "rmtree", lambda *_, **__: None)
    assert job._tune() == {1e-05: 1.5, 0.02: 2.5} and started == [(0.02, 1)]
    known["options"]["hidden"] = 17  # of another model
    for text in (json.dumps(known), "{bad", "[]"):
        (folder / "tuning.json").write_text(text)
        assert job._tune() == {1e-05: 2.5, 0.02: 2.5}


@pytest.mark.usefixtures("here")
def test_rows_with_the_same_first_epoch_are_tuned_once(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_two_rates(tmp_path)
    path = tmp_path / "configs/tiny/code.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"tuned_as": "Softmax"}))
    tried, process = [], runner.Job._process

    def counted(job: runner.Job, options: dict, run: Path, doing: str, epochs: int) -> None:
        tried.append((job.row.name, doing))
        process(job, options, run, doing, epochs)

    monkeypatch.setattr(runner.Job, "_process", counted)
    study.rows = "Code,Softmax"
    for job in runner.jobs(study):
        job.run()
        assert job.done == job.work
    rates = [("Softmax", "learning rate 1e-05"), ("Softmax", "learning rate 0.02")]
    assert tried == [*rates, ("Code", "training"), ("Softmax", "training")]
    found = read(study)
    assert found["Code"].tuning == found["Softmax"].tuning
    shutil.rmtree(study.results)
    began: list[str] = []
    monkeypatch.setattr(runner.Job, "run", lambda job: began.append(job.row.name))
    runner.reproduce(replace(study, jobs=1), progress=False)
    assert began == ["Softmax", "Code"]  # the one that waits for the other's tuning comes last, whatever was asked
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"tuned_as": "Code"}))
    with pytest.raises(ValueError, match="Code is tuned as Code, which must be a row with its own tuning"):
        runner.jobs(study)


@pytest.mark.usefixtures("here")
def test_further_seeds_take_the_learning_rate_of_the_first(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_two_rates(tmp_path)
    study.rows, study.seeds = "Softmax", 2
    first, second = runner.jobs(study)
    second.run()
    monkeypatch.setattr(runner.Job, "_try_rate", lambda *_: pytest.fail("tuned again"))
    first.run()  # though it was not the one that tuned
    one, other = read_results(Path(study.results))
    assert (one.seed, other.seed) == (1, 2) and one.tuning == other.tuning and "--seed 2" in other.command
    assert one.curve[0]["valid_perplexity"] != other.curve[0]["valid_perplexity"]
    assert first.done == second.done == first.work and not first.tuner.folder.exists()
    assert second.state == "finished"
    replace(one, tuning={"1e-05": 2.0, "0.02": 1.0}).save(Path(study.results))  # tuned anew, with the same outcome
    assert (first.state, second.state) == ("finished", "finished")
    replace(one, tuning={"1e-05": 1.0, "0.02": 2.0}).save(Path(study.results))  # and with another
    assert (first.state, second.state) == ("finished", "changed")


def test_what_tunes_several_runs_does_so_once(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds at a time would otherwise train in one folder."""
    with_two_rates(tmp_path)
    study.rows, study.seeds = "Softmax", 2
    tried = []

    def slow(job: runner.Job, rate: float) -> float:
        tried.append(rate)
        time.sleep(0.3)
        return rate

    monkeypatch.setattr(runner.Job, "_try_rate", slow)
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(runner.Job._tune, runner.jobs(study))]
    assert tried == [1e-5, 0.02] and found[0] == found[1] == {1e-5: 1e-5, 0.02: 0.02}


def test_a_tuning_of_other_options_is_none(study: ReproduceOptions, tmp_path: Path) -> None:
    with_two_rates(tmp_path)
    study.rows, study.seeds = "Softmax", 2
    first, second = runner.jobs(study)
    tuning = {"1e-05": 1.0, "0.02": 2.0}
    replace(first.blank, options=first.options() | {"lr": 1e-5}, tuning=tuning).save(Path(study.results))
    assert second.tuner.known_tuning() == {1e-5: 1.0, 0.02: 2.0}
    change(tmp_path, "softmax.yaml", options={"head": "softmax", "hidden": 20})
    assert runner.jobs(study)[1].tuner.known_tuning() == {}


@pytest.mark.usefixtures("here")
def test_a_corpus_can_take_the_learning_rates_of_another(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from the other corpus's results if those are there, and are run on its text if not."""
    with_two_rates(tmp_path)
    write_corpus(tmp_path / "more")
    path = tmp_path / "configs/tiny" / SHARED
    shared = yaml.safe_load(path.read_text()) | {"tuned_on": {"small": {"more": "text"}}}
    shared["budgets"]["small"]["more"] = {"epochs": 1}
    path.write_text(yaml.safe_dump(shared))
    tried, process = [], runner.Job._process

    def counted(job: runner.Job, options: dict, run: Path, doing: str, epochs: int) -> None:
        tried.append((job.corpus, options["corpus"], options["lr"], doing))
        process(job, options, run, doing, epochs)

    monkeypatch.setattr(runner.Job, "_process", counted)
    study.rows, study.corpora = "Softmax", "more"
    runner.jobs(study)[0].run()
    rates = [("text", "text", rate, f"learning rate {rate:g}") for rate in (1e-5, 0.02)]
    assert tried == [*rates, ("more", "more", 0.02, "training")]
    first = read(study)["Softmax"]
    assert first.tuned == "Softmax on text" and set(first.tuning) == {"1e-05", "0.02"}
    study.rows, study.corpora = "Code", "text,more"
    there, job = runner.jobs(study)
    tuning = {"1e-05": 1.0, "0.02": 2.0}
    Result("tiny", "Code", "text", 1, "small", options=there.options(), tuning=tuning).save(Path(study.results))
    tried.clear()
    job.run()
    assert tried == [("more", "more", 1e-5, "training")]
    found = [one for one in read_results(Path(study.results)) if (one.row, one.corpus) == ("Code", "more")]
    assert found[0].tuning == {"1e-05": 1.0, "0.02": 2.0} and found[0].tuned == "Code on text"


@pytest.mark.usefixtures("here")
def test_a_row_with_a_learning_rate_of_its_own_is_not_tuned(study: ReproduceOptions, tmp_path: Path) -> None:
    with_two_rates(tmp_path)
    path = tmp_path / "configs/tiny/code.yaml"
    row = yaml.safe_load(path.read_text())
    row["options"]["lr"] = 0.01
    path.write_text(yaml.safe_dump(row))
    study.rows = "Code"
    (job,) = runner.jobs(study)
    job.run()
    result = read(study)["Code"]
    assert job.finished and job.done == job.work == 3  # two epochs and the evaluation
    assert result.tuning == {} and result.tuned == "" and result.options["lr"] == 0.01
    row["options"]["lr"] = 0.02  # one of those that all others choose from
    path.write_text(yaml.safe_dump(row))
    assert runner.jobs(study)[0].state == "changed"
    del row["options"]["lr"]
    path.write_text(yaml.safe_dump(row))
    assert runner.jobs(study)[0].state == "changed"


@pytest.mark.usefixtures("here")
def test_what_was_run_with_other_options_is_run_anew(study: ReproduceOptions, tmp_path: Path) -> None:
    study.rows, study.keep = "Code", True
    runner.jobs(study)[0].run()
    first = read(study)["Code"]
    path = tmp_path / "configs/tiny/code.yaml"
    row = yaml.safe_load(path.read_text())
    row["options"]["bits"] = 32
    path.write_text(yaml.safe_dump(row))
    assert runner.jobs(study)[0].state == "changed"
    runner.jobs(study)[0].run()  # the run of 24 bits is still in its folder
    second = read(study)["Code"]
    assert (first.sizes["decoder_parameters"], second.sizes["decoder_parameters"]) == (24 * 17, 32 * 17)
    assert "--bits 32" in second.command and runner.jobs(study)[0].state == "finished"
    with_two_rates(tmp_path)
    assert runner.jobs(study)[0].state == "changed"


@pytest.mark.usefixtures("here")
def test_the_commit_is_the_one_that_training_began_with(
    study: ReproduceOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.rows = "Softmax"
    scores = runner.Job._scores
    with monkeypatch.context() as patch:
        patch.setattr(row_job, "commit", lambda: "before")
        patch.setattr(runner.Job, "_scores", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            runner.jobs(study)[0].run()
    monkeypatch.setattr(row_job, "commit", lambda: "after")
    assert runner.Job._scores is scores
    runner.jobs(study)[0].run()
    result = read(study)["Softmax"]
    assert (result.commit, result.evaluated) == ("before", "after")


@pytest.mark.usefixtures("here")
def test_a_row_nobody_waits_for_is_measured(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_job, "MEASURED_SECONDS", 0.3)
    path = tmp_path / "configs/tiny/softmax.yaml"
    row = yaml.safe_load(path.read_text()) | {"measure_only": {"small": ["text"]}}
    path.write_text(yaml.safe_dump(row))
    study.rows = "Softmax"
    runner.jobs(study)[0].run()
    result = read(study)["Softmax"]
    assert "CPU seconds an epoch, measured over" in result.skipped and not result.test
    assert 0 < result.cost["cpu_seconds_per_epoch"] < 60
    assert result.command.endswith(" --max-seconds 0.3") and runner.jobs(study)[0].finished


def test_a_row_that_was_only_measured_is_still_to_do_once_it_is_to_be_run(
    study: ReproduceOptions, tmp_path: Path
) -> None:
    change(tmp_path, "softmax.yaml", measure_only={"small": ["text"]})
    study.rows = "Softmax"
    (job,) = runner.jobs(study)
    replace(job.blank, options=job.options(), skipped="9 CPU seconds an epoch").save(Path(study.results))
    assert job.state == "finished"
    change(tmp_path, "softmax.yaml", measure_only={})
    assert runner.jobs(study)[0].state == "to do"


@pytest.mark.usefixtures("here")
def test_the_cost_of_an_epoch_is_that_of_its_steps_and_validation(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(tmp_path, "softmax.yaml", measure_only={"small": ["text"]})
    start = {"event": "start", "steps_per_epoch": 50}
    end = {"event": "epoch", "step": 5, "cpu_seconds": 9.0, "validation_cpu_seconds": 2.0}
    monkeypatch.setattr(runner.Job, "_process", lambda *_: None)
    monkeypatch.setattr(row_job, "read_log", lambda run: [start, end])
    study.rows = "Softmax"
    runner.jobs(study)[0].run()
    result = read(study)["Softmax"]
    assert result.cost == {"cpu_seconds_per_epoch": 72.0, "measured_steps": 5}
    assert result.skipped == "72 CPU seconds an epoch, measured over 5 steps"


@pytest.mark.usefixtures("here")
def test_a_learning_rate_that_diverges_is_not_chosen(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(tmp_path, SHARED, learning_rates=[1e5, 0.02])
    step, message = Trainer.step, "gradient not finite at step 0"

    def diverges(trainer: Trainer, batch: object) -> float:
        if trainer.options.learning_rate == 1e5:
            trainer.model.head.bias.data.fill_(torch.nan)
        return step(trainer, batch)

    monkeypatch.setattr(Trainer, "step", diverges)
    study.rows, study.keep = "Softmax", True
    (job,) = runner.jobs(study)
    job.run()
    result = read(study)["Softmax"]
    assert result.options["lr"] == 0.02 and result.tuning["100000"] > 1e300 and job.done == job.work
    path = Path(study.out) / "tiny/text/Softmax.small.seed1.tuning/tuning.json"
    assert json.loads(path.read_text())["tuning"] == {
        "100000.0": result.tuning["100000"],
        "0.02": result.tuning["0.02"],
    }
    change(tmp_path, SHARED, learning_rates=[1e5])
    with pytest.raises(Failed, match=message):
        runner.jobs(study)[0].run()


def test_a_run_goes_on_with_the_same_files_and_no_others(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.vec").write_text("1 1\nw0 1\n")
    change(tmp_path, "code.yaml", options={"head": "ecoc", "vectors": "contexts+VECTORS"})
    study.rows, study.vectors = "Code", "some.vec"
    (job,) = runner.jobs(study)
    result = job._started(job.folder / "run", job.options())
    assert result.data == {"vectors": digest("some.vec")} and "contexts+VECTORS" in result.command
    (job.folder / "run").mkdir()
    study.vectors, study.data_dir = str(tmp_path / "some.vec"), "."  # other names of the same files
    job._started(job.folder / "run", job.options())
    assert (job.folder / "run").is_dir()
    (tmp_path / "some.vec").write_text("1 1\nw0 2\n")
    digest.cache_clear()  # as in another process
    assert job._started(job.folder / "run", job.options()).data != result.data
    assert not (job.folder / "run").exists()


@pytest.mark.parametrize("name", ["vectors", "captions", "features", "projection"])
def test_a_result_of_other_data_is_none_of_this(study: ReproduceOptions, tmp_path: Path, name: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1 1\nw0 1\n")
    other.write_text("1 1\nw0 2\n")
    if name == "vectors":
        change(tmp_path, "code.yaml", options={"head": "ecoc", "vectors": "contexts+VECTORS"})
    else:
        change(tmp_path, SHARED, command="caption train")
    study.rows = "Code"
    setattr(study, name, str(one))
    (job,) = runner.jobs(study)
    result = replace(job.blank, options=job.options() | {"lr": 0.02}, data={name: digest(str(one))})
    result.save(Path(study.results))
    assert job.state == "finished"
    setattr(study, name, str(other))
    assert job.state == "changed"
    setattr(study, name, None)  # as in a list of what there is
    assert job.state == "finished"
    setattr(study, name, str(other))
    replace(result, data={}).save(Path(study.results))  # nobody knows of what
    assert job.state == "changed"


def test_a_process_that_is_killed_says_so(tmp_path: Path) -> None:
    (tmp_path / "errors.txt").write_text("epoch 1: train loss 5.0\n")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    process.send_signal(signal.SIGKILL)
    with pytest.raises(Failed, match=r"^Softmax: killed by signal 9 \(out of memory\?\)$"):
        output_of(process, tmp_path, "Softmax")


@pytest.mark.usefixtures("here")
def test_codes_of_the_ablation_have_their_bits_flipped(study: ReproduceOptions, tmp_path: Path) -> None:
    (tmp_path / "configs/tiny").rename(tmp_path / "configs/ablation")
    study.study = "ablation"
    for job in runner.jobs(study):
        job.run()
    found = read(study)
    assert not found["Softmax"].extra and "bit_flips" not in found["Code"].test
    assert found["Code"].extra["flips"][0] == 0.0 and found["Code"].extra["recovered"][0] == 1.0


@pytest.mark.usefixtures("here")
def test_a_captioner_is_scored_on_both_splits_and_its_first_captions_are_kept(
    study: ReproduceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ecoc.captioning.meteor", lambda *_: (0.125, ""))
    given = write_captions(tmp_path / "data")
    options = {"layers": 1, "hidden": 16, "recurrent_dropout": 0.0, "min_count": 2}
    change(tmp_path, SHARED, command="caption train", options=options, budgets={"small": {"coco": {"epochs": 1}}})
    study.rows, study.captions, study.features = "Softmax", given["captions"], given["features"]
    (job,) = runner.jobs(study)
    job.run()
    result = read(study)["Softmax"]
    assert result.data == {name: digest(given[name]) for name in ("captions", "features")}
    assert result.valid["images"] > 0 and result.valid["perplexity"] != result.test["perplexity"]
    assert result.curve[-1]["valid_perplexity"]["normalised"] == pytest.approx(
        result.valid["perplexity"]["normalised"], rel=1e-4
    )
    shown = result.extra["captions"]
    images = open_captions(given["captions"], given["features"], min_count=2).split("test")
    said = {image.id: [" ".join(words) for words in image.captions] for image in images}
    assert [one["image"] for one in shown] == [*said][:10]
    assert all(one["references"] == said[one["image"]] for one in shown)
    kept = shown[-1]["image"]
    (tmp_path / "pictures").mkdir()
    (tmp_path / f"pictures/{kept}.png").touch()
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps([{"image_id": one["image"], "caption": one["caption"]} for one in shown]))
    study.images = str(tmp_path / "pictures")
    assert [one["image"] for one in row_job.first_captions(captions, study)] == [kept]


def test_only_one_process_works_on_a_folder(tmp_path: Path) -> None:
    entered, stop = threading.Event(), threading.Event()

    def other() -> None:
        with alone(tmp_path / "row", stop):
            entered.set()

    with alone(tmp_path / "row", stop):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
    thread.join()
    assert entered.is_set()


def test_what_waits_for_another_process_can_be_stopped(tmp_path: Path) -> None:
    stop, other = threading.Event(), threading.Event()
    other.set()
    with alone(tmp_path / "row", stop), pytest.raises(KeyboardInterrupt), alone(tmp_path / "row", other):
        pass


@pytest.mark.parametrize("ends", ["os._exit(130)", "os._exit(1)", "os.kill(os.getpid(), 15)"])
def test_whatever_ends_after_an_interrupt_was_interrupted(study: ReproduceOptions, ends: str) -> None:
    job = runner.jobs(study)[0]
    job.interrupt()
    with pytest.raises(KeyboardInterrupt):
        job._check(subprocess.Popen([sys.executable, "-c", f"import os; {ends}"], text=True))


def test_a_process_runs_the_code_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ecoc").mkdir()
    (tmp_path / "ecoc/__init__.py").write_text("raise SystemExit('another ecoc')")
    monkeypatch.chdir(tmp_path)
    with alone(tmp_path / "row", threading.Event()) as lock:
        process = start(["--version"], tmp_path / "row", 1, lock)
        assert output_of(process, tmp_path / "row", "version") == f"ecoc {__version__}\n"


def test_a_process_gets_its_threads_and_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict = {}
    monkeypatch.setattr(subprocess, "Popen", lambda arguments, **how: started.update(how))
    start(["--version"], tmp_path, 3, 7)
    assert started["env"]["OMP_NUM_THREADS"] == "3" and started["pass_fds"] == (7,) and started["start_new_session"]


def test_options_that_are_off_are_not_typed() -> None:
    assert flags({"bf16": True, "no_test": False, "vectors": None, "lr": 0.1}) == ["--bf16", "--lr", "0.1"]


def test_a_commit_is_dirty_if_code_or_configs_have_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "__file__", str(tmp_path / "ecoc/experiments/record.py"))
    assert record.commit() == "unknown"
    files = [tmp_path / name for name in ("ecoc/code.py", "configs/row.yaml", "results/row.json")]
    for file in files:
        file.parent.mkdir()
        file.write_text("one")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    clean = record.commit()
    assert re.fullmatch("[0-9a-f]{12}", clean)
    files[2].write_text("two")  # results are what comes out
    assert record.commit() == clean
    for file in files[:2]:
        file.write_text("two")
        assert record.commit() == f"{clean}-dirty"
        file.write_text("one")
    files[1].with_name("new.yaml").touch()  # that git does not know yet
    assert record.commit() == f"{clean}-dirty"


@pytest.mark.usefixtures("here")
def test_the_making_of_a_code_is_counted_apart(study: ReproduceOptions) -> None:
    study.rows, study.keep = "Code", True
    (job,) = runner.jobs(study)
    job.run()
    first, *_, last = read_log(job.folder / "run")
    cost = read(study)["Code"].cost
    assert first["event"] == "start" and cost["preparation_cpu_seconds"] == first["cpu_seconds"] != last["cpu_seconds"]


@pytest.mark.usefixtures("here")
def test_a_tuning_is_forgotten_with_the_run(study: ReproduceOptions, tmp_path: Path) -> None:
    """Its result has it; where a row is run anew, by other code maybe, it is tuned anew."""
    with_two_rates(tmp_path)
    study.rows = "Code"
    (job,) = runner.jobs(study)
    job.run()
    assert len(read(study)["Code"].tuning) == 2 and job.tuner.known_tuning() and not job.tuner.folder.exists()
    anew = replace(job, settings=replace(study, results=str(tmp_path / "anew")))
    assert not anew.tuner.known_tuning()
