r"""Semantic codes: Hamming distance grows with the distance of word vectors.

Each bit is the side of a random hyperplane on which a word's vector lies (Charikar 2002), with the median word on the
plane so that every bit is as informative as it can be:

.. math:: c_{w, i} = [\, a_i \cdot (v_w - \bar v) > \operatorname{median}_{w'} a_i \cdot (v_{w'} - \bar v) \,]

The expected share of differing bits is the angle between the centred vectors over pi. Hyperplanes are taken d at a
time from random rotations: orthogonal ones repeat less, and the Hamming distance is closer to the angle.
"""

import itertools

import torch
from torch import Tensor

from ecoc.codes.bits import pack, unpack
from ecoc.codes.codebook import duplicate_rows
from ecoc.codes.convolutional import integer_bits

_DENSE_BITS = 24  # so short a code may have hardly a word to spare; there,
_ROUNDS = 30  # after so many rounds of separating words the rest take any word that is free
_CHUNK = 64  # bits projected at a time: V x 64 floats, whatever n is
_WORDS = 4096  # words without a codeword of their own that are looked at at a time: 4096 x n floats


def semantic_codewords(vectors: Tensor, bits: int, seed: int) -> Tensor:
    """Packed distinct codewords ``(V, ceil(n / 8))`` from word vectors ``(V, d)``."""
    # in float64, so that the number of threads cannot turn a bit by the order in which it adds
    centred = vectors.double() - vectors.double().mean(0)
    planes = _hyperplanes(vectors.shape[1], bits, seed)
    codes = torch.empty(len(vectors), bits, dtype=torch.bool)
    medians = torch.empty(bits, dtype=torch.float64)
    for start in range(0, bits, _CHUNK):
        side = centred @ planes[start : start + _CHUNK].T
        medians[start : start + _CHUNK] = side.median(0).values
        codes[:, start : start + _CHUNK] = side > medians[start : start + _CHUNK]
    return _separate(pack(codes), codes, centred, planes, medians)


def _hyperplanes(dim: int, bits: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rotations = []
    for _ in range(-(-bits // dim)):
        q, r = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
        rotations.append(q * r.diagonal().sign())  # without the sign Q is not uniform over rotations
    return torch.cat(rotations)[:bits]


def _separate(packed: Tensor, codes: Tensor, centred: Tensor, planes: Tensor, medians: Tensor) -> Tensor:
    """Give words that share a codeword different ones, by flipping the bits nearest to their hyperplane.

    The i-th word without a codeword of its own flips the bits that are set in i, counted from its least certain bit.
    """
    attempt = 1
    dense = codes.shape[1] <= _DENSE_BITS
    for _ in range(_ROUNDS) if dense else itertools.count():
        tokens = duplicate_rows(packed).nonzero().flatten()
        if not len(tokens):
            return packed
        digits = min(codes.shape[1], (attempt + len(tokens) - 1).bit_length())
        for part in tokens.split(_WORDS):
            margin = (centred[part] @ planes.T - medians).abs()
            number = torch.arange(attempt, attempt + len(part))
            least_certain = margin.topk(digits, largest=False).indices
            flip = ((number.unsqueeze(1) >> torch.arange(digits)) & 1).bool()
            changed = codes[part]
            changed.scatter_(1, least_certain, changed.gather(1, least_certain) ^ flip)
            packed[part] = pack(changed)
            attempt += len(part)
    return _take_free_words(packed, codes.shape[1])


def _take_free_words(packed: Tensor, bits: int) -> Tensor:
    """Where nearly all 2^n words are taken, give words without one of their own any that is free."""
    weights = 2 ** torch.arange(bits - 1, -1, -1)
    taken = unpack(packed, bits).long() @ weights
    free = torch.ones(2**bits, dtype=torch.bool)
    free[taken] = False
    tokens = duplicate_rows(packed).nonzero().flatten()
    packed[tokens] = pack(integer_bits(free.nonzero().flatten()[: len(tokens)], bits))
    return packed
