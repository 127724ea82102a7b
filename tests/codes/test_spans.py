"""Span codes: who owns which word, their mass and their best codeword."""

import itertools
import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ecoc import codes
from ecoc.codes.spans import ORDERS, WIDTHS
from tests.heads.cases import word_vectors, zipf_counts


def span_book(order: str, widths: str, vocab_size: int, bits: int) -> codes.Codebook:
    counts, vectors = zipf_counts(vocab_size), word_vectors(vocab_size)
    return codes.build(f"span-{order}", vocab_size, bits, counts, vectors, widths=widths)


def all_words(bits: int) -> Tensor:
    return torch.tensor(list(itertools.product([False, True], repeat=bits)))


def integers(packed: Tensor, bits: int) -> list[int]:
    return [int.from_bytes(bytes(row), "big") >> (-bits % 8) for row in packed.tolist()]


@given(st.sampled_from(ORDERS), st.sampled_from(WIDTHS), st.integers(1, 70), st.integers(0, 5))
def test_spans_share_out_all_words(order: str, widths: str, vocab_size: int, spare_bits: int) -> None:
    bits = max(1, (vocab_size - 1).bit_length()) + spare_bits
    book = span_book(order, widths, vocab_size, bits)
    owners = book.decode(all_words(bits))
    changes = 1 + int((owners[1:] != owners[:-1]).sum())
    assert changes == vocab_size == len(owners.unique())  # consecutive, one a token, none empty


@pytest.mark.parametrize("bits", [13, 64, 130, 2000])
@pytest.mark.parametrize("order", ORDERS)
def test_any_number_of_bits_has_exact_ends(order: str, bits: int) -> None:
    book = span_book(order, "frequency", 40, bits)
    assert book.spans is not None
    first, last = integers(book.spans.first, bits), integers(book.spans.last, bits)
    assert first[0] == 0 and last[-1] == 2**bits - 1
    assert [end + 1 for end in last[:-1]] == first[1:]
    ends = torch.cat([codes.unpack(book.spans.first, bits), codes.unpack(book.spans.last, bits)])
    assert torch.equal(book.decode(ends), book.spans.owner.long().repeat(2))


def test_widths_follow_their_shares() -> None:
    counts, vectors = zipf_counts(40), word_vectors(40)
    similarity = torch.nn.functional.cosine_similarity(vectors, vectors[counts.argmax()], dim=-1).double()
    shares = {
        "frequency": counts / counts.sum(),
        "softmax": similarity.softmax(0),
        "linear": (similarity - similarity.min()) / (similarity - similarity.min()).sum(),
        "uniform": torch.full((40,), 1 / 40),
    }
    for widths, expected in shares.items():
        book = span_book("embedding", widths, 40, 60)
        assert book.spans is not None
        pairs = zip(integers(book.spans.first, 60), integers(book.spans.last, 60), strict=True)
        width = torch.tensor([(last - first + 1) / 2**60 for first, last in pairs], dtype=torch.float64)
        torch.testing.assert_close(width, expected.double()[book.spans.owner], rtol=1e-5, atol=1e-9)


def test_orders_are_those_of_the_paper() -> None:
    counts, vectors = zipf_counts(40), word_vectors(40)
    unigram = span_book("unigram", "frequency", 40, 20).spans
    assert unigram is not None and (counts[unigram.owner.long()].diff() <= 0).all()
    embedding = span_book("embedding", "softmax", 40, 20).spans
    similarity = torch.nn.functional.cosine_similarity(vectors, vectors[counts.argmax()], dim=-1)
    assert embedding is not None and (similarity[embedding.owner.long()].diff() <= 1e-6).all()
    assert embedding.owner[0] == counts.argmax()


def test_bits_at_one_half_give_the_unigram_model() -> None:
    counts = zipf_counts(40)
    book = codes.build("span-unigram", 40, 80, counts)
    mass = span_masses(book, torch.zeros(1, 80, dtype=torch.float64))
    torch.testing.assert_close(mass[0].exp(), counts.double() / counts.sum(), rtol=1e-9, atol=0)


def span_masses(book: codes.Codebook, logits: Tensor) -> Tensor:
    assert book.spans is not None
    first, last = (codes.unpack(end[book.spans.place], book.bits) for end in (book.spans.first, book.spans.last))
    return codes.log_span_mass(logits.unsqueeze(1), first, last)


@pytest.mark.parametrize("bits", [14, 40, 200, 1000])
@pytest.mark.parametrize("order", ORDERS)
def test_masses_of_all_tokens_sum_to_one(order: str, bits: int) -> None:
    book = span_book(order, "frequency", 300, bits)
    for scale in (0.1, 3.0, 30.0):
        total = span_masses(book, scale * torch.randn(4, bits, dtype=torch.float64)).logsumexp(-1)
        torch.testing.assert_close(total, torch.zeros_like(total), rtol=0, atol=1e-9)


def test_masses_stay_finite_and_differentiable_at_extreme_logits() -> None:
    book = span_book("unigram", "frequency", 300, 1024)
    logits = (200 * torch.randn(3, 1024)).requires_grad_()
    mass = span_masses(book, logits)
    mass.sum().backward()
    assert torch.isfinite(mass).all() and logits.grad is not None and torch.isfinite(logits.grad).all()
    assert mass.min() < -1000  # far below what a difference of probabilities could tell


def ends(low: int, high: int, bits: int) -> tuple[Tensor, Tensor]:
    first, last = (torch.tensor([bool(value >> i & 1) for i in reversed(range(bits))]) for value in (low, high))
    return first, last


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), *[st.integers(0, 2**n - 1)] * 2)), st.integers(0, 99))
def test_mass_and_best_codeword_equal_brute_force(case: tuple[int, int, int], seed: int) -> None:
    bits, a, b = case
    low, high = min(a, b), max(a, b)
    scale = (0.05, 2.0)[seed % 2]  # bits that are nearly even tell most about the choice between cylinders
    logits = scale * torch.randn(bits, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    inside = all_words(bits)[low : high + 1]
    log_probability = codes.log_codeword_probability(logits, inside)
    first, last = ends(low, high, bits)
    torch.testing.assert_close(codes.log_span_mass(logits, first, last), log_probability.logsumexp(0))
    best = codes.best_codeword(logits, first, last)
    assert torch.equal(best, inside[log_probability.argmax()])


@given(
    st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, 2**n - 1), min_size=1))),
    st.sampled_from([0.01, 1.0, 10.0, 300.0]),
    st.integers(0, 99),
)
def test_masses_byte_by_byte_equal_those_bit_by_bit(case: tuple[int, list[int]], scale: float, seed: int) -> None:
    """Any spans: within a byte, over several, of one codeword, of all; and ones too improbable for float64."""
    bits, numbers = case
    pairs = [ends(min(pair), max(pair), bits) for pair in zip(numbers, [*numbers[1:], numbers[0]], strict=True)]
    first, last = (torch.stack(end) for end in zip(*pairs, strict=True))
    logits = scale * torch.randn(3, bits, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = codes.log_span_mass(logits.unsqueeze(1), first, last)
    found = codes.log_span_masses(logits, codes.pack(first), codes.pack(last))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    with patch("ecoc.codes.span_mass._AT_ONCE", 128):  # a row at a time, improbable spans two at a time
        pieces = codes.log_span_masses(logits, codes.pack(first), codes.pack(last))
    assert torch.equal(pieces, found)
    rough = codes.log_span_masses(logits.float(), codes.pack(first), codes.pack(last))
    expected = codes.log_span_mass(logits.float().double().unsqueeze(1), first, last)
    torch.testing.assert_close(rough, expected.float(), rtol=2e-7, atol=1e-12)  # all digits of float32


@pytest.mark.parametrize("bits", [14, 40, 1000])
def test_masses_byte_by_byte_go_deep_only_where_they_must(bits: int) -> None:
    """Bits that are certain carry probability to the last byte; others fade out long before."""
    book = span_book("random", "frequency", 300, bits)
    assert book.spans is not None
    first, last = (end[book.spans.place] for end in (book.spans.first, book.spans.last))
    certain = torch.where(codes.unpack(first[:3], bits), 500.0, -500.0).double()  # each the first codeword of a span
    certain[:, -1] = 0.0
    for logits in (certain, 3 * torch.randn(3, bits, dtype=torch.float64)):
        found = codes.log_span_masses(logits, first, last)
        torch.testing.assert_close(found, span_masses(book, logits), rtol=1e-9, atol=1e-12)


def test_mass_equals_a_sum_in_exact_arithmetic_where_a_difference_would_be_zero() -> None:
    """A span of probability 2^-100 next to one of nearly 1: F(hi) - F(lo) has no digit left."""
    first, last = ends(0, 2**20 - 1, 120)
    mass = codes.log_span_mass(torch.zeros(120, dtype=torch.float64), first, last)
    assert mass.item() == pytest.approx(-100 * math.log(2), rel=1e-12)


def test_mass_gradients_match_finite_differences() -> None:
    book = span_book("random", "uniform", 11, 9)
    logits = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: span_masses(book, z), [logits])
