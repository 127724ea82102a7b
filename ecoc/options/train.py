"""Options of ``ecoc train``."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ecoc.options.checks import in_range, one_of
from ecoc.options.model import ModelOptions


@dataclass
class TrainOptions(ModelOptions):
    """Train a language model.

    Args:
        corpus: builtin, ptb, wikitext-2, wikitext-103, or a folder (or file) with your own text.
        out: Folder of the run; it holds everything that eval, generate and suggest need.
        data_dir: Where the files of ptb, wikitext-2 and wikitext-103 are.
        tie: Share the weight of the embedding with the head.
        batch: Sequences in a batch.
        bptt: Steps in a sequence.
        tokeniser: whitespace or simple (lower case, punctuation apart).
        min_count: Words seen less often become <unk>.
        max_size: Most words in the vocabulary.
    """

    command: ClassVar[str] = "train"
    corpus: str = "builtin"
    out: str = "runs/lm"
    data_dir: str | None = None
    tie: bool = False
    batch: int = 20
    bptt: int = 35
    tokeniser: str | None = None
    min_count: int | None = None
    max_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("tokeniser", self.tokeniser, (None, "whitespace", "simple"))
        in_range(self, 1, math.inf, "bptt")
        if self.bptt == 1 and self.feeding != "teacher":
            raise ValueError(f"--feeding {self.feeding} begins at the second step of a sequence: use --bptt 2 or more")
        in_range(self, 1, 1_000_000, "min_count", "max_size")

    @property
    def source(self) -> str:
        """Where the training data comes from, for messages."""
        return self.corpus
