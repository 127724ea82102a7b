"""Distributed codes: BCH, Hadamard, convolutional, random, one-hot, semantic."""

from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ecoc import codes
from ecoc.codes.bch import generator_polynomial
from ecoc.codes.codebook import duplicate_rows
from ecoc.codes.convolutional import GENERATORS, Trellis, integer_bits
from tests.heads.cases import zipf_counts


@pytest.mark.parametrize(("degree", "message_bits"), [(4, 5), (4, 7), (6, 10), (7, 14), (7, 22), (8, 18)])
def test_bch_generators_are_those_of_galois(degree: int, message_bits: int) -> None:
    galois = pytest.importorskip("galois")
    generator = generator_polynomial(degree, message_bits)
    length = 2**degree - 1
    reference = galois.BCH(length, length - generator.bit_length() + 1)
    assert int(reference.generator_poly) == generator
    assert reference.k >= message_bits


def test_bch_reaches_its_designed_distance() -> None:
    counts = zipf_counts(10_000)
    assert codes.build("bch", 10_000, 127, counts).minimum_distance() >= 55  # BCH(127, 15)
    assert codes.build("bch", 10_000, 128, counts).minimum_distance() >= 56  # and one more with a parity bit


def test_hadamard_codewords_are_half_or_all_apart() -> None:
    words = codes.build("hadamard", 30, 16).encode(torch.arange(30))
    distances = {int((words[a] ^ words[b]).sum()) for a, b in combinations(range(30), 2)}
    assert distances == {8, 16}


@pytest.mark.parametrize("constraint", GENERATORS)
def test_convolutional_codes_reach_their_free_distance(constraint: int) -> None:
    """The free distances of Larsen's table; the message is long enough to reach them."""
    words = Trellis(constraint).encode(integer_bits(torch.arange(1, 1024), 10))
    assert int(words.sum(-1).min()) == {3: 5, 4: 6, 5: 7, 6: 8, 7: 10, 8: 10, 9: 12}[constraint]


@pytest.mark.parametrize("constraint", [3, 5, 7])
def test_viterbi_equals_a_search_through_all_messages(constraint: int) -> None:
    trellis = Trellis(constraint)
    messages = integer_bits(torch.arange(256), 8)
    words = trellis.encode(messages)
    logits = torch.randn(300, words.shape[1], dtype=torch.float64)
    best = ((words.double() * 2 - 1) @ logits.T).argmax(0)
    assert torch.equal(trellis.viterbi(logits), best)


def test_convolutional_decoding_stays_inside_the_vocabulary() -> None:
    book = codes.build("convolutional", 40, 20, zipf_counts(40))
    logits = torch.randn(500, 20)
    tokens = book.decode_soft(logits)
    assert tokens.max() < 40 and len(tokens.unique()) > 20
    words = book.encode(torch.arange(40)).float() * 2 - 1
    chosen = (words[tokens] * logits).sum(-1)
    best = (logits @ words.T).amax(-1)
    # a message beyond the vocabulary goes to the nearest codeword; all others are the best of the trellis
    torch.testing.assert_close(chosen, best)


@pytest.mark.parametrize(("vocab_size", "bits"), [(64, 6), (100, 7), (1000, 12), (1000, 64), (5000, 13)])
def test_random_codewords_are_distinct_and_fair(vocab_size: int, bits: int) -> None:
    book = codes.build("random", vocab_size, bits, seed=3)
    words = book.encode(torch.arange(vocab_size))
    assert len(words.unique(dim=0)) == vocab_size
    assert abs(words.float().mean() - 0.5) < 0.05
    assert not torch.equal(words, codes.build("random", vocab_size, bits, seed=4).encode(torch.arange(vocab_size)))


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, with equal values at their mean rank."""

    def ranks(x: Tensor) -> Tensor:
        _, inverse, number = x.unique(return_inverse=True, return_counts=True)
        after = number.cumsum(0).double()
        return (after - (number.double() - 1) / 2)[inverse]

    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


def hamming_and_cosine(book: codes.Codebook, vectors: Tensor, pairs: int = 50_000) -> tuple[Tensor, Tensor]:
    left, right = torch.randint(0, len(vectors), (2, pairs))
    different = left != right
    left, right = left[different], right[different]
    centred = torch.nn.functional.normalize(vectors - vectors.mean(0))
    return (book.encode(left) ^ book.encode(right)).sum(-1), 1 - (centred[left] * centred[right]).sum(-1)


def test_semantic_distance_follows_the_vectors_on_real_glove(shared_data: Path) -> None:
    words = (shared_data / "ptb").glob("*train*")
    import gzip

    with gzip.open(next(words), "rt", encoding="utf-8") as file:
        vocabulary = sorted(set(file.read().split()))
    vectors = codes.read_vectors(shared_data / "vectors" / "glove100.vec.gz", vocabulary)
    known = vectors.matrix[vectors.found]
    book = codes.build("semantic", len(known), 1024, vectors=known)
    assert rank_correlation(*hamming_and_cosine(book, known)) > 0.9


def test_semantic_distance_follows_the_vectors() -> None:
    vectors = torch.randn(2000, 20) + 1.5  # far from centred
    book = codes.build("semantic", 2000, 1024, vectors=vectors)
    assert rank_correlation(*hamming_and_cosine(book, vectors)) > 0.95
    share = book.encode(torch.arange(2000)).float().mean(0)
    assert (share - 0.5).abs().max() < 0.01  # medians as thresholds


def test_words_with_equal_vectors_still_get_codewords_of_their_own() -> None:
    vectors = torch.randn(10, 8).repeat(30, 1)
    book = codes.build("semantic", 300, 64, vectors=vectors)
    assert not duplicate_rows(book.packed).any()
    words = book.encode(torch.arange(300))
    same = (words[0] ^ words[torch.arange(10, 300, 10)]).sum(-1)
    other = (words[0] ^ words[torch.arange(5, 300, 10)]).sum(-1)
    assert same.max() < 12 < other.float().mean()


def test_a_word_without_a_vector_is_no_error() -> None:
    vectors = codes.WordVectors(torch.randn(20, 6), torch.arange(20) % 3 > 0, "somewhere")
    book = codes.build("semantic", 20, 32, vectors=vectors)
    assert book.vocab_size == 20


def test_one_hot_is_the_identity() -> None:
    assert torch.equal(codes.build("onehot", 11, 11).encode(torch.arange(11)), torch.eye(11).bool())


@pytest.mark.parametrize(("vocab_size", "bits"), [(4096, 12), (16_384, 14)])
def test_semantic_codes_can_use_up_every_word(vocab_size: int, bits: int) -> None:
    book = codes.build("semantic", vocab_size, bits, vectors=torch.randn(vocab_size, 10))
    assert not duplicate_rows(book.packed).any()
