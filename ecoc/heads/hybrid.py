r"""Softmax for the frequent tokens, a code for the rest (Oda et al. 2017)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.codes import WordVectors, frequency_rank
from ecoc.codes.vectors import checked_matrix
from ecoc.heads.ecoc import ECOC
from ecoc.heads.head import Head, at_least_float32, checked_counts, log_unigram


class Hybrid(Head):
    r"""The hybrid model from *Neural Machine Translation via Binary Code Prediction*.

    A softmax over the K most frequent tokens has one more entry for "another token"; which one is then an
    :class:`ECOC` head's matter:

    .. math::
        p(w \mid h) = p_{\text{softmax}}(w \mid h) \quad \text{or} \quad
        p_{\text{softmax}}(\text{other} \mid h)\; p_{\text{ecoc}}(w \mid h)

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``; without them ids are taken to be in order of frequency.
        frequent: Number K of tokens in the softmax; by default 5 % of V, at most 2 000.
        vectors: Word vectors ``(V, d)`` for the code of the rest.
        **options: Of :class:`ECOC` for the rest: objective, codebook (a kind), bits, samples, mixture, layers, widths,
            seed and bias.

    With label smoothing, its uniform part is that of the exact distribution.
    """

    place: Tensor
    order: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        frequent: int | None = None,
        vectors: Tensor | WordVectors | None = None,
        **options: Any,
    ) -> None:
        super().__init__(hidden_size, vocab_size)
        if vocab_size < 2:
            raise ValueError(f"vocab_size must be at least 2 for hybrid, got {vocab_size}")
        frequent = max(1, min(2000, vocab_size // 20)) if frequent is None else frequent
        if not 1 <= frequent < vocab_size:
            raise ValueError(f"frequent must be from 1 to {vocab_size - 1}, got {frequent}")
        counts = checked_counts(counts, vocab_size)
        place = frequency_rank(vocab_size, counts).long()
        order = place.argsort()
        self.register_buffer("place", place)
        self.register_buffer("order", order)
        self.frequent = frequent
        self.softmax = nn.Linear(hidden_size, frequent + 1)
        matrix = checked_matrix(vectors, vocab_size, options.get("seed", 0))
        rest = order[frequent:]
        self.rest = ECOC(
            hidden_size,
            vocab_size - frequent,
            None if counts is None else counts[rest],
            vectors=None if matrix is None else matrix[rest],
            **options,
        )
        self._log_share = None if counts is None else log_unigram(counts, vocab_size)[order].float()
        self.loss_is_nll = self.rest.loss_is_nll
        self._seal(self.place)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.softmax.reset_parameters()
        self.rest.reset_parameters()
        if self._log_share is not None:
            first, rest = self._log_share.split([self.frequent, self.vocab_size - self.frequent])
            with torch.no_grad():
                self.softmax.bias.copy_(torch.cat([first, rest.logsumexp(0, keepdim=True)]))

    def calibrate(self, hidden: Tensor, target: Tensor) -> None:
        """Fit the two factors of objective ``bits`` on held-out hidden states; see :meth:`ECOC.calibrate`.

        Those before frequent tokens say nothing of the code, and change nothing.
        """
        rows, place = self._rows(hidden), self.place[self._ids(hidden, target, None)]
        rare = place >= self.frequent
        if rare.any():
            self.rest.calibrate(rows[rare], place[rare] - self.frequent)

    def _log_softmax(self, hidden: Tensor) -> Tensor:
        return at_least_float32(self.softmax(hidden)).log_softmax(-1)

    def _joined(self, hidden: Tensor, target: Tensor, rest_loss: Tensor) -> Tensor:
        """Loss of the softmax, plus `rest_loss` where the target is not one of the frequent tokens."""
        place = self.place[target]
        entry = place.clamp(max=self.frequent)
        loss = F.nll_loss(self._log_softmax(hidden), entry, reduction="none")
        return loss + rest_loss.masked_fill(place < self.frequent, 0.0)

    def _rest_target(self, target: Tensor) -> Tensor:
        return (self.place[target] - self.frequent).clamp(min=0)

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self._joined(hidden, target, self.rest._nll(hidden, self._rest_target(target)))

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        rest = self.rest._token_loss(hidden, self._rest_target(target), 0.0)
        return self._smoothed(self._joined(hidden, target, rest), hidden, label_smoothing)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        first = self._log_softmax(hidden)
        rest = first[:, -1:] + self.rest._log_prob(hidden)
        return torch.cat([first[:, :-1], rest], 1)[:, self.place]

    def _topk(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of the best of both; the rest is asked for no more than k."""
        first = self._log_softmax(hidden)
        rest, rest_place = self.rest._topk(hidden, min(k, self.rest.vocab_size))
        values, choice = torch.cat([first[:, :-1], first[:, -1:] + rest], 1).topk(k)
        frequent = torch.arange(self.frequent, device=hidden.device).expand(len(hidden), -1)
        places = torch.cat([frequent, rest_place + self.frequent], 1)
        return values, self.order[places.gather(1, choice)]
