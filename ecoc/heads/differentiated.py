r"""Differentiated softmax (Chen, Grangier and Auli 2015)."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.codes import frequency_rank
from ecoc.heads.adaptive import checked_cutoffs
from ecoc.heads.head import at_least_float32, checked_counts, log_unigram
from ecoc.heads.layout import OrderedHead


class DifferentiatedSoftmax(OrderedHead):
    r"""The differentiated softmax from *Strategies for Training Large Vocabulary Neural Language Models*.

    Tokens are partitioned by frequency and the hidden state is cut into as many slices; the tokens of partition j see
    slice j alone, wide for frequent tokens, narrow for rare ones:

    .. math:: s_w = W^{(j)}_w h^{(j)} + b_w \quad (w \in \text{partition } j), \qquad p = \operatorname{softmax}(s)

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``; without them ids are taken to be in order of frequency.
        cutoffs: Ranks where a partition ends; by default 5 %, 15 % and 30 % of V.
        slices: Width of each partition's slice, summing to H; by default each half of what is left.
        bias: Whether there is a bias.
    """

    place: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        cutoffs: Sequence[int] | None = None,
        slices: Sequence[int] | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size)
        counts = checked_counts(counts, vocab_size)
        ends = [*checked_cutoffs(cutoffs, vocab_size), vocab_size]
        self.slices = list(slices) if slices is not None else _halves(hidden_size, len(ends))
        if len(self.slices) != len(ends) or min(self.slices) < 1 or sum(self.slices) != hidden_size:
            raise ValueError(
                f"slices must be {len(ends)} widths that sum to hidden_size={hidden_size}, got {self.slices}"
            )
        rank = frequency_rank(vocab_size, counts).long()
        self.register_buffer("place", rank)
        self.register_buffer("owner", rank.argsort(), persistent=False)
        sizes = [end - start for start, end in pairwise([0, *ends])]
        self.weights = nn.ParameterList(
            torch.empty(size, width) for size, width in zip(sizes, self.slices, strict=True)
        )
        self._initial_bias = torch.zeros(vocab_size)
        if counts is not None:
            self._initial_bias[rank] = log_unigram(counts, vocab_size).float()
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None  # in order of frequency, as the weights
        self._seal(self.place)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in self.weights:
            nn.init.uniform_(weight, -1 / math.sqrt(weight.shape[1]), 1 / math.sqrt(weight.shape[1]))
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(self._initial_bias)

    def _scores(self, hidden: Tensor) -> Tensor:
        """Scores in order of frequency, ``(N, V)``."""
        parts = [F.linear(part, w) for part, w in zip(hidden.split(self.slices, -1), self.weights, strict=True)]
        scores = torch.cat(parts, -1)
        return at_least_float32(scores if self.bias is None else scores + self.bias)

    def _ordered_log_prob(self, hidden: Tensor) -> Tensor:
        return self._scores(hidden).log_softmax(-1)

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self._by_rows(
            lambda h, t: F.cross_entropy(self._scores(h), t, reduction="none"), hidden, self.place[target]
        )

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        return F.cross_entropy(
            self._scores(hidden), self.place[target], reduction="none", label_smoothing=label_smoothing
        )


def _halves(hidden_size: int, parts: int) -> list[int]:
    """Widths H / 2, H / 4, ..., the last two equal; none below 1."""
    widths, left = [], hidden_size
    for remaining in range(parts - 1, 0, -1):
        widths.append(max(1, min(left // 2, left - remaining)))
        left -= widths[-1]
    return [*widths, left]
