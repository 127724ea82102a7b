"""Captioned images: Karpathy's JSON, features by image id, and batches of pairs of an image and a caption.

>>> data = open_captions("dataset_coco.json", "features.npz")
>>> data
CaptionData(dataset_coco: 3692 words, 29487 + 4392 + 4407 images, features (512,))
>>> for rows, features, inputs, targets in CaptionBatches(data, 100).starting_at(0, epoch=3): ...

Features stay as they are stored, on disk where the format allows it (``.npy``, HDF5), and become float32 by the batch.
"""

import gzip
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from ecoc.codes.vectors import progress_bar
from ecoc.data.features import DAMAGED, ID_NAMES, Rows, broken_rows, open_features
from ecoc.data.vocabulary import EOS, PathLike, Vocabulary

ImageId: TypeAlias = int | str

SPLITS = ("train", "val", "test")
IGNORED = -100  # the target after a caption's end, which cross entropy leaves out

_SPLIT_OF = {"train": "train", "restval": "train", "val": "val", "test": "test"}
_POOL = 100  # batches among which captions are sorted by length: 2 % of padding on COCO with batches of 100


@dataclass(frozen=True)
class CaptionedImage:
    """An image and what people said about it.

    Attributes:
        id: ``cocoid``, ``imgid`` or ``filename``, the first of them that the file has.
        filename: As in the file; empty if it has none.
        split: As in the file: ``train``, ``restval``, ``val`` or ``test``.
        captions: The tokens of each caption.
    """

    id: ImageId
    filename: str
    split: str
    captions: list[list[str]]


class Skipped(NamedTuple):
    """An image that was left out, why, and of which split it was if that is known."""

    id: ImageId
    reason: str
    split: str = ""


class Features:
    """Features of images, looked up by row or by image id.

    Args:
        array: Vectors ``(N, d)``, grids ``(N, cells, d)`` or pictures ``(N, height, width, 3)`` uint8.
        rows: The row of each image id.
    """

    def __init__(self, array: Rows, rows: Mapping[ImageId, int]) -> None:
        self.array, self.rows = array, rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: ``(d,)``, ``(cells, d)`` or ``(height, width, 3)``."""
        return tuple(self.array.shape[1:])

    def take(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """The features ``(B, ...)`` of rows as float32; pictures from 0 to 1."""
        rows = np.asarray(rows, dtype=np.int64)
        found = np.asarray(self.array[rows])
        values = torch.from_numpy(found.astype(np.float32))  # [B, ...]
        if found.dtype == np.uint8:
            return values / 255
        if not torch.isfinite(values).all():
            row = int(rows[int((~torch.isfinite(values)).flatten(1).any(1).nonzero()[0])])
            image = next((one for one, place in self.rows.items() if place == row), "?")
            raise ValueError(f"the features of image {image} (row {row}) are not finite; compute them again")
        return values

    def of(self, images: Sequence[CaptionedImage]) -> Tensor:
        """The features ``(B, ...)`` of images as float32."""
        return self.take([self.rows[image.id] for image in images])


@dataclass(frozen=True, eq=False, repr=False)
class CaptionData:
    """Captioned images with features, and the words of the training captions.

    Attributes:
        name: For people to read.
        images: By split: ``train`` (with ``restval``), ``val``, ``test``.
        vocabulary: The words.
        features: Of every image.
        skipped: The images that were left out.
    """

    name: str
    images: dict[str, list[CaptionedImage]]
    vocabulary: Vocabulary
    features: Features
    skipped: list[Skipped] = field(default_factory=list)

    def split(self, name: str) -> list[CaptionedImage]:
        """The images of ``train``, ``val`` or ``test``; an error if there are none."""
        if name not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {name!r}")
        if not self.images[name]:
            raise ValueError(f"{self.name}: no image of split {name}; give captions and features that have some")
        return self.images[name]

    def evaluation(self, split: str, batch_size: int) -> Iterator[tuple[list[CaptionedImage], Tensor]]:
        """The images of a split in order, with their features ``(B, ...)``."""
        images = self.split(split)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        parts = (images[start : start + batch_size] for start in range(0, len(images), batch_size))
        return ((part, self.features.of(part)) for part in parts)

    def left_out(self) -> str:
        """How many images were left out, why, and which for example; empty if none was."""
        example = {one.reason: one.id for one in reversed(self.skipped)}
        counts = Counter(one.reason for one in self.skipped).most_common()
        reasons = ", ".join(f"{count} {reason} (such as {example[reason]})" for reason, count in counts)
        return f"left out of {self.name}: {reasons}" if reasons else ""

    def __repr__(self) -> str:
        images = " + ".join(str(len(self.images[split])) for split in SPLITS)
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        words = len(self.vocabulary)
        return f"CaptionData({self.name}: {words} words, {images} images, features {self.features.shape}{skipped})"


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


def open_captions(
    captions: PathLike,
    features: PathLike,
    *,
    min_count: int = 5,
    vocabulary: Vocabulary | None = None,
    progress: bool = False,
) -> CaptionData:
    """Open captions in Karpathy's layout (COCO, Flickr8k, Flickr30k) with the features of their images.

    Images without a split, without captions or without features are left out and listed in ``skipped``.

    Args:
        captions: JSON, plain or gzip.
        features: ``.npz`` with ``feats`` and their ids as ``cocoid``, ``imgid``, ``filename`` or ``ids``, or with an
            array an id; HDF5 (``.h5``, ``.hdf5``) with the same; ``.npy`` with rows in the order of the JSON's images.
        min_count: Words that occur less often in the training captions become ``<unk>``.
        vocabulary: Use this one, such as that of a trained model, instead.
        progress: Show bars.

    Raises:
        ValueError: A file is missing, damaged or something else, the two do not fit together, or nothing is left.
    """
    path = Path(captions)
    with progress_bar(progress) as bar:
        entries = _entries(path, bar)
        array, keys = open_features(Path(features), entries, bar)
    broken = broken_rows(array)
    images: dict[str, list[CaptionedImage]] = {split: [] for split in SPLITS}
    rows: dict[ImageId, int] = {}
    skipped = []
    for number, (entry, row) in enumerate(zip(entries, keys, strict=True)):
        image = _image(path, number, entry)
        if image.id in rows:
            raise ValueError(f"{path}: images[{number}] has the id {image.id!r} of another image; give each its own")
        if reason := _lack(image, row) or ("with features that are not finite" if row in broken else ""):
            skipped.append(Skipped(image.id, reason, _SPLIT_OF.get(image.split, "")))
        else:
            rows[image.id] = row
            images[_SPLIT_OF[image.split]].append(image)
    if not rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(one.reason for one in skipped).items())
        raise ValueError(f"{path} with {features}: no image is left ({reasons}); give files that belong together")
    if vocabulary is None:
        vocabulary = caption_vocabulary(images["train"], min_count, path.name)
    return CaptionData(path.name.partition(".json")[0], images, vocabulary, Features(array, rows), skipped)


def caption_vocabulary(images: Sequence[CaptionedImage], min_count: int = 5, name: str = "captions") -> Vocabulary:
    """The words of the captions of images, ``<eos>`` counted once a caption."""
    counter = Counter(word for image in images for caption in image.captions for word in caption)
    counter[EOS] += sum(len(image.captions) for image in images)
    vocabulary = Vocabulary.build(counter, min_count=min_count)
    if len(vocabulary) < 4:
        raise ValueError(
            f"{name}: {len(vocabulary) - 2} word(s) occur {min_count} times or more in the captions of split train; "
            f"give more training captions with features, or a lower min_count"
        )
    return vocabulary


def tokenise_caption(raw: str) -> list[str]:
    """The tokens of a sentence by Karpathy's rule: lower case, no punctuation."""
    return re.sub(r"[^\w\s]|_", "", raw.lower()).split()


def _entries(path: Path, bar: Progress) -> list[dict[str, Any]]:
    """The images of a file as they are in it."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give captions as JSON in Karpathy's layout, plain or gzip")
    try:
        with bar.open(path, "rb", description=f"read {path.name}") as stored:
            content = stored.read()
        content = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    except DAMAGED as error:
        raise ValueError(f"{path}: no JSON, or damaged ({error}); fetch the file again") from error
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path}: no list of 'images' in it; give captions in Karpathy's layout, as dataset_coco.json")
    return entries


def _image(path: Path, number: int, entry: dict[str, Any]) -> CaptionedImage:
    place = f"{path}: images[{number}]"
    found = next((entry[name] for name in ID_NAMES if entry.get(name) is not None), None)
    if not isinstance(found, int | str):
        raise ValueError(f"{place} has no {', '.join(ID_NAMES[:-1])} or {ID_NAMES[-1]}; give each image an id")
    split = str(entry.get("split") or "")
    if split and split not in _SPLIT_OF:
        raise ValueError(f"{place} has the unknown split {split!r}; use {', '.join(_SPLIT_OF)}")
    captions = []
    try:
        for sentence in entry.get("sentences") or ():
            tokens = sentence.get("tokens")
            if not isinstance(tokens, list):
                tokens = tokenise_caption(sentence["raw"] if tokens is None else tokens)
            captions.append([sys.intern(token) for token in tokens])  # few words, many times: one string each
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place} has a sentence without tokens or raw text; give it one of them") from error
    return CaptionedImage(found, str(entry.get("filename", "")), split, [tokens for tokens in captions if tokens])


def _lack(image: CaptionedImage, row: int) -> str:
    """Why an image cannot be used; empty if it can."""
    if not image.split:
        return "without a split"
    if not image.captions:
        return "without captions"
    return "without features" if row < 0 else ""
