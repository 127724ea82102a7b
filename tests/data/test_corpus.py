import gzip
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoc.data import EOS, UNK, Vocabulary, builtin_splits, corpus, encode_file, open_corpus, tokenise
from ecoc.data.sources import SPLITS

TEXTS = {
    "train": "the cat sat\n\nthe dog sat on the cat\n",
    "valid": "the cow sat\n",
    "test": "a dog\nsat",
}


@pytest.fixture
def folder(tmp_path):
    """A corpus of a few words."""
    (tmp_path / "corpus").mkdir()
    for split, text in TEXTS.items():
        (tmp_path / "corpus" / f"{split}.txt").write_text(text)
    return tmp_path / "corpus"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def words(opened, split):
    return opened.vocabulary.words_of(opened.split(split))


# --- ids


def test_every_line_also_an_empty_and_the_last_one_ends_with_eos(folder, cache):
    opened = open_corpus(folder, cache=cache)
    assert words(opened, "train") == ["the", "cat", "sat", EOS, EOS, "the", "dog", "sat", "on", "the", "cat", EOS]
    assert words(opened, "valid") == ["the", UNK, "sat", EOS]
    assert words(opened, "test") == [UNK, "dog", EOS, "sat", EOS]
    assert opened.vocabulary.words == ("<eos>", "the", "cat", "sat", "dog", "on", "<unk>")
    assert repr(opened) == "Corpus(corpus: 7 words, 12 + 4 + 5 tokens)"


def test_ids_are_memory_maps_that_nobody_can_write(folder, cache):
    opened = open_corpus(folder, cache=cache)
    for split in SPLITS:
        ids = opened.split(split)
        assert isinstance(ids, np.memmap) and ids.dtype == np.int32 and not ids.flags.writeable
    with pytest.raises(ValueError, match="split must be one of train, valid, test, got 'dev'"):
        opened.split("dev")


@given(
    st.lists(st.text("ab é\t.\r\u2028", max_size=8), min_size=20, max_size=60),
    st.sampled_from(["whitespace", "simple"]),
)
def test_ids_are_those_of_the_words_of_each_line(tmp_path_factory, lines, tokeniser):
    folder = tmp_path_factory.mktemp("corpus")
    lines = ["a b a b", *lines]
    for split in SPLITS:
        (folder / split).write_bytes("\n".join(lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ecoc.data.text._PIECE", 16)
        opened = open_corpus(folder, cache=folder / "cache", tokeniser=tokeniser)
    if not lines[-1]:
        lines.pop()  # the file ends with a line end then
    expected = [word for line in lines for word in [*tokenise(line, tokeniser), EOS]]
    assert words(opened, "train") == words(opened, "test") == expected
    counts = Counter(expected)
    assert opened.vocabulary.counts == tuple(counts[word] for word in opened.vocabulary.words)
    np.testing.assert_array_equal(encode_file(folder / "train", opened.vocabulary), opened.train)


def test_options_choose_the_words(folder, cache):
    opened = open_corpus(folder, cache=cache, min_count=2)
    assert opened.vocabulary.words == (EOS, "the", UNK, "cat", "sat")
    assert words(opened, "train")[5:] == ["the", UNK, "sat", UNK, "the", "cat", EOS]
    assert len(open_corpus(folder, cache=cache, max_size=4).vocabulary) == 4
    assert open_corpus(folder, cache=cache, tokeniser="simple").vocabulary.tokeniser == "simple"


def test_a_given_vocabulary_is_used_as_it_is(folder, cache):
    vocabulary = Vocabulary.build({"cow": 3, "the": 1}, tokeniser="simple")
    opened = open_corpus(folder, cache=cache, vocabulary=vocabulary)
    assert opened.vocabulary is vocabulary
    assert words(opened, "valid") == ["the", "cow", UNK, EOS]
    assert words(open_corpus(folder, cache=cache), "valid") == ["the", UNK, "sat", EOS]
    with pytest.raises(ValueError, match="leave out tokeniser, min_count and max_size"):
        open_corpus(folder, cache=cache, vocabulary=vocabulary, min_count=1)


def test_a_file_alone_is_encoded_with_a_vocabulary(tmp_path):
    vocabulary = Vocabulary.build({"the": 3, "cat": 2})
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"the cat\n\nthe cow"))
    ids = encode_file(tmp_path / "text.gz", vocabulary)
    assert ids.dtype == np.int32
    assert vocabulary.words_of(ids) == ["the", "cat", EOS, EOS, "the", UNK, EOS]


@pytest.mark.usefixtures("_quick_builtin")
def test_the_builtin_corpus_is_that_of_its_lines(cache):
    opened = open_corpus("builtin", cache=cache)
    assert opened.vocabulary.tokeniser == "simple"
    assert min(opened.vocabulary.counts) >= 2
    assert len(open_corpus("builtin", cache=cache, min_count=1).vocabulary) > 1.5 * len(opened.vocabulary)
    for split, lines in builtin_splits().items():
        expected = [number for line in lines for number in opened.vocabulary.encode(f"{line}\n")]
        np.testing.assert_array_equal(opened.split(split), expected)


# --- the cache


@pytest.fixture
def encoded(monkeypatch):
    """What was encoded so far: nothing as long as the cache serves."""
    texts, encode = [], Vocabulary.encode
    monkeypatch.setattr(Vocabulary, "encode", lambda self, text: (texts.append(text), encode(self, text))[1])
    return texts


def test_the_cache_is_used_again_until_a_file_or_an_option_changes(folder, cache, encoded):
    first = open_corpus(folder, cache=cache)
    assert len(encoded) == 4  # the last line of test, without an end, is a piece of its own
    second = open_corpus(folder, cache=cache)
    assert len(encoded) == 4 and second.vocabulary == first.vocabulary
    np.testing.assert_array_equal(second.train, first.train)
    open_corpus(folder, cache=cache, min_count=2)
    assert len(encoded) == 8
    os.utime(folder / "test.txt", ns=(0, 12345))
    open_corpus(folder, cache=cache)
    assert len(encoded) == 12
    (folder / "test.txt").write_text("a cat sat\n")
    os.utime(folder / "test.txt", ns=(0, 12345))  # a clock may be too coarse to show a change
    assert words(open_corpus(folder, cache=cache), "test") == [UNK, "cat", "sat", EOS]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")])
@pytest.mark.parametrize("call", [0, 1, 3])
def test_an_interrupted_encoding_leaves_nothing_and_the_next_one_starts_again(folder, cache, monkeypatch, call, error):
    encode, calls = Vocabulary.encode, iter(range(100))

    def interrupted(self, text):
        if next(calls) == call:
            raise error
        return encode(self, text)

    monkeypatch.setattr(Vocabulary, "encode", interrupted)
    with pytest.raises(type(error) if isinstance(error, OSError) else error):
        open_corpus(folder, cache=cache)
    assert list(cache.iterdir()) == []
    assert len(open_corpus(folder, cache=cache).test) == 5


def test_what_a_killed_process_leaves_is_not_taken_for_whole_and_swept_when_old(folder, cache, monkeypatch):
    with monkeypatch.context() as patch:  # killed: nothing is cleaned up
        patch.setattr(corpus.shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(Vocabulary, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_corpus(folder, cache=cache)
    (left,) = cache.iterdir()
    assert (left / "train.bin").exists()
    assert len(open_corpus(folder, cache=cache).test) == 5
    assert left.exists()  # it may be that of a process which is still at work
    os.utime(left, (time.time() - 7200,) * 2)
    open_corpus(folder, cache=cache, min_count=2)
    assert not left.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "train.bin").write_bytes((path / "train.bin").read_bytes()[:-4]),
        lambda path: (path / "test.bin").unlink(),
        lambda path: (path / "tokens.json").write_text(""),
        lambda path: (path / "tokens.json").write_text("[]"),
        lambda path: (path / "tokens.json").write_text("{}"),
        lambda path: (path / "vocabulary.json").write_text("{"),
    ],
)
def test_a_damaged_cache_is_written_again(folder, cache, damage):
    open_corpus(folder, cache=cache)
    (path,) = cache.iterdir()
    damage(path)
    opened = open_corpus(folder, cache=cache)
    assert words(opened, "valid") == ["the", UNK, "sat", EOS] and len(opened.train) == 12
    assert list(cache.iterdir()) == [path]


@pytest.mark.parametrize("attempt", range(10))
def test_several_may_write_the_same_cache_at_once(folder, cache, attempt):
    barrier = threading.Barrier(8)

    def work(_):
        barrier.wait()
        return open_corpus(folder, cache=cache)

    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(work, range(8)))
    assert len({tuple(each.train) for each in opened}) == 1
    assert len(list(cache.iterdir())) == 1


# --- bad input


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ({"train": "word word\nword\n"}, {}, "corpus: a vocabulary of 1 word.* is too small .* give more text"),
        ({"train": f"{UNK} a {EOS}\n"}, {}, "a vocabulary of 1 word"),
        ({}, {"min_count": 9}, "a vocabulary of 0 word.* lower min_count"),
        ({"valid": ""}, {}, "valid.txt: the file is empty"),
        ({"train": "\n\n"}, {}, "train.txt: the file is empty"),
        ({"test": "a b\nc\0"}, {}, "test.txt, line 2: a NUL byte"),
        ({}, {"tokeniser": "bytes"}, "tokeniser must be one of whitespace, simple, got 'bytes'"),
        ({"train": ""}, {"min_count": 0}, "min_count must be at least 1"),  # found before any file is read
        ({}, {"max_size": 1}, "max_size must be at least 3"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_nothing_is_left(folder, cache, texts, options, message):
    for split, text in texts.items():
        (folder / f"{split}.txt").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        open_corpus(folder, cache=cache, **options)
    assert "\n" not in str(caught.value)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_split_of_one_token_is_refused(tmp_path, cache):
    lines = [f"line {number}" for number in range(20)]
    lines[18] = ""
    (tmp_path / "text").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"text: valid has 1 token\(s\), but predicting takes 2 or more"):
        open_corpus(tmp_path / "text", cache=cache)


def test_a_presets_tokens_are_checked_and_nothing_is_cached(tmp_path, cache):
    for split, text in TEXTS.items():
        (tmp_path / f"wiki.{split}.tokens").write_text(text)
    message = r"wiki.train.tokens has 12 tokens instead of 2088628, .*wiki.test.tokens has 5 tokens instead of 245569"
    with pytest.raises(ValueError, match=message):
        open_corpus("wikitext-2", data_dir=tmp_path, cache=cache)
    assert list(cache.iterdir()) == []


# --- real corpora


@pytest.mark.parametrize(
    ("name", "tokens", "size"),
    [
        ("ptb", [929_589, 73_760, 82_430], 10_000),
        ("wikitext-2", [2_088_628, 217_646, 245_569], 33_278),
    ],
)
def test_presets_have_their_published_tokens_and_words(shared_data, cache, name, tokens, size):
    opened = open_corpus(name, data_dir=shared_data, cache=cache)
    assert [len(opened.split(split)) for split in SPLITS] == tokens
    assert len(opened.vocabulary) == size
    assert sum(opened.vocabulary.counts) == tokens[0]
    assert opened.vocabulary.counts == tuple(np.bincount(opened.train, minlength=size))
    np.testing.assert_array_equal(opened.train, open_corpus(shared_data / name, cache=cache).train)


def test_novels_have_their_tokens(shared_data, tmp_path, cache):
    """Not the training file: its 17M tokens take 10 s."""
    for split in ("valid", "test"):
        (tmp_path / f"{split}.txt.gz").symlink_to(shared_data / "novels100" / f"novels100.{split}.txt.gz")
    (tmp_path / "train.txt").symlink_to(shared_data / "novels100" / "novels100.test.txt.gz")
    opened = open_corpus(tmp_path, cache=cache)
    assert [len(opened.split(split)) for split in SPLITS] == [228_608, 177_395, 228_608]
    assert len(opened.vocabulary) == 11_744 + 2
