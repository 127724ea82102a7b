"""What a token's code is: plain tensors that know nothing of networks.

>>> codebook = ecoc.codes.build("semantic", vocab_size, bits=512, counts=counts, vectors=vectors)
>>> codebook.decode(codebook.encode(ids))
"""

import torch
from torch import Tensor

from ecoc.codes.bch import bch_codewords
from ecoc.codes.bits import pack, unpack, unpack_signs
from ecoc.codes.codebook import Codebook, Distance, Spans, frequency_rank
from ecoc.codes.contexts import context_vectors
from ecoc.codes.convolutional import convolutional_codewords
from ecoc.codes.distributed import hadamard_codewords, onehot_codewords, random_codewords
from ecoc.codes.semantic import semantic_codewords
from ecoc.codes.skipgram import skipgram_vectors
from ecoc.codes.span_mass import best_codeword, log_codeword_probability, log_span_mass, log_span_masses
from ecoc.codes.spans import ORDERS, span_codebook
from ecoc.codes.vectors import WordVectors, checked_matrix, concatenate, fill_missing, read_vectors, write_vectors

KINDS = (
    *(f"span-{order}" for order in ORDERS),
    "random",
    "semantic",
    "bch",
    "hadamard",
    "convolutional",
    "onehot",
)

__all__ = [
    "KINDS",
    "Codebook",
    "Distance",
    "Spans",
    "WordVectors",
    "best_codeword",
    "build",
    "concatenate",
    "context_vectors",
    "fill_missing",
    "frequency_rank",
    "log_codeword_probability",
    "log_span_mass",
    "log_span_masses",
    "pack",
    "read_vectors",
    "skipgram_vectors",
    "unpack",
    "unpack_signs",
    "write_vectors",
]


def build(
    kind: str,
    vocab_size: int,
    bits: int,
    counts: Tensor | None = None,
    vectors: Tensor | WordVectors | None = None,
    seed: int = 0,
    widths: str | None = None,
) -> Codebook:
    """Build a codebook.

    Args:
        kind: ``span-random``, ``span-unigram``, ``span-embedding`` (the paper's), or ``random``, ``semantic``, ``bch``,
            ``hadamard``, ``convolutional``, ``onehot``.
        vocab_size: Number of tokens V.
        bits: Codeword length n, at least ceil(log2 V). BCH, Hadamard and convolutional codes exist at certain lengths
            only; the error names them.
        counts: How often each token occurs, ``(V,)``. Without them ids are taken to be in order of frequency.
        vectors: Word vectors ``(V, d)``, for ``semantic`` and ``span-embedding``. Words that a
            :class:`WordVectors` did not find get a random vector.
        seed: Seed of all random choices.
        widths: Of spans: ``frequency``, ``softmax``, ``linear`` or ``uniform``.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown: choose one of {', '.join(KINDS)}")
    if widths is not None and not kind.startswith("span-"):
        raise ValueError(f"widths={widths!r} is for span codes, not kind={kind!r}: leave it out")
    counts, matrix = _checked(vocab_size, bits, counts, vectors, seed)
    rank = frequency_rank(vocab_size, counts)
    if kind.startswith("span-"):
        order = kind.removeprefix("span-")
        return span_codebook(order, bits, rank, widths=widths, counts=counts, vectors=matrix, seed=seed)
    trellis = None
    if kind == "random":
        packed = random_codewords(vocab_size, bits, seed)
    elif kind == "onehot":
        packed = onehot_codewords(vocab_size, bits)
    elif kind == "semantic":
        if matrix is None:
            raise ValueError(
                "vectors is needed for a semantic code: pass word vectors (V, d), say context_vectors(ids, V)"
            )
        packed = semantic_codewords(matrix, bits, seed)
    elif kind == "bch":
        packed = pack(bch_codewords(rank, bits))
    elif kind == "hadamard":
        packed = pack(hadamard_codewords(rank, bits))
    else:
        codewords, trellis = convolutional_codewords(rank, bits)
        packed = pack(codewords)
    return Codebook(kind, bits, packed, rank, trellis=trellis)


def _checked(
    vocab_size: int, bits: int, counts: Tensor | None, vectors: Tensor | WordVectors | None, seed: int
) -> tuple[Tensor | None, Tensor | None]:
    """Counts and vectors as plain tensors, after every check that all kinds share."""
    if vocab_size < 1:
        raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
    needed = max(1, (vocab_size - 1).bit_length())
    if bits < needed:
        raise ValueError(f"bits={bits} cannot tell {vocab_size} tokens apart: use at least {needed}")
    if counts is not None:
        counts = torch.as_tensor(counts).cpu()
        if counts.shape != (vocab_size,) or not torch.isfinite(counts).all() or (counts < 0).any():
            raise ValueError(f"counts must be {vocab_size} numbers of at least 0, got shape {tuple(counts.shape)}")
    return counts, checked_matrix(vectors, vocab_size, seed)
