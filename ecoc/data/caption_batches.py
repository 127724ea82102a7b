"""Batches of pairs of an image and a caption.

>>> for rows, features, inputs, targets in CaptionBatches(data, 100).starting_at(0, epoch=3): ...
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ecoc.data.captions import CaptionData

IGNORED = -100  # the target after a caption's end, which cross entropy leaves out
_POOL = 100  # batches among which captions are sorted by length: 2 % of padding on COCO with batches of 100


class CaptionBatch(NamedTuple):
    """Pairs of an image and one of its captions.

    Shapes: ``rows (B,)`` of the features, ``features (B, ...)``, ``inputs (B, T)`` that begin with ``<eos>`` and are
    filled up with it, ``targets (B, T)`` one word ahead, with ``<eos>`` at the end and -100 after it.
    """

    rows: Tensor
    features: Tensor
    inputs: Tensor
    targets: Tensor


class CaptionBatches:
    """Batches of all captions of a split, each caption once an epoch with its image, of similar length within a batch.

    The order depends on nothing but the seed and the number of the epoch: a run goes on at any batch of any epoch.

    Args:
        data: The images.
        batch_size: Captions of a batch over all processes; the last of an epoch's batches to be made has fewer.
        split: Which images.
        shuffle: Another order in each epoch; without, by length.
        seed: For the order.
        shard: ``(rank, world)``: yield only this process' share of each batch. A batch of fewer captions than
            processes is left out.
        device: Where the batches go.
    """

    def __init__(
        self,
        data: CaptionData,
        batch_size: int,
        *,
        split: str = "train",
        shuffle: bool = True,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        device: torch.device | str | None = None,
    ) -> None:
        rank, world = shard
        if not 0 <= rank < world:
            raise ValueError(f"shard must be (rank, world) with rank from 0 to world - 1, got {shard}")
        if batch_size < 1 or batch_size % world:
            raise ValueError(f"batch_size must be at least 1 and divisible by the {world} processes, got {batch_size}")
        self.data, self.batch_size, self.shuffle, self.seed = data, batch_size, shuffle, seed
        self.shard, self.device = shard, device
        pairs = [(data.features.rows[image.id], caption) for image in data.split(split) for caption in image.captions]
        self._rows = np.array([row for row, _ in pairs], np.int64)
        self._lengths = np.array([len(caption) for _, caption in pairs], np.int64)
        self._starts = self._lengths.cumsum() - self._lengths
        words = data.vocabulary.encode_words(word for _, caption in pairs for word in caption)
        self._words = np.array([*words, data.vocabulary.eos], np.int32)  # never empty

    def __len__(self) -> int:
        whole, rest = divmod(len(self._rows), self.batch_size)
        return whole + (rest >= self.shard[1])

    def starting_at(self, step: int, epoch: int = 0) -> Iterator[CaptionBatch]:
        """The batches of an epoch from number ``step`` on, as if those before had been taken."""
        if not 0 <= step <= len(self):
            raise ValueError(f"step must be 0 to {len(self)}, the number of batches, got {step}")
        if epoch < 0:
            raise ValueError(f"epoch must be 0 or more, got {epoch}")
        return (self._batch(members) for members in self._order(epoch)[step:])

    def words(self) -> np.ndarray:
        """All captions as one stream of ids, each with ``<eos>`` after it."""
        return np.insert(self._words[:-1], self._starts + self._lengths, self.data.vocabulary.eos)

    def digest(self) -> int:
        """A sum over the captions, the images they belong to, and these images' features."""
        some = self.data.features.take(self._rows[:: max(1, len(self._rows) // 100)])
        result = zlib.crc32(self._rows.tobytes(), zlib.crc32(self._words.tobytes()))
        return zlib.crc32(self._lengths.tobytes(), zlib.crc32(some.numpy().tobytes(), result))

    def _order(self, epoch: int) -> list[np.ndarray]:
        """The captions of each batch of an epoch."""
        size, number = self.batch_size, len(self._rows)
        if not self.shuffle:
            order = self._lengths.argsort(kind="stable")
            return [order[start : start + size] for start in range(0, number, size)][: len(self)]
        mixed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1)[0])
        generator = torch.Generator().manual_seed(mixed)
        order = torch.randperm(number, generator=generator).numpy()
        batches = []
        for pool in np.split(order, range(_POOL * size, number, _POOL * size)):
            pool = pool[self._lengths[pool].argsort(kind="stable")]
            batches += np.split(pool, range(size, len(pool), size))
        batches = batches[: len(self)]
        return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]

    def _batch(self, members: np.ndarray) -> CaptionBatch:
        eos, (rank, world) = self.data.vocabulary.eos, self.shard
        steps = np.arange(self._lengths[members].max() + 1)  # the same in all processes
        members = members[rank::world]
        lengths = self._lengths[members][:, None]
        places = np.minimum(self._starts[members][:, None] + steps, len(self._words) - 1)
        words = np.where(steps < lengths, self._words[places], eos).astype(np.int64)  # [B, T]
        targets = torch.from_numpy(np.where(steps <= lengths, words, IGNORED))
        inputs = torch.from_numpy(np.concatenate([np.full((len(words), 1), eos), words[:, :-1]], 1))
        rows = self._rows[members]
        parts = (torch.from_numpy(rows), self.data.features.take(rows), inputs, targets)
        return CaptionBatch(*(part.to(self.device) for part in parts))
