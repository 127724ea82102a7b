"""Options of what is done with a run: ``ecoc eval``, ``generate``, ``suggest`` and ``info``."""

import math
from dataclasses import dataclass

from ecoc.options.checks import in_range, one_of


@dataclass
class EvalOptions:
    """Evaluate a run.

    Args:
        run: Folder of the run.
        split: train, valid or test (the default).
        file: Another text file to evaluate on, instead of a split.
        data_dir: Where the corpus is, if it has moved since training.
        free_running: Also say how the loss grows when the model is fed this many of its own outputs.
        sampled: These outputs are drawn from the model, instead of the most probable ones.
        flips: Also say how many words are right when predicted bits are flipped at random (ecoc).
        json: Print one JSON object.
    """

    run: str
    split: str | None = None
    file: str | None = None
    data_dir: str | None = None
    free_running: int | None = None
    sampled: bool = False
    flips: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        one_of("split", self.split, (None, "train", "valid", "test"))
        if self.file is not None and (self.split is not None or self.data_dir is not None):
            raise ValueError("--file stands for the text: leave out --split and --data-dir")
        if self.free_running is not None and self.free_running < 1:
            raise ValueError(f"--free-running must be at least 1, got {self.free_running}")
        if self.sampled and self.free_running is None:
            raise ValueError("--sampled says what --free-running feeds: give that too")


@dataclass
class GenerateOptions:
    """Generate text from a run.

    Args:
        run: Folder of the run.
        prompt: Text to go on from; empty for the beginning of a sentence.
        tokens: How many tokens to add.
        count: How many texts.
        temperature: 0 for the most probable word each time; above 1 for more surprise; 0.8 by default.
        top_k: Choose among the k best words only.
        top_p: Choose among the fewest words that reach this probability.
        beam: Beam search of this width instead; prints its best texts.
        seed: Seed of the random choice.
    """

    run: str
    prompt: str = ""
    tokens: int = 50
    count: int = 1
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    beam: int | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.count < 1:
            raise ValueError("--tokens and --count must be at least 1")
        in_range(self, 0, math.inf, "temperature")
        in_range(self, 1, math.inf, "top_k", "beam")
        in_range(self, 1e-9, 1, "top_p")
        in_range(self, 0, 2**63 - 1, "seed")
        if self.beam is not None and (self.temperature, self.top_k, self.top_p) != (None, None, None):
            raise ValueError("--beam searches and draws nothing: leave out --temperature, --top-k and --top-p")


@dataclass
class SuggestOptions:
    """Suggest the next word.

    Args:
        run: Folder of the run.
        text: What has been typed so far.
        k: How many words.
        json: Print JSON.
    """

    run: str
    text: str
    k: int = 5
    json: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"--k must be at least 1, got {self.k}")


@dataclass
class InfoOptions:
    """Show what is in a run.

    Args:
        run: Folder of the run.
    """

    run: str
