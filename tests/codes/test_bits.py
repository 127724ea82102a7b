"""Packed bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoc.codes.bits import pack, packed_width, search_rows, unpack, unpack_signs, words


@given(st.lists(st.lists(st.booleans(), min_size=21, max_size=21), min_size=1, max_size=9))
def test_packing_goes_round(rows: list[list[bool]]) -> None:
    bits = torch.tensor(rows)
    assert pack(bits).shape == (len(rows), packed_width(21)) == (len(rows), 3)
    assert torch.equal(unpack(pack(bits), 21), bits)
    assert torch.equal(unpack_signs(pack(bits), 21), bits.float() * 2 - 1)


def test_the_first_bit_is_the_most_significant() -> None:
    assert pack(torch.tensor([1, 0, 0, 0, 0, 0, 1, 1, 1])).tolist() == [0b10000011, 0b10000000]


@pytest.mark.parametrize("width", [1, 7, 8, 30])
def test_binary_search_finds_the_last_row_not_above(width: int) -> None:
    rows = torch.randint(0, 256, (200, width), dtype=torch.uint8).unique(dim=0)
    rows[0] = 0
    queries = torch.cat([rows, torch.randint(0, 256, (500, width), dtype=torch.uint8)])
    as_integers = [int.from_bytes(bytes(row), "big") for row in rows.tolist()]
    expected = []
    for query in queries.tolist():
        value = int.from_bytes(bytes(query), "big")
        expected.append(max(i for i, row in enumerate(as_integers) if row <= value))
    assert search_rows(words(rows), words(queries)).tolist() == expected
