import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ecoc.codes import contexts
from ecoc.codes.contexts import context_vectors, truncated_svd
from ecoc.codes.vectors import progress_bar

SHARED = Path(os.environ.get("ECOC_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def stream(length: int, words: int, unseen: int = 0, seed: int = 0) -> np.ndarray:
    """A text whose next word depends on the last; frequencies are Zipf's but not in order of ids."""
    rng = np.random.default_rng(seed)
    ranks = rng.permutation(words)
    likely = 1 / (1 + np.arange(words))
    ids = [0]
    for _ in range(length - 1):
        rank = rng.choice(words, p=likely / likely.sum())
        ids.append(int(ranks[(rank + 7 * (ids[-1] % 5)) % words]))
    return np.array(ids, dtype=np.int32) + unseen // 2  # half of the unseen words before, half after


def slow_context_vectors(ids, vocab_size, dim, offsets, width):
    """The same by counting one place at a time, with dense matrices and a full decomposition."""
    ids = [int(x) for x in ids]
    seen = sorted(set(ids), key=lambda word: (-ids.count(word), word))[:width]
    blocks = []
    for offset in offsets:
        both, word_count, context_count, total = np.zeros((vocab_size, vocab_size)), {}, {}, 0
        for place, word in enumerate(ids):
            if 0 <= place + offset < len(ids):
                context = ids[place + offset]
                both[word, context] += 1
                word_count[word] = word_count.get(word, 0) + 1
                context_count[context] = context_count.get(context, 0) + 1
                total += 1
        block = np.zeros_like(both)
        for word, context in zip(*both.nonzero(), strict=True):
            independent = word_count[word] / total * context_count[context] / total
            block[word, context] = max(0.0, np.log(both[word, context] / total / independent))
        blocks.append(block[:, seen])
    matrix = np.concatenate(blocks, 1)
    left, singular, _ = np.linalg.svd(matrix, full_matrices=False)
    vectors = left[:, :dim] * np.sqrt(singular[:dim])
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    found = matrix.any(1)
    return np.where(found[:, None], vectors / np.maximum(norm, 1e-300), 0), found


@pytest.mark.parametrize(
    ("words", "dim", "offsets", "width"),
    [
        (40, 6, (-2, -1, 1), 3000),  # the basis of the decomposition is the whole space
        (40, 12, (1,), 25),
        (40, 5, (-1, 3, -7), 13),
        (200, 6, (-2, -1, 1), 3000),  # 600 columns: the basis is a Krylov space of 340 directions
    ],
)
def test_vectors_are_those_of_a_slow_dense_computation(words, dim, offsets, width):
    ids = stream(6000, words, unseen=4)
    got = context_vectors(ids, words + 4, dim=dim, offsets=offsets, contexts=width)
    expected, found = slow_context_vectors(ids, words + 4, dim, offsets, width)
    assert got.matrix.shape == (words + 4, dim) and got.matrix.dtype == torch.float32
    assert got.found.tolist() == found.tolist()
    np.testing.assert_allclose(got.matrix @ got.matrix.T, expected @ expected.T, atol=2e-6)


def test_found_vectors_have_length_one_and_words_never_seen_are_zero():
    got = context_vectors(stream(4000, 50, unseen=10), 60, dim=8)
    assert got.found.tolist() == [5 <= word < 55 for word in range(60)]
    torch.testing.assert_close(got.matrix.norm(dim=1), got.found.float())
    assert repr(got) == "WordVectors(60 x 8 from contexts (-2, -1, +1) of 4000 tokens, 50 found, 10 missing)"


def test_counting_in_small_chunks_changes_nothing(monkeypatch):
    ids = stream(5000, 40)
    whole = context_vectors(ids, 40, dim=5)
    monkeypatch.setattr(contexts, "_CHUNK", 97)
    assert context_vectors(ids, 40, dim=5).matrix.equal(whole.matrix)


def test_same_seed_same_vectors_and_another_seed_hardly_differs():
    ids = stream(6000, 200)
    first, again, other = (context_vectors(ids, 200, dim=6, seed=seed).matrix for seed in (0, 0, 1))
    assert first.equal(again)
    torch.testing.assert_close(first @ first.T, other @ other.T, atol=1e-6, rtol=0)


def test_streams_may_be_tensors_arrays_or_memory_maps(tmp_path):
    ids = stream(3000, 30)
    expected = context_vectors(ids, 30, dim=4).matrix
    mapped = np.memmap(tmp_path / "ids", dtype=np.uint16, mode="w+", shape=ids.shape)
    mapped[:] = ids
    for form in (torch.from_numpy(ids), torch.from_numpy(ids).long(), ids.astype(np.int8), mapped):
        assert context_vectors(form, 30, dim=4).matrix.equal(expected)


def test_words_with_the_same_neighbours_are_near_and_the_offset_has_its_sign():
    # 0 and 1 follow the same words (10, 11) and precede different ones (20, 21).
    rng = np.random.default_rng(0)
    middle = rng.integers(0, 2, 4000)
    ids = np.stack([rng.integers(10, 12, 4000), middle, 20 + middle], 1).flatten()
    before = context_vectors(ids, 22, offsets=(-1,), dim=8).matrix
    after = context_vectors(ids, 22, offsets=(1,), dim=8).matrix
    assert before[0] @ before[1] > 0.9
    assert after[0] @ after[1] < 0.1


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_tiny_streams_give_as_many_dimensions_as_there_are(length):
    got = context_vectors(torch.arange(length) % 3, 5, dim=200)
    assert got.matrix.shape[0] == 5 and 1 <= got.matrix.shape[1] <= 3
    assert got.matrix.isfinite().all()
    assert not got.found[3:].any() and got.found.any() == (length > 2)
    torch.testing.assert_close(got.matrix.norm(dim=1), got.found.float())


@pytest.mark.parametrize("rank", [1, 5, 40])
def test_the_decomposition_stops_at_the_rank(rank):
    rng = np.random.default_rng(0)  # 700 columns, more than the 420 directions of the basis
    dense = rng.normal(size=(500, rank)) @ (rng.normal(size=(rank, 700)) * (rng.random((rank, 700)) < 0.3))
    left, singular = truncated_svd(torch.from_numpy(dense).to_sparse(), 20, 0, progress_bar(False))
    expected = np.linalg.svd(dense, compute_uv=False)[: min(rank, 20)]
    np.testing.assert_allclose(singular, expected, rtol=1e-8)
    np.testing.assert_allclose(left.T @ left, np.eye(len(expected)), atol=1e-8)


def test_the_decomposition_stands_equal_singular_values():
    left, singular = truncated_svd(torch.eye(900).double().to_sparse() * 3, 10, 0, progress_bar(False))
    torch.testing.assert_close(singular, torch.full((10,), 3.0).double())
    np.testing.assert_allclose(left.T @ left, np.eye(10), atol=1e-8)


def test_progress_goes_to_standard_error(capsys):
    context_vectors(stream(1000, 20), 20, dim=4, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "count -2" in err and "decompose" in err


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (torch.empty(0).long(), {}, r"ids must be a stream \(N,\) of at least one token"),
        (torch.zeros(3, 4).long(), {}, r"ids must be a stream .*got shape \(3, 4\)"),
        (torch.zeros(5), {}, r"ids must be integers, got float32: convert them with ids\.long\(\)"),
        (np.zeros(5, dtype=bool), {}, "ids must be integers, got bool"),
        (torch.tensor([0, 9]), {}, r"ids must be within \[0, 9\), got 0 to 9: pass the vocab_size"),
        (torch.tensor([-1, 3]), {}, r"ids must be within \[0, 9\), got -1 to 3"),
        (torch.tensor([0, 1]), {"dim": 0}, "dim must be at least 1, got 0"),
        (torch.tensor([0, 1]), {"contexts": 0}, "contexts must be at least 1, got 0"),
        (torch.tensor([0, 1]), {"offsets": (-1, 0)}, r"offsets must hold neighbours other than 0.*\(-1, 0\)"),
        (torch.tensor([0, 1]), {"offsets": ()}, "offsets must hold neighbours"),
    ],
)
def test_bad_arguments_are_named(ids, options, message):
    with pytest.raises(ValueError, match=message):
        context_vectors(ids, 9, **options)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"PTB is not at {SHARED}")
def test_ptb_neighbours_make_sense():
    with gzip.open(SHARED / "ptb/ptb.train.txt.gz", "rt") as file:
        tokens = [word for line in file for word in [*line.split(), "<eos>"]]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys(tokens))}
    ids = np.array([vocabulary[token] for token in tokens])
    vectors = context_vectors(ids, len(vocabulary), dim=50, contexts=1000)
    assert vectors.matrix.shape == (10_000, 50) and vectors.coverage > 0.99
    words = list(vocabulary)

    def nearest(word: str, count: int) -> set[str]:
        similarity = vectors.matrix @ vectors.matrix[vocabulary[word]]
        return {words[i] for i in similarity.topk(count + 1).indices[1:]}

    assert {"tuesday", "wednesday", "thursday", "friday"} <= nearest("monday", 5)
    assert "she" in nearest("he", 3)
    assert "billion" in nearest("million", 3)
    assert "says" in nearest("said", 5)
