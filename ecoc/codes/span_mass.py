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

For all tokens at once, :func:`log_span_masses` takes bytes in place of bits: a byte's 256 values have probabilities of
their own, and so have all values above or below one, which are the cylinders of eight bits at once.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from ecoc.codes.bits import unpack

_AT_ONCE = 2**19  # spans x rows that are worked on while they are in a processor's cache
_TABLES = 2**12  # numbers of a row's own tables, however few spans there are
_TINY = 1e-280  # below, float64 loses digits


def log_span_mass(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Log probability that a word of independent bits falls in the span, differentiable in `logits`.

    Shapes:
        logits ``(..., n)`` log odds of each bit; first, last ``(..., n)`` bool, both included; all broadcast.
        Returns ``(...)``.
    """
    return _prefix_terms(logits, first, last).logsumexp(-1)


@torch.no_grad()
def log_span_masses(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """:func:`log_span_mass` of many spans for many rows of bits, without gradient; from some 100 spans on faster.

    Shapes:
        logits ``(N, n)``; first, last ``(V, ceil(n / 8))`` bytes. Returns ``(N, V)``.
    """
    different = first != last
    parting = torch.where(different.any(1), different.byte().argmax(1), first.shape[1])  # first byte that differs
    order = parting.argsort(stable=True)
    ends = [0, *parting.bincount(minlength=first.shape[1] + 1).cumsum(0).tolist()]
    sorted_first, sorted_last = (end[order].T.int().contiguous() for end in (first, last))  # [bytes, V]
    result = logits.new_empty(len(logits), len(first))
    at_once = max(1, _AT_ONCE // max(len(first), _TABLES))
    for rows, out in zip(*(x.split(at_once) for x in (logits, result)), strict=True):
        mass = _masses(rows, sorted_first, sorted_last, ends)
        out[:, order] = mass.log().T.to(out.dtype)
        row, span = (mass.T < _TINY).nonzero().T
        for some, spans in zip(row.split(_AT_ONCE // 64), order[span].split(_AT_ONCE // 64), strict=True):
            both = (unpack(end[spans], logits.shape[1]) for end in (first, last))
            out[some, spans] = log_span_mass(rows[some].double(), *both).to(out.dtype)
    return result


def _masses(logits: Tensor, first: Tensor, last: Tensor, ends: list[int]) -> Tensor:
    """Masses ``(V, N)`` in float64 of spans whose bytes ``(bytes, V)`` are sorted by the first that differs.

    `up` and `down` are the probabilities of all bytes so far being those of `first` and of `last`; `ends[k]` spans
    have parted before byte k.
    """
    up = logits.new_ones(first.shape[1], len(logits), dtype=torch.float64)
    down, mass = torch.zeros_like(up), torch.zeros_like(up)
    for k, ((start, stop), chance) in enumerate(zip(pairwise(ends), _bytes(logits), strict=False)):
        above, below = _sides(chance, 256)
        parted, parting = slice(0, start), slice(start, stop)
        mass[parted].addcmul_(up[parted], above.index_select(0, first[k, parted]))
        mass[parted].addcmul_(down[parted], below.index_select(0, last[k, parted]))
        down[parted].mul_(chance.index_select(0, last[k, parted]))
        torch.mul(up[parting], _between(chance, first[k, parting], last[k, parting]), out=mass[parting])
        torch.mul(up[parting], chance.index_select(0, last[k, parting]), out=down[parting])
        up.mul_(chance.index_select(0, first[k]))
        if stop == first.shape[1] and bool((up + down <= 1e-17 * mass).all()):
            break  # what is left changes no digit
    else:
        mass += up
        mass += down
    return mass


def _between(chance: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Probability ``(W, N)`` of values between `low` and `high` ``(W,)``, from that of each value ``(256, N)``.

    With h the first bit in which the two differ, these are the values above `low` in its block of 2^(7-h), and those
    below `high` in its own.
    """
    above, below = (torch.cat(side) for side in zip(*(_sides(chance, 2 ** (7 - h)) for h in range(8)), strict=True))
    start = 256 * (7 - (low ^ high).clamp(min=1).log2().int())  # of the tables of h
    return above.index_select(0, start + low) + below.index_select(0, start + high)


def _sides(chance: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Probability of all values above each one, and of all below it, in its block of `size` values."""
    blocks = chance.unflatten(0, (-1, size))
    above = pad(blocks[:, 1:].flip(1).cumsum(1).flip(1), (0, 0, 0, 1))
    return above.flatten(0, 1), pad(blocks[:, :-1].cumsum(1), (0, 0, 1, 0)).flatten(0, 1)


def _bytes(logits: Tensor) -> Iterator[Tensor]:
    """Probability of each value of each byte in turn, ``(256, N)`` in float64; bits that fill up the last are 0."""
    one = pad(logits.double(), (0, -logits.shape[1] % 8), value=-torch.inf).sigmoid().T.unflatten(0, (-1, 8))
    zero = pad((-logits).double(), (0, -logits.shape[1] % 8), value=torch.inf).sigmoid().T.unflatten(0, (-1, 8))
    for ones, zeros in zip(one, zero, strict=True):
        chance = ones.new_ones(1, len(logits))
        for p, q in zip(ones, zeros, strict=True):
            chance = (chance.unsqueeze(1) * torch.stack([q, p])).flatten(0, 1)
        yield chance


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
