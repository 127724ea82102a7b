"""Training: it learns, stops and goes on with the same result, and never leaves half a file."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import ecoc
from ecoc import heads
from ecoc.options import TrainOptions
from ecoc.training import Stopped, train
from ecoc.training import trainer as trainer_module
from ecoc.training.checkpoint import written_whole
from ecoc.training.journal import Journal
from ecoc.training.launch import build_task, prepared
from ecoc.training.run import load_model
from ecoc.training.schedule import one_cycle
from tests.training.tiny import options, trained, write_corpus

ROOT = Path(__file__).parents[2]


class Killed(BaseException):
    """Stands for SIGKILL: nothing gets to clean up but the interpreter itself."""


def log_of(run: Path) -> list[dict]:
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    measured = ("tokens_per_second", "peak_memory_bytes")
    return [{k: v for k, v in r.items() if k not in measured and not k.endswith("seconds")} for r in records]


def assert_same_run(one: Path, other: Path) -> None:
    first, second = load_file(one / "best.safetensors"), load_file(other / "best.safetensors")
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert log_of(one) == log_of(other)


@pytest.mark.parametrize("head", heads.NAMES)
def test_every_head_trains_and_learns(head: str, tmp_path: Path) -> None:
    more = {"bits": 24} if head == "hybrid" else {}
    if head in ("sampled", "nce"):
        more["samples"] = 20
    run = trained(tmp_path, head=head, epochs=6, lr=0.02, **more)
    epochs = [r["valid_perplexity"]["normalised"] for r in log_of(run) if r["event"] == "epoch"]
    assert epochs[-1] < 0.8 * epochs[0] and epochs[-1] < 20
    scores = ecoc.load(run).evaluate("valid")
    assert scores["perplexity"]["normalised"] == pytest.approx(min(epochs), rel=1e-4)


@pytest.mark.parametrize("killed_at", [1, 9, 40])
def test_a_killed_run_goes_on_to_the_same_result(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole")
    corpus = write_corpus(tmp_path / "corpus")
    step = Journal.step

    def killing(self: Journal, number: int, *rest: object) -> None:
        if number == killed_at:
            raise Killed
        step(self, number, *rest)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "step", killing)
        train(options(corpus, tmp_path / "run"), progress=False)
    resumed = train(options(corpus, tmp_path / "run", resume=True), progress=False)
    assert_same_run(resumed, whole)


@pytest.mark.parametrize(
    "more",
    [{"head": "softmax", "start_from_vectors": True}, {"head": "hierarchical", "order": "embedding"}],
    ids=["vectors", "order"],
)
def test_killed_before_the_first_checkpoint(more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was built from the text is read again, and draws nothing that the first run did not draw."""
    whole = trained(tmp_path / "whole", **more)
    corpus = write_corpus(tmp_path / "corpus")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "start", lambda *rest: (_ for _ in ()).throw(Killed))
        train(options(corpus, tmp_path / "run", **more), progress=False)
    assert_same_run(train(options(corpus, tmp_path / "run", resume=True, **more), progress=False), whole)


def test_a_file_is_replaced_where_it_is_and_nothing_but_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere/file")
    for text in ("one", "two"):
        with written_whole(tmp_path / "link") as temporary:
            temporary.write_text(text)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "elsewhere/file").read_text() == "two"
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", "elsewhere"):
        with pytest.raises(ValueError, match=f"{path} is no file"), written_whole(tmp_path / path) as temporary:
            temporary.write_text("one")
    assert (tmp_path / "pipe").is_fifo() and os.listdir(tmp_path / "elsewhere") == ["file"]
    with pytest.raises(FileNotFoundError, match="nowhere/file'"), written_whole(tmp_path / "nowhere/file") as temporary:
        temporary.write_text("one")


def test_killed_inside_writing_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole")
    corpus, save, calls = write_corpus(tmp_path / "corpus"), torch.save, []

    def half(state: object, path: Path) -> None:
        calls.append(path)
        if len(calls) == 3:
            Path(path).write_bytes(b"half a checkpoint")
            raise Killed
        save(state, path)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("ecoc.training.checkpoint.torch.save", half)
        train(options(corpus, tmp_path / "run"), progress=False)
    assert_same_run(train(options(corpus, tmp_path / "run", resume=True), progress=False), whole)


def test_a_real_sigkill_and_a_real_interrupt(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", epochs=40)
    corpus, run = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    flags = "--hidden 16 --layers 1 --epochs 40 --batch 4 --bptt 8 --save-every 7 --threads 1 --bits 24 --samples 20"
    command = [sys.executable, "-m", "ecoc.cli", "train", "--corpus", str(corpus), "--out", str(run), *flags.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    wait_for(run / "last.ckpt", first)
    first.kill()
    first.wait()
    size = (run / "log.jsonl").stat().st_size if (run / "log.jsonl").exists() else 0
    second = subprocess.Popen([*command, "--resume"], env=environment, stderr=subprocess.PIPE, text=True)
    wait_for(run / "log.jsonl", second, larger_than=size)
    second.send_signal(signal.SIGINT)
    message = second.communicate(timeout=60)[1]
    if second.returncode != 0:  # it may have been done already
        assert second.returncode == 130 and f"go on with: ecoc train --out {run} --resume" in message
    assert_same_run(train(options(corpus, run, epochs=40, resume=True), progress=False), whole)


def wait_for(path: Path, process: subprocess.Popen, larger_than: int = 0) -> None:
    for _ in range(1200):
        if (path.exists() and path.stat().st_size > larger_than) or process.poll() is not None:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


def test_an_interrupt_saves_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole")
    corpus, step = write_corpus(tmp_path / "corpus"), Journal.step

    def interrupting(self: Journal, number: int, *rest: object) -> None:
        if number == 12:
            os.kill(os.getpid(), signal.SIGINT)
        step(self, number, *rest)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Journal, "step", interrupting)
        train(options(corpus, tmp_path / "run"), progress=False)
    assert_same_run(train(options(corpus, tmp_path / "run", resume=True), progress=False), whole)


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    flags = {"epochs": 7, "dropout": 0.2, "recurrent_dropout": 0.2, "save_every": 1000}
    one = trained(tmp_path / "one", **flags)
    corpus, run = write_corpus(tmp_path / "corpus"), tmp_path / "two"
    line = "--hidden 16 --layers 1 --batch 4 --bptt 8 --threads 1 --bits 24 --samples 20 --epochs 7 --save-every 1000"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    command += ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", "-m", "ecoc.cli", "train"]
    command += ["--corpus", str(corpus), "--out", str(run), *line.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    curves = [[r["train_loss"] for r in log_of(folder) if r["event"] == "epoch"] for folder in (one, run)]
    assert curves[1] == pytest.approx(curves[0], abs=1e-4) and len(curves[0]) == 7
    assert log_of(one)[-1]["step"] >= 50


def test_time_limit_and_patience_end_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, started = write_corpus(tmp_path / "corpus"), time.perf_counter()
    run = train(options(corpus, tmp_path / "time", epochs=100_000, max_seconds=2.0), progress=True)
    assert time.perf_counter() - started < 60 and (run / "best.safetensors").exists()
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"note: ended in epoch \d+ of 100000: the 2 seconds of --max-seconds are over", said)
    train(options(corpus, tmp_path / "one", epochs=1, max_seconds=0.01), progress=True)
    assert "ended in epoch 1 of 1: the 0.01 seconds" in " ".join(capsys.readouterr().err.split())
    diverging = {"epochs": 50, "patience": 1, "lr": 5.0, "clip": 100.0, "lr_schedule": "constant"}
    run = train(options(corpus, tmp_path / "patience", **diverging), progress=True)
    epochs = len([r for r in log_of(run) if r["event"] == "epoch"])
    said = " ".join(capsys.readouterr().err.split())
    assert epochs < 50 and f"ended in epoch {epochs} of 50: validation was best in epoch {epochs - 1}, and" in said


def test_whoever_may_read_a_new_file_may_read_a_run(tmp_path: Path) -> None:
    run = trained(tmp_path, epochs=1)
    (tmp_path / "new").touch()
    modes = {path.name: path.stat().st_mode for path in run.iterdir() if path.is_file()}
    assert {"best.safetensors", "codebook.safetensors", "last.ckpt"} <= set(modes), modes
    assert set(modes.values()) == {(tmp_path / "new").stat().st_mode}, modes


def test_a_run_is_not_overwritten_unless_asked_for(tmp_path: Path) -> None:
    run = trained(tmp_path)
    before = (run / "best.safetensors").read_bytes()
    with pytest.raises(ValueError, match="exists: --resume goes on with it, --overwrite replaces it"):
        trained(tmp_path)
    assert (run / "best.safetensors").read_bytes() == before
    trained(tmp_path, overwrite=True, seed=2)
    assert (run / "best.safetensors").read_bytes() != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"has thesis\.txt, so --overwrite leaves it alone"):
        train(options(tmp_path / "corpus", tmp_path / "mine", overwrite=True), progress=False)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    kept = (run / "best.safetensors").read_bytes()
    with pytest.raises(ValueError, match="--bits 3 cannot tell"):
        trained(tmp_path, overwrite=True, bits=3)
    assert (run / "best.safetensors").read_bytes() == kept  # a mistake costs nothing
    (tmp_path / ".run.new").mkdir()  # as after a kill while the codebook is built
    (tmp_path / ".run.new" / "half").write_text("done")
    trained(tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "mine", "run"]


def test_resuming_with_other_options_is_refused(tmp_path: Path) -> None:
    trained(tmp_path)
    with pytest.raises(ValueError, match="--hidden 32 differs from the run's 16: leave it out"):
        train(options(tmp_path / "corpus", tmp_path / "run", resume=True, hidden=32), progress=False)


def test_damaged_files_of_a_run_are_named(tmp_path: Path) -> None:
    run = trained(tmp_path)
    corpus = tmp_path / "corpus"
    (run / "last.ckpt").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"last.ckpt is damaged .*: delete it to start over"):
        train(options(corpus, run, resume=True), progress=False)
    (run / "best.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"best\.safetensors is damaged or missing"):
        ecoc.load(run)
    (run / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        ecoc.load(run)


def test_a_gradient_that_is_not_finite_stops_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(torch.nan))
    with pytest.raises(ValueError, match="gradient not finite at step 0: lower --lr"):
        trained(tmp_path)


def test_bits_become_probabilities_with_factors_fitted_on_held_out_text(tmp_path: Path) -> None:
    run = trained(tmp_path, objective="bits", samples=None, epochs=6, lr=0.02)
    model = ecoc.load(run)
    fitted = model.evaluate("valid")["perplexity"]["normalised"]
    model.model.head.model.calibration.copy_(torch.tensor([0.5, 0.0]))
    assert fitted < 0.9 * model.evaluate("valid")["perplexity"]["normalised"] and fitted < 32


def test_the_log_has_steps_that_were_taken_and_what_it_was_trained_with(tmp_path: Path) -> None:
    run = trained(tmp_path, epochs=100_000, max_seconds=1.0, save_every=100_000)
    start, *_, last = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert start["event"] == "start" and start["seed"] == 1 and start["torch"] == torch.__version__
    assert last["event"] == "epoch" and last["step"] <= 49 * last["epoch"] and last["peak_memory_bytes"] > 1e7


@pytest.mark.parametrize(("head", "says"), [("softmax", True), ("nce", False)])
def test_the_bar_says_a_perplexity_only_where_the_loss_is_one(head: str, says: bool, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shown: list[str] = []
        patch.setattr("rich.progress.Progress.update", lambda self, task, **kw: shown.append(kw.get("numbers", "")))
        trained(tmp_path, head=head, epochs=1)
    assert any("loss" in text for text in shown)
    assert any("training perplexity" in text for text in shown) == says


@pytest.mark.parametrize(
    "more",
    [
        {"feeding": "scheduled", "sampled": True, "sequential": True, "schedule": "constant"},
        {"feeding": "differentiable", "temperature": "learned", "schedule": "linear", "mixing": 0.9},
    ],
    ids=["scheduled", "differentiable"],
)
def test_feeding_is_logged_and_goes_on_after_a_kill(
    more: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole", **more)
    corpus, step = write_corpus(tmp_path / "corpus"), Journal.step

    def killing(self: Journal, number: int, *rest: object) -> None:
        if number == 60:
            raise Killed
        step(self, number, *rest)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "step", killing)
        train(options(corpus, tmp_path / "run", **more), progress=False)
    assert_same_run(train(options(corpus, tmp_path / "run", resume=True, **more), progress=False), whole)
    epochs = [record for record in log_of(whole) if record["event"] == "epoch"]
    mixing = [record["mixing"] for record in epochs]
    assert mixing == pytest.approx([0.5, 0.5, 0.5] if more["feeding"] == "scheduled" else [0, 0.45, 0.9])
    assert all((record["changed_inputs"] > 0.2) == (record["mixing"] > 0) for record in epochs)
    assert ("temperature" in epochs[0]) == (more["feeding"] == "differentiable")
    assert ecoc.load(whole).suggest("w1", 2)


def test_the_policys_options_reach_it(tmp_path: Path) -> None:
    given = {"schedule": "constant", "mixing": 0.25, "epochs": 1}
    run = trained(tmp_path / "c", feeding="curriculum", thresholds="rising", by_token=True, sequential=True, **given)
    model, _, _ = load_model(run)
    policy = model.feeding
    assert model.sequential and not policy.by_code and policy.probability == 0.25
    assert torch.equal(policy.factors, torch.arange(1, 25) / 24)
    run = trained(tmp_path / "d", feeding="differentiable", straight_through=True, temperature="0.3", **given)
    model, _, _ = load_model(run)
    policy = model.feeding
    assert not model.sequential and policy.by_code and policy.straight_through and policy.temperature == 0.3
    run = trained(tmp_path / "s", feeding="scheduled", sampled=True, **given)
    assert load_model(run)[0].feeding.sampled


@pytest.mark.parametrize("sequential", [False, True], ids=["parallel", "sequential"])
@pytest.mark.parametrize("feeding", ["scheduled", "soft", "curriculum", "soft-curriculum", "differentiable"])
def test_policies_work_in_bfloat16(feeding: str, sequential: bool, tmp_path: Path) -> None:
    run = trained(tmp_path, feeding=feeding, schedule="constant", sequential=sequential, bf16=True, epochs=1)
    assert log_of(run)[-1]["train_loss"] < 4


def test_a_policy_that_had_no_time_to_act_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    for schedule, told in (("linear", True), ("constant", False)):
        more = {"feeding": "scheduled", "schedule": schedule, "max_seconds": 0.05, "overwrite": True}
        train(options(corpus, tmp_path / "run", **more), progress=True)
        text = " ".join(capsys.readouterr().err.split())
        assert ("--feeding scheduled has fed targets alone" in text) == told


def test_resuming_a_changed_text_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path, epochs=2)
    text = tmp_path / "corpus" / "train.txt"
    lines = text.read_text().splitlines()
    text.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")  # the same words in another order
    with pytest.raises(ValueError, match=r"the text of .* has changed"):
        train(options(tmp_path / "corpus", run, epochs=2, resume=True), progress=False)
    text.write_text("\n".join([*lines, "a new word"]) + "\n")
    with pytest.raises(ValueError, match=r"the words of .* are not those of"):
        train(options(tmp_path / "corpus", run, epochs=2, resume=True), progress=False)


def test_resuming_keeps_the_runs_threads_and_refuses_what_was_typed(tmp_path: Path) -> None:
    run = trained(tmp_path, threads=1)
    torch.set_num_threads(2)
    given = TrainOptions(out=str(run), resume=True)
    given.given = frozenset({"out", "resume"})
    train(given, progress=False)
    assert torch.get_num_threads() == 1
    given.given = frozenset({"out", "resume", "hidden"})  # typed, though it is the default
    with pytest.raises(ValueError, match="--hidden 400 differs from the run's 16"):
        train(given, progress=False)


def test_a_short_validation_text_is_enough(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    (corpus / "valid.txt").write_text("w1 w7\n")
    assert (train(options(corpus, tmp_path / "run", epochs=1), progress=False) / "best.safetensors").exists()


def test_what_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    run = trained(tmp_path, epochs=1)
    (run / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"has thesis\.txt, so --overwrite leaves it alone"):
        trained(tmp_path, epochs=1, overwrite=True)
    (run / "thesis.txt").unlink()
    (run / "data" / "mine.csv").write_text("1,2")
    with pytest.raises(ValueError, match="has data, so --overwrite leaves it alone"):
        trained(tmp_path, epochs=1, overwrite=True)
    assert (run / "data" / "mine.csv").exists()


def test_what_a_kill_left_half_written_is_swept_up(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (run / "last.ckpt.tmp123").write_bytes(b"half")
    train(options(tmp_path / "corpus", run, resume=True), progress=False)
    assert not list(run.glob("*.tmp*"))


def test_killed_after_an_epochs_line_but_before_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a checkpoint at the very end of the epoch, its line in the log must not be there twice."""
    more = {"save_every": 49}
    whole = trained(tmp_path / "whole", **more)
    corpus, epoch = write_corpus(tmp_path / "corpus"), Journal.epoch

    def killing(self: Journal, number: int, *rest: object) -> None:
        epoch(self, number, *rest)
        if number == 2:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "epoch", killing)
        train(options(corpus, tmp_path / "run", **more), progress=False)
    assert_same_run(train(options(corpus, tmp_path / "run", resume=True, **more), progress=False), whole)


def steps_of(tmp_path: Path, **more: object) -> trainer_module.Trainer:
    """A trainer after its first steps."""
    corpus = write_corpus(tmp_path / "corpus")
    given = options(corpus, tmp_path / "run", **more)
    torch.manual_seed(1)
    (tmp_path / "run").mkdir()
    text, parts = prepared(given, tmp_path / "run")
    return trainer_module.Trainer(given, build_task(given, text, parts), tmp_path / "run")


def test_the_gradient_is_clipped(tmp_path: Path) -> None:
    trainer = steps_of(tmp_path, clip=1e-4, optimiser="sgd", lr=1.0, lr_schedule="constant")
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.step(next(trainer.task.batches(0, 0)))
    pairs = zip(trainer.model.parameters(), before, strict=True)
    moved = sum(float((p.detach() - old).square().sum()) for p, old in pairs)
    assert moved**0.5 == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("schedule", ["one-cycle", "plateau", "constant"])
def test_the_learning_rate_follows_its_schedule(schedule: str, tmp_path: Path) -> None:
    trainer = steps_of(tmp_path, lr=0.01, lr_schedule=schedule)
    trainer.valid_losses, trainer.position = [2.0, 2.5, 2.6], {"epoch": 1, "step": 20}
    trainer.step(next(trainer.task.batches(0, 0)))
    share = (49 + 20) / (3 * 49)
    wanted = {"one-cycle": one_cycle(share), "plateau": 1 / 16, "constant": 1.0}[schedule]
    assert trainer.optimiser.param_groups[0]["lr"] == pytest.approx(0.01 * wanted)


def test_bf16_computes_in_bf16(tmp_path: Path) -> None:
    for name, more in (("plain", {}), ("half", {"bf16": True}), ("fused", {"bf16": True, "recurrent_dropout": 0.0})):
        trainer = steps_of(tmp_path / name, dropout=0.0, **more)
        seen = []
        trainer.model.head.register_forward_pre_hook(
            lambda module, arguments, seen=seen: seen.append(torch.is_autocast_enabled("cpu"))
        )
        trainer.step(next(trainer.task.batches(0, 0)))
        assert seen == [name != "plain"]


def test_the_best_weights_are_kept_and_epochs_start_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, states = [], []
    losses = iter([3.0, 2.0, 4.0])

    class Fake:
        tokens = 1

        def __init__(self) -> None:
            self.nll = {"normalised": next(losses)}

        def perplexity(self) -> dict[str, float]:
            return self.nll

    batches_seen = []

    def scores(model: object, batches: object, **_: object) -> Fake:
        batches_seen.append(batches.drop_last)
        return Fake()

    monkeypatch.setattr("ecoc.training.task.evaluate", scores)
    monkeypatch.setattr(trainer_module, "save_weights", lambda *_: saved.append(1))
    step = trainer_module.Trainer.step

    def noting(self: trainer_module.Trainer, batch: object) -> float:
        if self.position["step"] == 0:
            states.append(self.state)
        return step(self, batch)

    monkeypatch.setattr(trainer_module.Trainer, "step", noting)
    trained(tmp_path)
    assert len(saved) == 2 and states == [None, None, None] and batches_seen == [False] * 3


def test_what_was_best_before_a_kill_stays_best(tmp_path: Path) -> None:
    run = trained(tmp_path, epochs=2)
    checkpoint = torch.load(run / "last.ckpt", weights_only=True)
    assert len(checkpoint["valid_losses"]) == 2
    trainer = steps_of(tmp_path / "other", epochs=2)
    trainer.restore(checkpoint)
    assert trainer.valid_losses == checkpoint["valid_losses"]
