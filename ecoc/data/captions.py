"""Captioned images: Karpathy's JSON, and features by image id.

>>> data = open_captions("dataset_coco.json", "features.npz")
>>> data
CaptionData(dataset_coco: 3692 words, 29487 + 4392 + 4407 images, features (512,))

Features stay as they are stored, on disk where the format allows it (``.npy``, HDF5), and become float32 by the batch.
"""

import gzip
import json
import re
import sys
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

_SPLIT_OF = {"train": "train", "restval": "train", "val": "val", "test": "test"}


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
