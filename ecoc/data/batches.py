"""Contiguous batches for backpropagation through time.

A stream of N tokens is cut into as many columns as the batch has rows, each a contiguous piece of the text; a batch
holds the next ``steps`` tokens of every column. A row therefore goes on where the same row of the batch before ended,
and a model that keeps its state from one batch to the next reads each column as one long text.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Batch: TypeAlias = tuple[Tensor, Tensor]


class Batches:
    r"""Inputs and targets ``(batch, time)`` of a token stream, the targets one token ahead.

    Every row has :math:`q = \lfloor (N - 1) / B \rfloor` targets. Training drops the other :math:`r < B`. Evaluation
    must not: with ``drop_last=False`` the first r columns are one token longer, and a last batch ``(r, 1)`` holds their
    last tokens, so that every token but the first of the stream is a target exactly once, after all of its column
    before it. That batch has fewer rows than the others, and its rows go on as the *first r rows* of the batch before:
    whoever keeps a state cuts it down to as many rows.

    Args:
        ids: The stream ``(N,)`` of integers; a memory map is read as far as the batches come.
        batch_size: Rows of a batch over all processes, B.
        steps: Tokens of a row in a batch; the last batch of an epoch may have fewer.
        shard: ``(rank, world)``: yield only the rows of this process, ``batch_size // world`` of them. The last
            batch of an evaluation is missing where none of its rows belong to the process.
        device: Where the batches go.
        drop_last: Leave out the tokens that do not make up a whole row of the batch.
    """

    def __init__(
        self,
        ids: np.ndarray | Tensor,
        batch_size: int,
        steps: int,
        *,
        shard: tuple[int, int] = (0, 1),
        device: torch.device | str | None = None,
        drop_last: bool = True,
    ) -> None:
        self.ids = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else ids
        self.batch_size, self.steps, self.device, self.drop_last = batch_size, steps, device, drop_last
        (rank, world), targets = shard, len(self.ids) - 1
        if self.ids.ndim != 1 or not np.issubdtype(self.ids.dtype, np.integer):
            raise ValueError(f"ids must be a stream (N,) of integers, got {self.ids.shape} {self.ids.dtype}")
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        if not 0 <= rank < world:
            raise ValueError(f"shard must be (rank, world) with rank from 0 to world - 1, got {shard}")
        if targets < 1:
            raise ValueError(f"a stream of {len(self.ids)} tokens has nothing to predict: give at least 2")
        if not 1 <= batch_size <= targets:
            raise ValueError(
                f"batch_size must be 1 to {targets} for a stream of {targets + 1} tokens, got {batch_size}"
            )
        if batch_size % world:
            raise ValueError(f"batch_size must be divisible by the {world} processes, got {batch_size}")
        self.length, remainder = divmod(targets, batch_size)
        if drop_last:
            remainder = 0
        rows = np.arange(batch_size).reshape(world, -1)[rank]
        self._starts = rows * self.length + np.minimum(rows, remainder)
        self._longer = int((rows < remainder).sum())  # how many of these rows have one token more

    def __len__(self) -> int:
        return -(-self.length // self.steps) + bool(self._longer)

    def __iter__(self) -> Iterator[Batch]:
        return self.starting_at(0)

    def starting_at(self, step: int) -> Iterator[Batch]:
        """The batches from number ``step`` on, as if those before had been taken; none if it is ``len(self)``."""
        if not 0 <= step <= len(self):
            raise ValueError(f"step must be 0 to {len(self)}, the number of batches, got {step}")
        return (self._batch(number) for number in range(step, len(self)))

    def _batch(self, number: int) -> Batch:
        first = number * self.steps
        if first < self.length:
            starts, last = self._starts, min(first + self.steps, self.length)
        else:
            starts, first, last = self._starts[: self._longer], self.length, self.length + 1
        places = starts[:, None] + np.arange(first, last + 1)
        block = torch.from_numpy(self.ids[places].astype(np.int64)).to(self.device)
        return block[:, :-1].contiguous(), block[:, 1:].contiguous()

    def __repr__(self) -> str:
        rows = len(self._starts)
        return f"Batches({len(self)} of {rows} x {self.steps}, batch_size={self.batch_size}, {len(self.ids)} tokens)"
