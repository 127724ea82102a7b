"""Training: steps, epochs, checkpoints; stops and goes on at any step with the same result."""

import math
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ecoc.heads import ECOC, Hybrid
from ecoc.options import RunOptions
from ecoc.training import run as runs
from ecoc.training.checkpoint import save_checkpoint, save_weights
from ecoc.training.journal import Journal
from ecoc.training.schedule import one_cycle, plateau
from ecoc.training.task import Task

NOT_FINITE = "gradient not finite"


class Stopped(Exception):  # noqa: N818 (not an error)
    """Training was asked to stop; it has saved what it needs to go on."""


class Trainer:
    """One run.

    Args:
        options: How to train.
        task: What to train, and on what.
        folder: Where the run's files go.
        shard: Number of this process, and how many there are.
        progress: Show a progress bar.
    """

    def __init__(
        self,
        options: RunOptions,
        task: Task,
        folder: Path,
        shard: tuple[int, int] = (0, 1),
        progress: bool = False,
    ) -> None:
        self.options, self.task, self.model, self.folder = options, task, task.model, folder
        self.shard = shard
        self.model.lstm.shard = shard
        if self.model.feeding is not None:
            self.model.feeding.rank = shard[0]
        self.wrapped: nn.Module = self.model if shard[1] == 1 else DistributedDataParallel(self.model)
        self.optimiser = _optimiser(options, self.model)
        self.state: Any = None  # the model's, from one batch to the next
        self.position = {"epoch": 0, "step": 0}  # epochs done, and steps done in this one
        self.sums = {"loss": 0.0, "steps": 0, "seconds": 0.0, "cpu_seconds": 0.0, "peak_memory_bytes": 0}
        self.sums |= {"fed": 0, "changed": 0, "validation_seconds": 0.0, "validation_cpu_seconds": 0.0}
        self._everyones_seconds = 0.0  # of several processes, the first one's clock counts
        self.valid_losses: list[float] = []
        self.asked_to_stop = self.cut_short = False  # the latter inside an epoch, by time
        self._clock = time.perf_counter(), time.process_time()
        first = shard[0] == 0
        steps, loss_is_nll = len(task), self.model.head.loss_is_nll
        self.journal = Journal(folder, steps, options, loss_is_nll, enabled=first, progress=progress and first)

    def run(self) -> None:
        """Train to the end."""
        self._clock = time.perf_counter(), time.process_time()
        with self.journal, _interrupts(self):
            while self.position["epoch"] < self.options.epochs and not self._why_to_end():
                self._epoch()
            self._save()
            feeding, epochs = self.model.feeding, self.position["epoch"]
            if epochs < self.options.epochs or self.cut_short:
                self.journal.note(f"ended in epoch {epochs} of {self.options.epochs}: {self._why_to_end()}")
            if feeding is not None and not any(feeding.schedule(epoch) for epoch in range(epochs)):
                self.journal.note(
                    f"--feeding {feeding.name} has fed targets alone: training ended before --schedule "
                    f"{feeding.schedule.name} began; give it more time, or use --schedule constant"
                )

    def _why_to_end(self) -> str:
        """Why training ends before its last epoch; nothing if it goes on."""
        if self._elapsed() >= (self.options.max_seconds or math.inf):
            return f"the {self.options.max_seconds:g} seconds of --max-seconds are over"
        best = min(range(len(self.valid_losses)), key=self.valid_losses.__getitem__, default=0)
        if self.options.patience and len(self.valid_losses) - 1 - best >= self.options.patience:
            return f"validation was best in epoch {best + 1}, and --patience {self.options.patience} is over"
        return ""

    def _epoch(self) -> None:
        self.model.train()
        if self.model.feeding is not None:
            self.model.feeding.at_epoch(self.position["epoch"])
        for batch in self.task.batches(self.position["epoch"], self.position["step"]):
            loss = self.step(batch)
            self.position["step"] += 1
            self.sums["loss"] += loss
            self.sums["steps"] += 1
            if self.model.feeding is not None:
                fed, changed = self.model.feeding.take_counts()
                self.sums["fed"] += fed
                self.sums["changed"] += changed
            self.journal.step(self._steps_done(), loss, self.task.tokens(batch) * self.shard[1], self._share())
            if self.asked_to_stop:
                self._save()
                raise Stopped
            if self._elapsed() >= (self.options.max_seconds or math.inf):
                break
            if self._steps_done() % self.options.save_every == 0:
                self._save()
        self.cut_short = self.position["step"] < len(self.task)
        self._finish_epoch()

    def step(self, batch: Any) -> float:
        """One step of the optimiser on one batch; returns the loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.learning_rate * self._factor()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.options.bf16):
            loss, self.state = self.task.loss(self.wrapped, batch, self.state)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        if not math.isfinite(float(norm)):
            raise ValueError(
                f"{NOT_FINITE} at step {self._steps_done()}: lower --lr (now {self.options.learning_rate})"
            )
        self.optimiser.step()
        return self._agreed(loss.detach())

    def _agreed(self, loss: torch.Tensor) -> float:
        """The loss over the rows of all processes; they also agree on the time, and on whether to stop."""
        rank, world = self.shard
        if world == 1:
            return float(loss)
        seconds = self._own_seconds() if rank == 0 else 0.0
        shared = torch.tensor([float(loss), seconds, float(self.asked_to_stop)], dtype=torch.float64)
        torch.distributed.all_reduce(shared)
        self._everyones_seconds = float(shared[1])
        self.asked_to_stop = bool(shared[2])
        return float(shared[0]) / world

    def _factor(self) -> float:
        if self.options.lr_schedule == "one-cycle":
            return one_cycle(self._share())
        return plateau(self.valid_losses) if self.options.lr_schedule == "plateau" else 1.0

    def _finish_epoch(self) -> None:
        lr = self.options.learning_rate * self._factor()
        steps = self._steps_done()
        self.position = {"epoch": self.position["epoch"] + 1, "step": 0}
        self.state = None
        self._tick()
        before = dict(self.sums)
        self.journal.validating()
        if isinstance(self.model.head, ECOC | Hybrid) and self.options.objective == "bits":
            self._calibrate(self.model.head)
        scores = self.task.validate()
        loss = scores.nll["normalised"] / scores.tokens
        if self.shard[0] == 0 and loss < min(self.valid_losses, default=math.inf):
            save_weights(self.model, self.folder / runs.BEST, self.task.vocabulary.fingerprint)
        self.valid_losses.append(loss)
        self._tick()
        for name in ("seconds", "cpu_seconds"):
            self.sums[f"validation_{name}"] += self.sums[name] - before[name]
        self.journal.epoch(self.position["epoch"], steps, self.sums, scores.perplexity(), lr, self.model.feeding)
        self.sums |= {"loss": 0.0, "steps": 0, "fed": 0, "changed": 0}
        self._save()

    def _calibrate(self, head: ECOC | Hybrid) -> None:
        """Fit the two factors that turn bits into probabilities, on held-out text."""
        self.model.eval()
        with torch.no_grad():
            hidden, targets = self.task.held_out()
        head.calibrate(hidden, targets)

    def _share(self) -> float:
        """How much of the training is done, by steps or by time."""
        share = self._steps_done() / (self.options.epochs * len(self.task))
        return share if self.options.max_seconds is None else max(share, self._elapsed() / self.options.max_seconds)

    def _steps_done(self) -> int:
        return self.position["epoch"] * len(self.task) + self.position["step"]

    def _elapsed(self) -> float:
        """Seconds of training, without validation."""
        return self._own_seconds() if self.shard[1] == 1 else self._everyones_seconds

    def _own_seconds(self) -> float:
        return self.sums["seconds"] - self.sums["validation_seconds"] + time.perf_counter() - self._clock[0]

    def _tick(self) -> None:
        """Add the time since the last look to the sums."""
        now = time.perf_counter(), time.process_time()
        self.sums["seconds"] += now[0] - self._clock[0]
        self.sums["cpu_seconds"] += now[1] - self._clock[1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        self.sums["peak_memory_bytes"] = max(self.sums["peak_memory_bytes"], peak)
        self._clock = now

    def _save(self) -> None:
        self._tick()
        if self.shard[0] != 0:
            return
        save_checkpoint(
            {
                "model": self.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "random": torch.get_rng_state(),
                "state": self.state,
                "position": self.position,
                "sums": self.sums,
                "valid_losses": self.valid_losses,
                "recent": self.journal.recent,
                "world": self.shard[1],
                "data": self.task.digest(),
            },
            self.folder / runs.LAST,
        )

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go back to where a checkpoint was written."""
        if checkpoint["world"] != self.shard[1]:
            raise ValueError(f"--resume needs {checkpoint['world']} processes, as before, got {self.shard[1]}")
        try:
            self.model.load_state_dict(checkpoint["model"])
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"{self.folder / runs.LAST} does not fit the run ({reason}): is it another's?") from error
        if checkpoint["data"] != self.task.digest():
            raise ValueError(f"the text of {self.options.source} has changed since {self.folder}: start another run")
        self.optimiser.load_state_dict(checkpoint["optimiser"])
        torch.set_rng_state(checkpoint["random"])
        self.state = checkpoint["state"]
        self.position, self.sums = checkpoint["position"], checkpoint["sums"]
        self.valid_losses = checkpoint["valid_losses"]
        self.journal.recent = checkpoint["recent"]
        self._everyones_seconds = self._own_seconds()
        self.journal.rewind(self.position["epoch"], self._steps_done())


def _optimiser(options: RunOptions, model: nn.Module) -> torch.optim.Optimizer:
    if options.optimiser == "sgd":
        return torch.optim.SGD(model.parameters(), options.learning_rate, weight_decay=options.weight_decay)
    return torch.optim.AdamW(
        model.parameters(), options.learning_rate, weight_decay=options.weight_decay, fused=True, betas=(0.9, 0.99)
    )


@contextmanager
def _interrupts(trainer: Trainer) -> Iterator[None]:
    """While the block runs, an interrupt asks the trainer to stop after its step; a second one ends it at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if trainer.asked_to_stop:
            raise KeyboardInterrupt
        trainer.asked_to_stop = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
