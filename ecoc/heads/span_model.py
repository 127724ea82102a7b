r"""Distributions over tokens from independent bits and spans of codewords: objectives `span-mass` and `span-max`.

A token's probability is that of its whole span (see :mod:`ecoc.codes.span_mass`); spans share out all words, so the
probabilities sum to 1 without any softmax. With K > 1 mixture parts, each with bits of its own, the dependence between
bits that independence loses comes back:

.. math:: p(w \mid h) = \sum_{k=1}^{K} \pi_k(h) \sum_{c \in \text{span}(w)} \prod_i p_{k,i}(c_i)

`span-max` is the paper's training loss: binary cross entropy on the best codeword of the span.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ecoc.codes import Codebook, best_codeword, log_codeword_probability, log_span_mass, log_span_masses, unpack

_TERMS_AT_ONCE = 2**22  # rows x tokens x bits held at once


class SpanModel(nn.Module):
    """Probabilities of spans.

    Args:
        codebook: A span code.
        objective: ``span-mass`` or ``span-max``.
        mixture: Number K of mixture parts.
    """

    first: Tensor  # [V, ceil(n / 8)] by token
    last: Tensor

    def __init__(self, codebook: Codebook, objective: str, mixture: int) -> None:
        super().__init__()
        if codebook.spans is None:
            raise ValueError(
                f"objective={objective!r} needs a span codebook, got {codebook.kind!r}: use codebook='span-unigram'"
            )
        self.bits = codebook.bits
        self.objective = objective
        self.mixture = mixture
        self.vocab_size = codebook.vocab_size
        place = codebook.spans.place
        self.register_buffer("first", codebook.spans.first[place])
        self.register_buffer("last", codebook.spans.last[place])

    def parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Bit logits ``(N, K, n)`` and log mixture weights ``(N, K)`` from the predictor's output."""
        logits = output[:, : self.mixture * self.bits].unflatten(-1, (self.mixture, self.bits))
        if self.mixture == 1:
            return logits, torch.zeros_like(logits[..., 0])
        return logits, output[:, self.mixture * self.bits :].log_softmax(-1)

    def loss(self, output: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        """Training loss of each row."""
        loss = self.nll(output, target) if self.objective == "span-mass" else self.paper_nll(output, target)
        if not label_smoothing:
            return loss
        score = self._log_mass if self.objective == "span-mass" else self._log_best
        # a few tokens at a time, scored again for the gradient: all at once would be rows x V x bits numbers
        parts = [checkpoint(score, output.unsqueeze(1), some, use_reentrant=False) for some in self._pieces(output)]
        everyone = torch.stack([part.sum(-1) for part in parts]).sum(0) / self.vocab_size
        return torch.lerp(loss, -everyone, label_smoothing)

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        """-log of the span's mass."""
        return -self._log_mass(output, target)

    def paper_nll(self, output: Tensor, target: Tensor) -> Tensor:
        """-log of the best codeword's probability, the paper's perplexity: sums to less than 1 over V.

        With a mixture, every part takes its own best codeword.
        """
        return -self._log_best(output, target)

    def log_prob(self, output: Tensor) -> Tensor:
        """Log probability of every token, ``(N, V)``; if a gradient is wanted, a few tokens at a time."""
        if torch.is_grad_enabled() and output.requires_grad:
            return torch.cat([self._log_mass(output.unsqueeze(1), some) for some in self._pieces(output)], 1)
        logits, log_weight = self.parts(output)
        mass = log_span_masses(logits.flatten(0, 1), self.first, self.last).unflatten(0, logits.shape[:2])  # [N, K, V]
        return mass.squeeze(1) if self.mixture == 1 else (mass + log_weight.unsqueeze(-1)).logsumexp(1)

    def _pieces(self, output: Tensor) -> tuple[Tensor, ...]:
        """All token ids, so many at a time that rows x tokens x bits stays small."""
        step = max(1, _TERMS_AT_ONCE // (max(1, len(output)) * self.mixture * self.bits))
        return torch.arange(self.vocab_size, device=output.device).split(step)

    def topk(self, output: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most probable tokens."""
        values, ids = self.log_prob(output).topk(k)
        return values, ids

    def _log_mass(self, output: Tensor, tokens: Tensor) -> Tensor:
        """Log mass of tokens ``(N,)`` for outputs ``(N, .)``, or ``(N, T)`` for ``(N, 1, .)``."""
        logits, log_weight = self._broadcast_parts(output)
        mass = log_span_mass(logits, *self._ends(tokens))
        return (mass + log_weight).logsumexp(-1)

    def _log_best(self, output: Tensor, tokens: Tensor) -> Tensor:
        logits, log_weight = self._broadcast_parts(output)
        best = best_codeword(logits, *self._ends(tokens))
        return (log_codeword_probability(logits, best) + log_weight).logsumexp(-1)

    def _broadcast_parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        logits, log_weight = self.parts(output.reshape(-1, output.shape[-1]))
        shape = output.shape[:-1]
        return logits.view(*shape, self.mixture, self.bits), log_weight.view(*shape, self.mixture)

    def _ends(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        first, last = (unpack(ends[tokens], self.bits).unsqueeze(-2) for ends in (self.first, self.last))
        return first, last
