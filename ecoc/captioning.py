"""A trained captioner in use: ``TrainedCaptioner("runs/captions").describe(["photo.jpg"])``."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ecoc.codes.vectors import progress_bar
from ecoc.data import CaptionBatches, CaptionedImage
from ecoc.data.captions import Skipped
from ecoc.data.extract import Extractor
from ecoc.data.pictures import SIDE, check_pillow, find_images, read_picture
from ecoc.decode.beam import search
from ecoc.metrics import evaluate_captions, meteor, score_captions
from ecoc.models import Captioner
from ecoc.options import CaptionTrainOptions
from ecoc.trained import TrainedRun
from ecoc.training import run as runs
from ecoc.training.checkpoint import written_whole
from ecoc.training.launch import caption_data

LONGEST = 30  # words of a caption; hardly any of COCO's has more
_PICTURES = 16  # described at once


class Sentence(NamedTuple):
    """A caption, and the log probability that the model gives it (divided as the search was asked to)."""

    words: list[str]
    score: float

    @property
    def text(self) -> str:
        return " ".join(self.words)


class Described(NamedTuple):
    """A picture ``(height, width, 3)`` or its file, and sentences about it, best first."""

    name: str
    picture: Path | np.ndarray
    sentences: list[Sentence]
    references: list[str]


class TrainedCaptioner(TrainedRun[Captioner, CaptionTrainOptions]):
    """What the folder of a captioner's run can do.

    Args:
        folder: The run's folder.

    Example:
        >>> captioner = ecoc.load("runs/captions")
        >>> described, skipped = captioner.describe(["photo.jpg"])
        >>> described[0].sentences[0].text
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(Path(folder), *runs.load_captioner(Path(folder)))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "TrainedCaptioner":
        """Read what :meth:`save_pretrained` wrote, or any run; the same as ``ecoc.load``."""
        return cls(folder)

    @torch.no_grad()
    def captions(self, features: Tensor, beam: int = 5, length_power: float = 0.0) -> list[list[Sentence]]:
        """The best sentences for images with these features ``(batch, ...)``, as many as the beam is wide."""
        end = self.vocabulary.eos
        start = torch.full((len(features),), end)
        hidden, state = self.model.advance(start, self.model.begin(features))
        banned = torch.tensor([self.vocabulary.unk])
        found = search(self.model, hidden, state, LONGEST, beam, end, length_power, banned)
        return [[Sentence(self._words(one.tokens), one.score) for one in beams] for beams in found]

    def _words(self, ids: list[int]) -> list[str]:
        return self.vocabulary.words_of([i for i in ids if i != self.vocabulary.eos])

    def describe(
        self,
        images: Sequence[str] = (),
        *,
        beam: int = 5,
        sentences: int = 3,
        length_power: float = 0.0,
        progress: bool = False,
    ) -> tuple[list[Described], list[Skipped]]:
        """Sentences about pictures, and the pictures that could not be read; without `images` about built-in scenes.

        Args:
            images: Files, or folders of them.
            beam, length_power: Of the search.
            sentences: How many a picture.
            progress: Show a bar.
        """
        if not images:
            return self._describe_scenes(beam, sentences, length_power), []
        check_pillow()
        paths, skipped, result = find_images(images), list[Skipped](), list[Described]()
        take = self._extractor()
        with progress_bar(progress) as bar:
            task = bar.add_task("describe", total=len(paths))
            for part in (paths[start : start + _PICTURES] for start in range(0, len(paths), _PICTURES)):
                read = dict(self._readable(part, skipped))
                if read:
                    found = self.captions(take(np.stack([*read.values()])), beam, length_power)
                    result += [
                        Described(str(path), path, best[:sentences], []) for path, best in zip(read, found, strict=True)
                    ]
                bar.advance(task, len(part))
        return result, skipped

    def _readable(self, paths: Sequence[Path], skipped: list[Skipped]) -> Iterator[tuple[Path, np.ndarray]]:
        side = self._side()
        for path in paths:
            try:
                yield path, read_picture(path, side)
            except ValueError as error:
                skipped.append(Skipped(str(path), str(error)))

    def _side(self) -> int:
        assert self.parts.features is not None
        return self.parts.features[0] if self.options.captions is None else SIDE

    def _extractor(self) -> "_Pictures | Extractor":
        """What makes of pictures the features that the captioner was trained on."""
        shape = self.parts.features
        assert shape is not None
        if self.options.captions is None:
            return _Pictures()
        extractor = Extractor(grid=len(shape) == 2, projection=self.parts.projection)
        if extractor.shape != shape:
            raise ValueError(
                f"{self.folder} was trained on features of shape {shape}, EfficientNet-Lite0 gives {extractor.shape} "
                "here: train on features that `ecoc features` made, or give `ecoc caption train` their --projection"
            )
        return extractor

    def _describe_scenes(self, beam: int, sentences: int, length_power: float) -> list[Described]:
        if self.options.captions is not None:
            raise ValueError(f"{self.folder} was trained on photographs: give some to describe")
        data = caption_data(self.options)
        images, features = next(data.evaluation("test", _PICTURES))
        return [
            Described(
                f"test scene {image.id}",
                (picture.numpy() * 255).round().astype(np.uint8),
                best[:sentences],
                [" ".join(caption) for caption in image.captions],
            )
            for image, picture, best in zip(images, features, self.captions(features, beam, length_power), strict=True)
        ]

    def evaluate(
        self,
        split: str = "test",
        *,
        beam: int = 5,
        length_power: float = 0.0,
        batch: int = 100,
        captions: str | None = None,
        features: str | None = None,
        out: str | None = None,
        progress: bool = False,
    ) -> tuple[dict[str, object], list[Skipped]]:
        """Scores of the captions that the model finds for a split, with the run's sizes and training time; and the
        images that were left out of it.

        Args:
            split: ``train``, ``val`` or ``test``.
            beam, length_power: Of the search.
            batch: Images searched at once.
            captions, features: Files, if they have moved since training.
            out: Also write the captions here, as JSON that COCO's tools read.
            progress: Show bars.
        """
        if self.options.captions is None and (captions is not None or features is not None):
            raise ValueError(f"{self.folder} was trained on the built-in scenes: leave out --captions and --features")
        moved = replace(
            self.options, captions=captions or self.options.captions, features=features or self.options.features
        )
        if out is not None and Path(out).is_dir():
            raise ValueError(f"--out {out} is a folder: give a file to write the captions to, such as captions.json")
        data = caption_data(moved, progress, self.vocabulary)
        if data.features.shape != self.parts.features:
            raise ValueError(
                f"the features have shape {data.features.shape}, {self.folder} was trained on {self.parts.features}: "
                "give those that it was trained on"
            )
        images = data.split(split)
        found: list[list[str]] = []
        with progress_bar(progress) as bar:
            task = bar.add_task(f"beam search, width {beam}", total=len(images))
            for part, values in data.evaluation(split, batch):
                found += [best[0].words for best in self.captions(values, beam, length_power)]
                bar.advance(task, len(part))
        references = [image.captions for image in images]
        result: dict[str, object] = {"split": split, "images": len(images), "beam": beam, "length_power": length_power}
        result |= score_captions(found, references, progress)
        result["meteor"], why_not = meteor(found, references, progress)
        if why_not:
            result["meteor_unavailable"] = why_not
        result["words"] = sum(map(len, found)) / len(found)
        batches = CaptionBatches(data, batch, split=split, shuffle=False)
        result["perplexity"] = evaluate_captions(self.model, batches, progress).perplexity()
        if out is not None:
            _write_results(Path(out), images, found)
        missing = [one for one in data.skipped if one.split in ("", split)]
        result["left_out"] = len(missing)
        return result | self.sizes(), missing


class _Pictures:
    """Pictures as they are, from 0 to 1."""

    def __call__(self, pictures: np.ndarray) -> Tensor:
        return torch.from_numpy(pictures).float() / 255


def _write_results(path: Path, images: Sequence[CaptionedImage], captions: Sequence[Sequence[str]]) -> None:
    rows = [{"image_id": image.id, "caption": " ".join(words)} for image, words in zip(images, captions, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(rows) + "\n", encoding="utf-8")
