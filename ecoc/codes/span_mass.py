r"""Probability of a span of codewords, and its best codeword, under independent bits.

A span is every n-bit integer from `first` to `last`. Let L be the first bit in which the two differ. The span is the
disjoint union of at most 2n *cylinders* (all words with a given prefix): for every i > L with first_i = 0 the words
that follow `first` for i bits and then step up, for every i > L with last_i = 1 the words that follow `last` and then
step down, and the two ends themselves. A cylinder's probability is a product over its prefix, so

.. math::
    P(\text{span}) = \sum_{\text{cylinders}} \prod_{j \le i} p(b_j)
    \qquad
    \max_{c \in \text{span}} P(c) = \max_{\text{cylinders}} \prod_{j \le i} p(b_j) \prod_{j > i} \max(p_j, 1 - p_j)

Both cost O(n) a token. All terms are positive: nothing is subtracted (as in F(hi) - F(lo)), so a token with
probability e^-500 is as exact as a likely one, and n may be in the thousands: no integer or power of two is formed.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad


def log_span_mass(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Log probability that a word of independent bits falls in the span, differentiable in `logits`.

    Shapes:
        logits ``(..., n)`` log odds of each bit; first, last ``(..., n)`` bool, both included; all broadcast.
        Returns ``(...)``.
    """
    return _prefix_terms(logits, first, last).logsumexp(-1)


def best_codeword(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The most probable codeword of the span, bool ``(..., n)``; shapes as in :func:`log_span_mass`."""
    with torch.no_grad():
        prefix = _prefix_terms(logits, first, last)
        bits = logits.shape[-1]
        best_bit = logsigmoid(logits.abs())  # log probability of the better value
        after = _before(best_bit.flip(-1).cumsum(-1)).flip(-1)  # the best values of all bits after i
        step = pad(torch.cat([after, after], -1), (0, 2))  # the two ends have no free bits
        choice = (prefix + step).argmax(-1, keepdim=True)  # [..., 1] in [0, 2n + 2)
    position = torch.arange(bits, device=logits.device)
    from_last = ((choice >= bits) & (choice < 2 * bits)) | (choice == 2 * bits + 1)
    stem = torch.where(from_last, last, first)
    turn = torch.where(choice < 2 * bits, choice % bits, bits)  # the bit where the word leaves its end
    return torch.where(position < turn, stem, torch.where(position == turn, ~stem, logits > 0))


def log_codeword_probability(logits: Tensor, codeword: Tensor) -> Tensor:
    """Log probability of one codeword under independent bits, ``(...)``."""
    return logsigmoid(torch.where(codeword, logits, -logits)).sum(-1)


def _prefix_terms(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Log prefix probability of each cylinder, ``(..., 2n + 2)``: steps up, steps down, `first`, `last`; or -inf."""
    log_one, log_zero = logsigmoid(logits), logsigmoid(-logits)
    follow_first = torch.where(first, log_one, log_zero)
    follow_last = torch.where(last, log_one, log_zero)
    through_first, through_last = follow_first.cumsum(-1), follow_last.cumsum(-1)

    parted = (first != last).cumsum(-1) > 0  # from bit L on
    inside = _before(parted)  # the bits after L
    none = torch.full((), -torch.inf, dtype=logits.dtype, device=logits.device)
    up = torch.where(inside & ~first, _before(through_first) + log_one, none)
    down = torch.where(inside & last, _before(through_last) + log_zero, none)
    end = torch.where(parted[..., -1:], through_last[..., -1:], none)  # a span of one codeword has one end
    return torch.cat([up, down, through_first[..., -1:], end], -1)


def _before(running: Tensor) -> Tensor:
    """A running total up to but without each bit: shifted by one, starting at zero."""
    return pad(running, (1, 0))[..., :-1]
