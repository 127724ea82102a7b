r"""The full softmax, the measure of all other heads."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.heads.head import Head, at_least_float32, checked_counts, log_unigram


class Softmax(Head):
    r"""The full softmax over V tokens.

    .. math:: \log p(w \mid h) = W_w h + b_w - \log \sum_{w'} \exp(W_{w'} h + b_{w'})

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``; the bias then starts at the unigram distribution.
        bias: Whether there is a bias.

    Example:
        >>> head = Softmax(400, 10_000)
        >>> loss = head(hidden, target)  # hidden (batch, time, 400), target (batch, time)
    """

    def __init__(self, hidden_size: int, vocab_size: int, counts: Tensor | None = None, *, bias: bool = True) -> None:
        super().__init__(hidden_size, vocab_size)
        self._initial_bias = log_unigram(checked_counts(counts, vocab_size), vocab_size).float()
        if counts is None:
            self._initial_bias = torch.zeros(vocab_size)
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.weight, -1 / math.sqrt(self.hidden_size), 1 / math.sqrt(self.hidden_size))
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(self._initial_bias)

    def _scores(self, hidden: Tensor) -> Tensor:
        return at_least_float32(F.linear(hidden, self.weight, self.bias))

    def _log_prob(self, hidden: Tensor) -> Tensor:
        return self._scores(hidden).log_softmax(-1)

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self._by_rows(lambda h, t: F.cross_entropy(self._scores(h), t, reduction="none"), hidden, target)

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        return F.cross_entropy(self._scores(hidden), target, reduction="none", label_smoothing=label_smoothing)
