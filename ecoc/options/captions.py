"""Options of ``ecoc caption`` and ``ecoc features``."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ecoc.options.checks import flag, in_range, one_of
from ecoc.options.model import ModelOptions


@dataclass
class CaptionTrainOptions(ModelOptions):
    """Train a captioner on images with sentences; without --captions on the built-in drawn scenes.

    Args:
        captions: Captions and splits as JSON in Karpathy's layout (COCO, Flickr8k, Flickr30k), plain or gzip.
        features: Features of the images by id: .npz, .npy or HDF5; ecoc features makes them.
        projection: The projection that the features went through, .npz; kept in the run, so that describe can take
            photographs.
        out: Folder of the run; it holds everything that describe needs (eval reads captions and features again).
        image: How an image enters the decoder: first (as the first input), state (as the first state), each (added to
            every input) or attention (over a grid of features, in every step).
        min_count: Words seen less often in the training captions become <unk>; 5 by default.
        scenes: How many scenes are drawn when there are no captions; 3000 by default.
        batch: Captions in a batch.
        epochs: Passes over the training captions.
    """

    command: ClassVar[str] = "caption train"
    captions: str | None = None
    features: str | None = None
    projection: str | None = None
    out: str = "runs/captions"
    image: str = "first"
    min_count: int | None = None
    scenes: int | None = None
    batch: int = 100
    epochs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("image", self.image, ("first", "state", "each", "attention"))
        in_range(self, 1, 1_000_000, "min_count")
        in_range(self, 10, 1_000_000, "scenes")
        if (self.captions is None) != (self.features is None):
            missing = "--features" if self.features is None else "--captions"
            raise ValueError(f"{missing} is missing: captions and features go together; without both, scenes are drawn")
        for name in ("projection", "min_count"):
            if self.captions is None and getattr(self, name) is not None:
                raise ValueError(f"{flag(name)} is for --captions of your own: leave it out")
        if self.captions is not None and self.scenes is not None:
            raise ValueError("--scenes is for the built-in set: leave it out with --captions")

    @property
    def source(self) -> str:
        """Where the training data comes from, for messages."""
        return self.captions or "the built-in scenes"


@dataclass
class CaptionEvalOptions:
    """Evaluate a captioner: its captions for a split, scored against what people said.

    Args:
        run: Folder of the run.
        split: train, val or test.
        beam: Width of the beam search.
        length_power: A caption's score is its log probability over its length to this power; 0 for the plain one.
        batch: Images searched at once.
        captions: Where the captions are, if they have moved since training.
        features: Where the features are, if they have moved since training.
        out: Also write image ids and captions here, as JSON that COCO's own tools read.
        json: Print one JSON object.
    """

    run: str
    split: str = "test"
    beam: int = 5
    length_power: float = 0.0
    batch: int = 100
    captions: str | None = None
    features: str | None = None
    out: str | None = None
    json: bool = False

    def __post_init__(self) -> None:
        one_of("split", self.split, ("train", "val", "test"))
        in_range(self, 1, 1000, "beam")
        in_range(self, 1, math.inf, "batch")
        in_range(self, 0, 10, "length_power")


@dataclass
class DescribeOptions:
    """Say what is on pictures.

    Args:
        run: Folder of the run.
        images: Pictures, or folders of them.
        beam: Width of the beam search.
        sentences: How many sentences a picture, best first; at most the beam's width, 3 by default.
        length_power: A caption's score is its log probability over its length to this power; 0 for the plain one.
        html: Also write a page of the pictures with their sentences here.
        json: Print one JSON object a picture.
    """

    run: str
    images: list[str]
    beam: int = 5
    sentences: int | None = None
    length_power: float = 0.0
    html: str | None = None
    json: bool = False

    def __post_init__(self) -> None:
        in_range(self, 1, 1000, "beam")
        in_range(self, 0, 10, "length_power")
        if self.sentences is None:
            self.sentences = min(3, self.beam)
        if not 1 <= self.sentences <= self.beam:
            raise ValueError(f"--sentences must be from 1 to the beam's width {self.beam}, got {self.sentences}")


@dataclass
class FeaturesOptions:
    """Compute features of pictures with EfficientNet-Lite0, for ecoc caption train.

    Stopped and started again, it goes on where it was.

    Args:
        images: Pictures, or folders of them.
        out: File to write, .npz.
        grid: Keep the grid of 7 x 7 cells, for --image attention, instead of its mean.
        projection: Send features through this projection, .npz with mean, components and scale.
        batch: Pictures computed at once.
        overwrite: Replace a file that exists.
    """

    images: list[str]
    out: str = "features.npz"
    grid: bool = False
    projection: str | None = None
    batch: int = 8
    overwrite: bool = False

    def __post_init__(self) -> None:
        in_range(self, 1, math.inf, "batch")
