"""A trained language model in use: ``ecoc.load(run).suggest("...")``."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ecoc.data import Batches, encode_file, open_corpus
from ecoc.decode import Sampling, beam_search, generate
from ecoc.metrics import bit_flips, evaluate, free_running
from ecoc.models import LanguageModel
from ecoc.options import TrainOptions
from ecoc.trained import TrainedRun
from ecoc.training import run as runs

_BATCH = 10  # columns that a text is cut into for scoring
_FREE_ROWS = 50  # columns for feeding its own outputs: a step costs the same for all of them
_FREE_BLOCKS = 10  # blocks of a column at least, so that most begin with text behind them


class TrainedModel(TrainedRun[LanguageModel, TrainOptions]):
    """What the folder of a language model's run can do.

    Args:
        folder: The run's folder.

    Example:
        >>> model = ecoc.load("runs/lm")
        >>> model.suggest("the file is", 3)
        >>> model.generate("the file is", tokens=20)
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(Path(folder), *runs.load_model(Path(folder)))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "TrainedModel":
        """Read what :meth:`save_pretrained` wrote, or any run; the same as ``ecoc.load``."""
        return cls(folder)

    def suggest(self, text: str, k: int = 5) -> list[tuple[str, float]]:
        """The k most probable next words after `text` with their probabilities; ``<unk>`` is not suggested."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        with torch.no_grad():
            hidden, _ = self.model.hidden(self._prompt(text))
            size = self.model.head.vocab_size
            log_probs, ids = self.model.head.topk(hidden[0, -1], min(k + 1, size))
        pairs = zip(self.vocabulary.words_of(ids.tolist()), log_probs.exp().tolist(), strict=True)
        return [(word, probability) for word, probability in pairs if word != "<unk>"][:k]

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 50,
        count: int = 1,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = None,
        beam: int | None = None,
        seed: int | None = None,
    ) -> list[str]:
        """Texts that begin with `prompt`; see :class:`ecoc.options.GenerateOptions`."""
        for name, number in (("tokens", tokens), ("count", count), ("beam", beam)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        start = self._prompt(prompt)
        typed = start[0, 1:].tolist()  # without the end of sentence that every text begins after
        banned = torch.tensor([self.vocabulary.unk])
        if beam is not None:
            beams = beam_search(self.model, start[0], tokens, max(beam, count), banned=banned)
            found = [best.tokens for best in beams[:count]]
        else:
            generator = None if seed is None else torch.Generator().manual_seed(seed)
            sampling = Sampling(temperature, top_k, top_p)
            found = generate(self.model, start.expand(count, -1), tokens, sampling, generator, banned).tolist()
        return [self.vocabulary.text_of([*typed, *ids]) for ids in found]

    def perplexity(self, text: str) -> float:
        """Perplexity (normalised) of a text, each line a sentence."""
        ids = [i for line in text.splitlines() for i in [*self.vocabulary.encode(line), self.vocabulary.eos]]
        stream = torch.tensor([self.vocabulary.eos, *ids])
        if len(stream) < 2:
            raise ValueError("text is empty: there is nothing to score")
        scores = evaluate(self.model, Batches(stream, 1, 256, drop_last=False), thorough=False)
        return scores.perplexity()["normalised"]

    def evaluate(
        self,
        split: str = "test",
        *,
        file: str | None = None,
        data_dir: str | None = None,
        free_steps: int | None = None,
        sampled: bool = False,
        flips: bool = False,
        progress: bool = False,
    ) -> dict[str, object]:
        """All scores on a split of the run's corpus, or on a text file, with the run's sizes and training time.

        With `free_steps` also how the loss grows over so many of its own outputs: :func:`ecoc.metrics.free_running`.
        With `flips` also how many words are right when bits are flipped: :func:`ecoc.metrics.bit_flips`.
        """
        ids = self._ids(split, data_dir, progress) if file is None else encode_file(file, self.vocabulary, progress)
        if free_steps is not None and free_steps + 1 > len(ids) - 1:
            raise ValueError(f"--free-running must be at most {len(ids) - 2} on this text, got {free_steps}")
        rank = torch.argsort(torch.argsort(self.vocabulary.counts_tensor(), descending=True, stable=True))
        batches = Batches(ids, min(_BATCH, len(ids) - 1), self.options.bptt, drop_last=False)
        result = evaluate(self.model, batches, rank, progress=progress).as_dict() | self.sizes()
        if free_steps is not None:
            rows = max(1, min(_FREE_ROWS, (len(ids) - 1) // (_FREE_BLOCKS * (free_steps + 1))))
            blocks, generator = Batches(ids, rows, free_steps + 1), torch.Generator().manual_seed(1)
            result["free_running"] = free_running(self.model, blocks, sampled, generator, progress)
        if flips:
            result["bit_flips"] = bit_flips(self.model, batches, progress=progress)
        return result

    def _ids(self, split: str, data_dir: str | None, progress: bool) -> np.ndarray:
        """Ids of a split: those that training left beside the model, or read again from the corpus."""
        where: dict[str, Any] = {"data_dir": data_dir or self.options.data_dir, "progress": progress}
        if (self.folder / runs.DATA).is_dir() and os.access(self.folder / runs.DATA, os.W_OK):
            names = ("tokeniser", "min_count", "max_size")
            options = {name: getattr(self.options, name) for name in names}
            corpus = open_corpus(self.options.corpus, cache=self.folder / runs.DATA, **where, **options)
            if corpus.vocabulary.fingerprint == self.vocabulary.fingerprint:
                return corpus.split(split)
        with tempfile.TemporaryDirectory() as scratch:
            corpus = open_corpus(self.options.corpus, cache=scratch, **where, vocabulary=self.vocabulary)
            return corpus.split(split).copy()

    def _prompt(self, text: str) -> torch.Tensor:
        """Ids ``(1, time)`` of a typed text, after the end of the sentence before it."""
        return torch.tensor([[self.vocabulary.eos, *self.vocabulary.encode(text)]])
