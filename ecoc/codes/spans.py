r"""Span codes (the paper's): the 2^n words cut into V consecutive spans, one a token.

Every word in a token's span is one of its error-checking codewords, so any predicted word decodes to exactly one
token. Tokens stand in random, unigram (frequency) or embedding order (cosine similarity to the most frequent word
:math:`w_*`), and the spans' ends are

.. math:: \operatorname{cumsum}\big(\phi(S) \cdot 2^n\big)

with :math:`\phi` the share of frequency, the softmax or linear share of the similarities, or uniform. Each span has
at least one word. With frequency shares this is Shannon-Fano-Elias coding: bits at 1/2 give the unigram model.
"""

import numpy as np
import torch
from torch import Tensor

from ecoc.codes.bits import packed_width
from ecoc.codes.codebook import Codebook, Spans

ORDERS = ("random", "unigram", "embedding")
WIDTHS = ("frequency", "softmax", "linear", "uniform")
_DEFAULT_WIDTHS = {"random": "uniform", "unigram": "frequency", "embedding": "softmax"}
_SHARE_BITS = 52  # shares become integers of this many bits: all that a float64 share knows


def span_codebook(
    order: str,
    bits: int,
    rank: Tensor,
    *,
    widths: str | None = None,
    counts: Tensor | None = None,
    vectors: Tensor | None = None,
    seed: int = 0,
) -> Codebook:
    """A span codebook over the tokens ranked by `rank`; see :func:`ecoc.codes.build` for the arguments."""
    widths = widths or _DEFAULT_WIDTHS[order]
    if widths not in WIDTHS:
        raise ValueError(f"widths={widths!r} is unknown: choose one of {', '.join(WIDTHS)}")
    if counts is None and (widths == "frequency" or order == "unigram"):
        raise ValueError("counts is needed for unigram order and frequency widths: pass each token's count")
    if vectors is None and (widths in ("softmax", "linear") or order == "embedding"):
        raise ValueError("vectors is needed for embedding order and similarity widths: pass word vectors (V, d)")
    similarity = None if vectors is None else similarity_to_most_frequent(vectors, rank)
    owner = token_order(order, rank, similarity, seed)
    share = _shares(widths, len(rank), counts, similarity)[owner]
    starts = _span_starts(share, bits)
    width = packed_width(bits)
    first = _pack_integers(starts, bits, width)
    last = _pack_integers([start - 1 for start in starts[1:]] + [2**bits - 1], bits, width)
    middles = [(low + high) // 2 for low, high in zip(starts, [*starts[1:], 2**bits], strict=True)]
    packed = torch.empty_like(first)
    packed[owner] = _pack_integers(middles, bits, width)
    return Codebook(f"span-{order}", bits, packed, rank, Spans(first, last, owner.int()))


def similarity_to_most_frequent(vectors: Tensor, rank: Tensor) -> Tensor:
    """Cosine similarity of each token's vector to that of the most frequent token, ``(V,)`` float64."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    return unit @ unit[int(rank.argmin())]


def token_order(order: str, rank: Tensor, similarity: Tensor | None, seed: int) -> Tensor:
    """Token ids in the order in which a code or tree lays them out, ``(V,)`` int64."""
    if order == "random":
        return torch.randperm(len(rank), generator=torch.Generator().manual_seed(seed))
    if order == "unigram":
        return torch.argsort(rank)
    if order != "embedding":
        raise ValueError(f"order={order!r} is unknown: choose one of {', '.join(ORDERS)}")
    if similarity is None:
        raise ValueError("vectors is needed for embedding order: pass word vectors (V, d)")
    return torch.argsort(similarity, descending=True, stable=True)


def _shares(widths: str, vocab_size: int, counts: Tensor | None, similarity: Tensor | None) -> Tensor:
    if widths == "uniform":
        return torch.ones(vocab_size, dtype=torch.float64)
    if widths == "frequency":
        assert counts is not None
        return counts.where(
            counts > 0, counts[counts > 0].min() if counts.any() else 1
        ).double()  # unseen: as the rarest
    assert similarity is not None
    return similarity.softmax(0) if widths == "softmax" else similarity - similarity.min()


def _span_starts(share: Tensor, bits: int) -> list[int]:
    """First word of each span as Python integers, exact for any number of bits."""
    scaled = (share / share.max().clamp(min=1e-300) * 2**_SHARE_BITS).round().long()
    cumulative = [0, *np.cumsum(scaled.numpy().astype(object))][:-1]
    total = max(1, int(scaled.numpy().astype(object).sum()))
    spare = 2**bits - len(share)  # every span has one word; the rest is shared out
    return [place + int(before) * spare // total for place, before in enumerate(cumulative)]


def _pack_integers(values: list[int], bits: int, width: int) -> Tensor:
    shift = 8 * width - bits  # the bits stand at the front, the filling at the back
    raw = b"".join((value << shift).to_bytes(width, "big") for value in values)
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).reshape(len(values), width).copy())
