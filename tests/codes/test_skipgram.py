import importlib.util
import sys

import numpy as np
import pytest
import torch

from ecoc.codes.skipgram import _Sentences, skipgram_vectors
from ecoc.codes.vectors import progress_bar

needs_gensim = pytest.mark.skipif(importlib.util.find_spec("gensim") is None, reason="gensim is missing")


def two_topics(length: int = 12_000) -> np.ndarray:
    """Runs of words 0 to 9, then of words 10 to 19, and so on; 20 occurs once and 21 never."""
    rng = np.random.default_rng(0)
    topic = np.repeat(rng.integers(0, 2, length // 20), 20)
    return np.append(10 * topic + rng.integers(0, 10, len(topic)), 20)


@needs_gensim
def test_words_of_a_topic_are_near():
    vectors = skipgram_vectors(two_topics(), 22, dim=16, epochs=3)
    unit = torch.nn.functional.normalize(vectors.matrix - vectors.matrix[:20].mean(0))
    cosine = unit @ unit.T
    assert cosine[:10, :10].min() > 0.5 and cosine[10:20, 10:20].min() > 0.5
    assert cosine[:10, 10:20].max() < 0


@needs_gensim
def test_each_row_is_the_vector_that_gensim_gives_its_token():
    ids = two_topics(4000)
    vectors = skipgram_vectors(torch.from_numpy(ids), 22, dim=8, window=3, epochs=2, seed=5)
    sentences = [[str(token) for token in ids[start : start + 1000]] for start in range(0, len(ids), 1000)]
    word2vec = pytest.importorskip("gensim.models").Word2Vec
    model = word2vec(sentences, vector_size=8, window=3, epochs=2, seed=5, min_count=1, workers=1, sg=1)
    np.testing.assert_array_equal(vectors.matrix[:21], model.wv[[str(token) for token in range(21)]])


@needs_gensim
def test_one_worker_gives_the_same_vectors_each_time_and_another_seed_others():
    ids = two_topics(3000)
    first, again, other = (skipgram_vectors(ids, 22, dim=8, seed=seed).matrix for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first.isclose(other).all()


@needs_gensim
def test_rare_and_unseen_words_are_not_found():
    vectors = skipgram_vectors(two_topics(3000), 22, dim=8, epochs=1, min_count=2)
    assert vectors.found.tolist() == [True] * 20 + [False] * 2
    assert vectors.matrix[20:].eq(0).all() and vectors.matrix[:20].ne(0).any(1).all()
    assert vectors.source == "skip-gram (window 5) of 3001 tokens"


def test_sentences_are_the_whole_stream_and_may_be_iterated_again():
    ids = np.random.default_rng(0).integers(0, 50, 2500)
    sentences = _Sentences(ids, 50, progress_bar(False), passes=2)
    for _ in range(2):
        pieces = list(sentences)
        assert [len(piece) for piece in pieces] == [1000, 1000, 500]
        assert [int(word) for piece in pieces for word in piece] == ids.tolist()
    assert pieces[0][0] is sentences.names[ids[0]]  # shared strings, not one for each token of the stream


@needs_gensim
def test_progress_goes_to_standard_error(capsys):
    skipgram_vectors(two_topics(2000), 22, dim=4, epochs=1, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "skip-gram" in err and "100%" in err


@needs_gensim
@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (torch.empty(0).long(), {}, "ids must be a stream"),
        (torch.tensor([0, 22]), {}, r"ids must be within \[0, 22\)"),
        (torch.tensor([0, 0, 1]), {"min_count": 3}, "min_count=3 leaves no token: lower it to 2 or less"),
        (torch.tensor([0, 1]), {"dim": 0}, "dim must be at least 1, got 0"),
        (torch.tensor([0, 1]), {"window": 0}, "window must be at least 1"),
        (torch.tensor([0, 1]), {"epochs": 0}, "epochs must be at least 1"),
        (torch.tensor([0, 1]), {"workers": 0}, "workers must be at least 1"),
    ],
)
def test_bad_arguments_are_named(ids, options, message):
    with pytest.raises(ValueError, match=message):
        skipgram_vectors(ids, 22, **options)


def test_without_gensim_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ImportError, match=r'pip install "ecoc\[vectors\]"'):
        skipgram_vectors(two_topics(100), 22)
