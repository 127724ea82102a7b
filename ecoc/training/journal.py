"""What is written and shown while a model trains: a line of JSON an epoch, a progress bar, TensorBoard if asked for."""

import json
import math
import platform
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ecoc import __version__
from ecoc.feeding import Policy
from ecoc.options import RunOptions
from ecoc.training.checkpoint import written_whole

NAME = "log.jsonl"
EVERY = 100  # steps between two lines of the log


class Journal:
    """Log and progress bar of one run.

    Args:
        folder: The run's folder.
        steps: Steps in an epoch.
        options: The run's options.
        loss_is_nll: Whether the training loss is -log p of the target, so that it says a perplexity.
        enabled: Write at all (the first process does).
        progress: Show a bar.
    """

    def __init__(
        self, folder: Path, steps: int, options: RunOptions, loss_is_nll: bool, enabled: bool, progress: bool
    ) -> None:
        self.path = folder / NAME
        self.steps, self.options, self.loss_is_nll, self.enabled = steps, options, loss_is_nll, enabled
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), disable=not progress)
        self.task = self.bar.add_task("training", total=1.0, numbers="")
        self.board: Any = None
        if options.tensorboard and enabled:
            self.board = _tensorboard()
        self.recent: list[float] = []
        self._tokens, self._since = 0, time.perf_counter()

    def __enter__(self) -> "Journal":
        if self.board is not None:
            self.board = self.board(str(self.path.parent / "tensorboard"))
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.bar.update(self.task, completed=1.0)
        self.bar.__exit__(kind, error, trace)
        if self.board is not None:
            self.board.close()

    def start(self, seconds: dict[str, float]) -> None:
        """Before the first step: begin the log with what it is trained, and how long what came before took."""
        if self.enabled:
            self.path.unlink(missing_ok=True)
        versions = {"python": platform.python_version(), "torch": torch.__version__, "ecoc": __version__}
        threads = torch.get_num_threads()
        facts = {"seed": self.options.seed, "threads": threads, "steps_per_epoch": self.steps}
        self._write({"event": "start", "step": 0} | facts | versions | seconds)

    def step(self, step: int, loss: float, tokens: int, share: float) -> None:
        """After every step; `share` of the whole training is done."""
        self.recent.append(loss)
        self._tokens += tokens
        if step % 10 and len(self.recent) < EVERY:
            return
        mean = sum(self.recent) / len(self.recent)
        rate = self._tokens / max(1e-9, time.perf_counter() - self._since)
        perplexity = f", training perplexity {math.exp(min(20, mean)):,.0f}" if self.loss_is_nll else ""
        epoch = 1 + (step - 1) // self.steps
        self.bar.update(
            self.task,
            description=f"epoch {epoch}/{self.options.epochs}",
            completed=share,
            numbers=f"loss {mean:.3f}{perplexity}, {rate:,.0f} tokens/s",
        )
        if step % EVERY == 0:
            self._write({"event": "step", "step": step, "loss": mean, "tokens_per_second": round(rate)})
            self.recent, self._tokens, self._since = [], 0, time.perf_counter()

    def note(self, text: str) -> None:
        """Say something that the user should know."""
        if not self.bar.disable:
            self.bar.console.print(f"note: {text}")

    def validating(self) -> None:
        """Before the validation at an epoch's end."""
        self.bar.update(self.task, numbers="validating")

    def epoch(
        self,
        epoch: int,
        step: int,
        sums: dict[str, Any],
        perplexity: dict[str, float],
        lr: float,
        feeding: Policy | None = None,
    ) -> None:
        """After every epoch."""
        record = {
            "event": "epoch",
            "epoch": epoch,
            "step": step,
            "train_loss": sums["loss"] / max(1, sums["steps"]),
            "valid_perplexity": perplexity,
            "lr": lr,
            "seconds": round(sums["seconds"], 2),
            "cpu_seconds": round(sums["cpu_seconds"], 2),
            "validation_seconds": round(sums["validation_seconds"], 2),
            "validation_cpu_seconds": round(sums["validation_cpu_seconds"], 2),
            "peak_memory_bytes": sums["peak_memory_bytes"],
        }
        if feeding is not None:
            record["mixing"] = feeding.probability
            record["changed_inputs"] = sums["changed"] / max(1, sums["fed"])
            if feeding.uses_temperature:
                record["temperature"] = float(torch.as_tensor(feeding.temperature).detach())
        self._write(record)
        self._tokens, self._since = 0, time.perf_counter()  # the rate is that of steps, not of validation
        modes = ", ".join(f"{value:.2f} ({mode})" for mode, value in perplexity.items())
        if not self.bar.disable:
            self.bar.console.print(
                f"epoch {epoch}: train loss {record['train_loss']:.3f}, valid perplexity {modes}, "
                f"{record['cpu_seconds']:.0f} CPU seconds"
            )

    def rewind(self, epoch: int, step: int) -> None:
        """Forget what was written after `step` in all and `epoch` whole ones: those steps are taken again."""
        if self.enabled and self.path.exists():
            kept = [r for r in read_log(self.path.parent) if r["step"] <= step and r.get("epoch", 0) <= epoch]
            with written_whole(self.path) as temporary:
                temporary.write_text("".join(f"{json.dumps(record)}\n" for record in kept))

    def _write(self, record: dict[str, Any]) -> None:
        if not self.enabled:
            return
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self.board is not None:
            for name, value in record.items():
                for part, number in (value if isinstance(value, dict) else {"": value}).items():
                    if isinstance(number, float):
                        label = "/".join(filter(None, (record["event"], name, part)))
                        self.board.add_scalar(label, number, record["step"])


def _tensorboard() -> Any:
    """TensorBoard's writer; its folder is made when the run has its own."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError('--tensorboard needs the package: pip install "ecoc[tensorboard]"') from error
    return SummaryWriter


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Lines of a run's log; one that a kill cut off, or that is no record, is left out."""
    path = folder / NAME
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int) and "event" in record:
            records.append(record)
    return records
