"""Search among the scores of all tokens."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoc.codes.search import largest


@given(st.integers(1, 400), st.integers(1, 12), st.integers(1, 5), st.integers(0, 99))
def test_the_largest_are_those_that_topk_finds(tokens: int, k: int, columns: int, seed: int) -> None:
    k = min(k, tokens)
    scores = torch.randn(tokens, columns, generator=torch.Generator().manual_seed(seed))
    values, places = largest(scores, k)
    wanted = scores.topk(k, dim=0)
    assert torch.equal(values, wanted.values) and torch.equal(places, wanted.indices)


def test_of_equal_scores_as_many_are_found_as_asked_for() -> None:
    scores = torch.zeros(1000, 3)
    scores[7::100] = 1.0
    values, places = largest(scores, 12)
    assert torch.equal(values, scores.topk(12, dim=0).values)
    assert all(len(set(column)) == 12 for column in places.T.tolist())
