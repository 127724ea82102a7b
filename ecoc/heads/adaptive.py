r"""Adaptive softmax (Grave et al. 2017)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.codes import frequency_rank
from ecoc.heads.head import at_least_float32, checked_counts, log_unigram
from ecoc.heads.layout import OrderedHead


class AdaptiveSoftmax(OrderedHead):
    r"""The adaptive softmax from *Efficient Softmax Approximation for GPUs*.

    The most frequent tokens share a softmax with one entry for each cluster of rarer ones; a cluster has a softmax of
    its own behind a narrower projection, computed only for the targets that are in it:

    .. math::
        p(w \mid h) = p_{\text{head}}(w \mid h) \quad \text{or} \quad
        p_{\text{head}}(\text{cluster } i \mid h)\; p_i(w \mid P_i h)

    The same model as ``torch.nn.AdaptiveLogSoftmaxWithLoss``, but ids may come in any order (the head sorts them by
    count), and there are biases, ``ignore_index``, reductions and label smoothing. Picking the rows of a cluster makes
    a GPU wait for their number: the method's saving is a shape that depends on the data.

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``; without them ids are taken to be in order of frequency.
        cutoffs: Ranks where the head and each cluster but the last end; by default 5 %, 15 % and 30 % of V.
        div_value: The projection of cluster i has H / div_value^i numbers.
        bias: Whether head and clusters have biases.
    """

    place: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        cutoffs: Sequence[int] | None = None,
        div_value: float = 4.0,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size)
        if not div_value >= 1:
            raise ValueError(f"div_value must be at least 1, got {div_value}")
        counts = checked_counts(counts, vocab_size)
        self.cutoffs = [*checked_cutoffs(cutoffs, vocab_size), vocab_size]
        clusters = len(self.cutoffs) - 1
        rank = frequency_rank(vocab_size, counts).long()
        self.register_buffer("place", rank)
        self.register_buffer("owner", rank.argsort(), persistent=False)
        self.head = nn.Linear(hidden_size, self.cutoffs[0] + clusters, bias=bias)
        self.tails = nn.ModuleList()
        for number in range(clusters):
            width = max(1, int(hidden_size // div_value ** (number + 1)))
            size = self.cutoffs[number + 1] - self.cutoffs[number]
            self.tails.append(
                nn.Sequential(nn.Linear(hidden_size, width, bias=False), nn.Linear(width, size, bias=bias))
            )
        self._log_share = None
        if counts is not None:
            self._log_share = log_unigram(counts, vocab_size)[rank.argsort()].float()
        self._seal(self.place)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in [self.head, *(layer for tail in self.tails for layer in tail.children())]:
            assert isinstance(layer, nn.Linear)
            layer.reset_parameters()
        if self._log_share is None or self.head.bias is None:
            return
        first, *shares = self._log_share.split([self.cutoffs[0], *self._sizes()])
        with torch.no_grad():  # start at the unigram distribution
            self.head.bias.copy_(torch.cat([first, *(share.logsumexp(0, keepdim=True) for share in shares)]))
            for tail, share in zip(self.tails, shares, strict=True):
                tail.get_submodule("1").get_parameter("bias").copy_(share)

    def _sizes(self) -> list[int]:
        return [end - start for start, end in pairwise(self.cutoffs)]

    def _ordered_log_prob(self, hidden: Tensor) -> Tensor:
        head = at_least_float32(self.head(hidden)).log_softmax(-1)
        parts = [head[:, : self.cutoffs[0]]]
        for number, tail in enumerate(self.tails):
            cluster = head[:, self.cutoffs[0] + number].unsqueeze(1)
            parts.append(cluster + at_least_float32(tail(hidden)).log_softmax(-1))
        return torch.cat(parts, 1)

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        place = self.place[target]
        ends = torch.tensor(self.cutoffs[:-1], device=place.device)
        cluster = torch.bucketize(place, ends, right=True)  # 0 for the head
        entry = torch.where(cluster == 0, place, self.cutoffs[0] + cluster - 1)
        loss = F.cross_entropy(at_least_float32(self.head(hidden)), entry, reduction="none")
        for number, tail in enumerate(self.tails):  # also with no row in it, so that every parameter has a gradient
            rows = (cluster == number + 1).nonzero().squeeze(1)
            scores = at_least_float32(tail(hidden[rows]))
            within = F.cross_entropy(scores, place[rows] - self.cutoffs[number], reduction="none")
            loss = loss.index_add(0, rows, within)
        return loss


def checked_cutoffs(cutoffs: Sequence[int] | None, vocab_size: int) -> list[int]:
    """Increasing ranks strictly inside the vocabulary; by default the paper's 5 %, 15 % and 30 % of it."""
    if cutoffs is None:
        return sorted({c for percent in (5, 15, 30) if 0 < (c := -(-vocab_size * percent // 100)) < vocab_size})
    cutoffs = [int(c) for c in cutoffs]
    increasing = all(a < b for a, b in pairwise(cutoffs))
    if not cutoffs or not increasing or cutoffs[0] < 1 or cutoffs[-1] >= vocab_size:
        raise ValueError(f"cutoffs must be increasing and from 1 to {vocab_size - 1}, got {cutoffs}: sort and cut them")
    return cutoffs
