"""What is written and shown while a model trains: a line of JSON an epoch, a progress bar, TensorBoard if asked for."""

import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ecoc.options import TrainOptions
from ecoc.training.checkpoint import written_whole

NAME = "log.jsonl"
EVERY = 100  # steps between two lines of the log


class Journal:
    """Log and progress bar of one run.

    Args:
        folder: The run's folder.
        total: Steps in all.
        options: The run's options.
        enabled: Write at all (the first process does).
        progress: Show a bar.
    """

    def __init__(self, folder: Path, total: int, options: TrainOptions, enabled: bool, progress: bool) -> None:
        self.path = folder / NAME
        self.enabled = enabled
        self.options = options
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), disable=not progress)
        self.task = self.bar.add_task("training", total=total, numbers="")
        self.board: Any = None
        if options.tensorboard and enabled:
            self.board = _tensorboard(folder)
        self.recent: list[float] = []
        self._tokens, self._since = 0, time.perf_counter()

    def __enter__(self) -> "Journal":
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.__exit__(kind, error, trace)
        if self.board is not None:
            self.board.close()

    def step(self, step: int, loss: float, tokens: int) -> None:
        """After every step."""
        self.recent.append(loss)
        self._tokens += tokens
        if step % 10 and len(self.recent) < EVERY:
            return
        mean = sum(self.recent) / len(self.recent)
        rate = self._tokens / max(1e-9, time.perf_counter() - self._since)
        shown = f"loss {mean:.3f}, e^loss {math.exp(min(20, mean)):.0f}, {rate:,.0f} tokens/s"
        self.bar.update(self.task, completed=step, numbers=shown)
        if step % EVERY == 0:
            self._write({"event": "step", "step": step, "loss": mean, "tokens_per_second": round(rate)})
            self.recent, self._tokens, self._since = [], 0, time.perf_counter()

    def epoch(self, epoch: int, step: int, sums: dict[str, Any], perplexity: dict[str, float], lr: float) -> None:
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
        }
        self._write(record)
        modes = ", ".join(f"{value:.2f} ({mode})" for mode, value in perplexity.items())
        if not self.bar.disable:
            self.bar.console.print(
                f"epoch {epoch}: train loss {record['train_loss']:.3f}, valid perplexity {modes}, "
                f"{record['cpu_seconds']:.0f} CPU seconds"
            )

    def rewind(self, step: int) -> None:
        """Forget what was written after `step`: those steps are taken again."""
        self.bar.update(self.task, completed=step)
        if self.enabled and self.path.exists():
            kept = [line for line in self.path.read_text().splitlines() if _step_of(line) <= step]
            with written_whole(self.path) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in kept))

    def _write(self, record: dict[str, Any]) -> None:
        if not self.enabled:
            return
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self.board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{record['event']}/{name}", value, record["step"])


def _step_of(line: str) -> float:
    """Step of a line of the log; a line cut off by a kill counts as later than all."""
    try:
        return int(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError):
        return math.inf


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError('--tensorboard needs the package: pip install "ecoc[tensorboard]"') from error
    return SummaryWriter(str(folder / "tensorboard"))
