"""Packed bits: the one layout every code in this room shares.

A word of n bits is stored most significant bit first in ceil(n / 8) bytes, the last byte filled up with zeros. Rows
then compare as integers when compared byte by byte, however many bits there are, and a codebook takes V n / 8 bytes.
"""

from functools import lru_cache

import torch
from torch import Tensor

WORD_BYTES = 7  # 56 bits fit a signed 64-bit integer with the sign left alone, so words compare as they should


def packed_width(bits: int) -> int:
    """Bytes that hold `bits` bits."""
    return (bits + 7) // 8


def pack(bits: Tensor) -> Tensor:
    """Pack 0/1 or bool bits ``(..., n)`` into bytes ``(..., ceil(n / 8))``."""
    missing = -bits.shape[-1] % 8
    filled = torch.nn.functional.pad(bits.to(torch.uint8), (0, missing))
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=bits.device)  # most significant bit first
    return (filled.unflatten(-1, (-1, 8)) << shifts).sum(-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """Unpack bytes ``(..., ceil(n / 8))`` into bool bits ``(..., n)``."""
    return _lookup(byte_signs(torch.int8, packed.device) > 0, packed, bits)


def unpack_signs(packed: Tensor, bits: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unpack bytes into +1 (bit set) and -1 (bit clear), ``(..., n)``."""
    return _lookup(byte_signs(dtype, packed.device), packed, bits)


def byte_signs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The eight signs of every byte, ``(256, 8)``."""
    if torch.compiler.is_compiling():  # it looks behind a cache, and warns
        return _byte_signs(dtype, device)
    return _kept_byte_signs(dtype, device)


def _byte_signs(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # made in inference, it could not be used in training later
        byte = torch.arange(256, device=device).unsqueeze(1)
        return ((byte >> torch.arange(7, -1, -1, device=device)) & 1).to(dtype) * 2 - 1


_kept_byte_signs = lru_cache(maxsize=64)(_byte_signs)  # so that a GPU is sent them once


def _lookup(table: Tensor, packed: Tensor, bits: int) -> Tensor:
    values = torch.nn.functional.embedding(packed.int(), table)  # [..., bytes, 8]
    return values.flatten(-2)[..., :bits]


def words(packed: Tensor) -> Tensor:
    """Rows of bytes as rows of 56-bit integers ``(..., W)`` that compare in the same order."""
    missing = -packed.shape[-1] % WORD_BYTES
    filled = torch.nn.functional.pad(packed, (0, missing)).unflatten(-1, (-1, WORD_BYTES)).long()
    shifts = torch.arange(8 * (WORD_BYTES - 1), -1, -8, device=packed.device)
    return (filled << shifts).sum(-1)


def search_rows(sorted_words: Tensor, query: Tensor) -> Tensor:
    """Index of the last row of `sorted_words` ``(V, W)`` that is not above `query` ``(..., W)``; binary search."""
    if sorted_words.shape[-1] == 1:
        return torch.searchsorted(sorted_words[:, 0], query[..., 0].contiguous(), right=True) - 1
    low = torch.zeros(query.shape[:-1], dtype=torch.long, device=query.device)
    high = torch.full_like(low, len(sorted_words))
    for _ in range(len(sorted_words).bit_length()):
        middle = (low + high) // 2
        row = sorted_words[middle]
        first_difference = (row != query).int().argmax(-1, keepdim=True)  # 0 when the rows are equal: then row <= query
        not_above = (row.gather(-1, first_difference) <= query.gather(-1, first_difference)).squeeze(-1)
        low, high = torch.where(not_above, middle, low), torch.where(not_above, high, middle)
    return low
