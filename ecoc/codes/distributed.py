"""Random, one-hot and Hadamard codes: one codeword a token, redundancy spread over all bits."""

import torch
from torch import Tensor

from ecoc.codes.bits import pack, packed_width
from ecoc.codes.codebook import duplicate_rows
from ecoc.codes.convolutional import integer_bits


def random_codewords(vocab_size: int, bits: int, seed: int) -> Tensor:
    """Distinct random words, packed ``(V, ceil(n / 8))`` (Berger 1999: random codes separate well)."""
    generator = torch.Generator().manual_seed(seed)
    if bits <= (4 * vocab_size).bit_length():  # few words to choose from: draw without putting back
        return pack(integer_bits(torch.randperm(2**bits, generator=generator)[:vocab_size], bits))
    packed = torch.zeros(vocab_size, packed_width(bits), dtype=torch.uint8)
    again = torch.ones(vocab_size, dtype=torch.bool)
    while again.any():
        fresh = torch.randint(0, 256, (int(again.sum()), packed.shape[1]), dtype=torch.uint8, generator=generator)
        fresh[:, -1] &= 0xFF << (-bits % 8) & 0xFF  # the filling stays zero
        packed[again] = fresh
        again = duplicate_rows(packed)
    return packed


def onehot_codewords(vocab_size: int, bits: int) -> Tensor:
    """The identity, packed: with it the likelihood objective is the full softmax."""
    if bits != vocab_size:
        raise ValueError(f"bits={bits} must equal the vocabulary size {vocab_size} for a one-hot code")
    packed = torch.zeros(vocab_size, packed_width(bits), dtype=torch.uint8)
    token = torch.arange(vocab_size)
    packed[token, token // 8] = (128 >> (token % 8)).to(torch.uint8)
    return packed


def hadamard_codewords(rank: Tensor, bits: int) -> Tensor:
    """Rows of the Hadamard matrix of order n = 2^m, then their complements: any two differ in n / 2 bits or all.

    Bit j of row r is the parity of r AND j, bool ``(V, n)``.
    """
    smallest = max(2, 1 << ((len(rank) + 1) // 2 - 1).bit_length())
    if bits & (bits - 1) or 2 * bits < len(rank):
        raise ValueError(
            f"bits={bits} is no length of a Hadamard code over {len(rank)} tokens: take a power of two from {smallest}"
        )
    digits = max(1, bits.bit_length() - 1)
    column = integer_bits(torch.arange(bits), digits).float()  # [n, m]
    row = integer_bits(rank.long() % bits, digits).float()  # [V, m]
    complement = (rank.long() >= bits).unsqueeze(1)
    return ((row @ column.T).long() % 2).bool() ^ complement
