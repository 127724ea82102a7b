"""How well words are predicted: perplexity in its named modes, accuracy, ranks, Hamming distance."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ecoc.codes.vectors import progress_bar
from ecoc.data import Batches, CaptionBatch, CaptionBatches
from ecoc.heads import ECOC, Head
from ecoc.models import Captioner, LanguageModel

BANDS = (100, 1000, 10_000)  # ranks where a band of frequency ends


@dataclass
class Scores:
    """Sums over scored tokens, and the numbers people ask for."""

    tokens: int = 0
    nll: dict[str, float] = field(default_factory=dict)  # by perplexity mode
    top1: int = 0
    top5: int = 0
    reciprocal_rank: float = 0.0
    wrong_bits: int = 0
    bits: int = 0  # of a codeword; 0 for heads without
    bands: dict[str, tuple[int, float]] = field(default_factory=dict)  # tokens and nll by band of frequency

    def perplexity(self) -> dict[str, float]:
        """By mode: ``normalised`` over the vocabulary, and for span codes ``span-mass`` and ``paper``."""
        return {mode: math.exp(min(700.0, total / max(1, self.tokens))) for mode, total in self.nll.items()}

    def as_dict(self) -> dict[str, object]:
        """All numbers, ready for JSON."""
        tokens = max(1, self.tokens)
        result: dict[str, object] = {
            "tokens": self.tokens,
            "perplexity": self.perplexity(),
            "bits_per_token": self.nll["normalised"] / tokens / math.log(2),
            "accuracy": self.top1 / tokens,
            "top5_accuracy": self.top5 / tokens,
            "mean_reciprocal_rank": self.reciprocal_rank / tokens,
            "perplexity_by_band": {
                band: {"tokens": number, "perplexity": math.exp(min(700.0, total / number))}
                for band, (number, total) in self.bands.items()
                if number
            },
        }
        if self.bits:
            result["hamming_distance"] = self.wrong_bits / tokens
            result["bits"] = self.bits
        return result


class Scorer:
    """Adds up the scores of a head on batches of hidden states; never holds tokens x V at once.

    Args:
        head: The head.
        rank: Frequency rank of each token ``(V,)``, for the bands.
        thorough: Also ranks, accuracy and Hamming distance, which look at the whole vocabulary.
    """

    def __init__(self, head: Head, rank: Tensor | None = None, thorough: bool = True) -> None:
        self.head = head
        self.rank = rank
        self.thorough = thorough
        self.scores = Scores()
        if isinstance(head, ECOC):
            self.scores.bits = head.bits

    @torch.no_grad()
    def add(self, hidden: Tensor, target: Tensor) -> None:
        """Score hidden states ``(..., H)`` against targets ``(...)``."""
        hidden, target = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
        scores, head = self.scores, self.head
        if self.thorough:  # one look at the whole vocabulary serves all
            parts = zip(hidden.split(256), target.split(256), strict=True)
            nll = torch.cat([self._add_ranks(part, ids) for part, ids in parts]).double()
        else:
            nll = head.nll(hidden, target).double()
        scores.tokens += len(target)
        self._sum("normalised", nll)
        if isinstance(head, ECOC) and head.objective.startswith("span-"):
            self._sum("span-mass", nll)
            self._sum("paper", head.paper_nll(hidden, target).double())
        if self.rank is not None:
            self._add_bands(nll, self.rank[target])

    def _sum(self, mode: str, nll: Tensor) -> None:
        self.scores.nll[mode] = self.scores.nll.get(mode, 0.0) + float(nll.sum())

    def _add_ranks(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Count ranks and wrong bits; returns the negative log-likelihood of the targets."""
        log_probs = self.head.log_prob(hidden)
        own = log_probs.gather(1, target.unsqueeze(1))
        rank = (log_probs > own).sum(-1) + 1
        self.scores.top1 += int((rank == 1).sum())
        self.scores.top5 += int((rank <= 5).sum())
        self.scores.reciprocal_rank += float(rank.double().reciprocal().sum())
        if isinstance(self.head, ECOC):
            predicted = self.head.latent_logits(hidden) > 0
            self.scores.wrong_bits += int((predicted ^ self.head.code_of(target)).sum())
        return -own.squeeze(1)

    def _add_bands(self, nll: Tensor, rank: Tensor) -> None:
        edges = torch.tensor(BANDS, device=rank.device)
        band = torch.bucketize(rank, edges, right=True)
        for number, name in enumerate(band_names(len(self.rank) if self.rank is not None else 0)):
            inside = band == number
            before = self.scores.bands.get(name, (0, 0.0))
            self.scores.bands[name] = (before[0] + int(inside.sum()), before[1] + float(nll[inside].sum()))


def band_names(vocab_size: int) -> list[str]:
    """Names of the bands of frequency, such as ``101-1000``; the last ends at the rarest word."""
    starts = [1, *(edge + 1 for edge in BANDS)]
    ends = [*BANDS, vocab_size]
    bands = zip(starts, ends, strict=True)
    return [f"{start}-{min(end, vocab_size)}" for start, end in bands if start <= vocab_size]


@torch.no_grad()
def evaluate(
    model: LanguageModel,
    batches: Batches,
    rank: Tensor | None = None,
    thorough: bool = True,
    progress: bool = False,
) -> Scores:
    """Score a model on contiguous batches ``(inputs, targets)``, its state carried from one to the next."""
    was_training = model.training
    model.eval()
    scorer, state = Scorer(model.head, rank, thorough), None
    for inputs, targets in progress_of(batches, "evaluating", progress):
        if state is not None:  # the last batch may have fewer rows: it goes on with the first of them
            state = state[0][:, : len(inputs)], state[1][:, : len(inputs)]
        hidden, state = model.hidden(inputs, state)
        scorer.add(hidden, targets)
    model.train(was_training)
    return scorer.scores


@torch.no_grad()
def evaluate_captions(model: Captioner, batches: CaptionBatches, progress: bool = False) -> Scores:
    """Score a captioner on the words of captions, each after those before it."""
    was_training = model.training
    model.eval()
    scorer = Scorer(model.head, thorough=False)
    with progress_bar(progress) as bar:
        for batch in bar.track(batches.starting_at(0), total=len(batches), description="perplexity"):
            scorer.add(*caption_words(model, batch))
    model.train(was_training)
    return scorer.scores


def caption_words(model: Captioner, batch: CaptionBatch) -> tuple[Tensor, Tensor]:
    """Hidden states ``(N, H)`` and targets ``(N,)`` of the words of a batch, without what fills it up."""
    hidden, _ = model.hidden(batch.inputs, model.begin(batch.features))
    counted = batch.targets >= 0
    return hidden[counted], batch.targets[counted]


def progress_of(batches: Batches, label: str, visible: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches, with a bar."""
    with progress_bar(visible) as bar:
        yield from bar.track(batches, total=len(batches), description=label)
