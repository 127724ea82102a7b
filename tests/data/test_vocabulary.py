import hashlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoc.data.vocabulary import EOS, UNK, Vocabulary, tokenise

COUNTS = {"the": 5, "cat": 2, "dog": 2, "sat": 1, EOS: 3}
words = st.text(min_size=1).filter(lambda word: len(word.split()) == 1 and word.split()[0] == word)


def vocabulary_of(text, tokeniser):
    found = tokenise(text, tokeniser)
    return Vocabulary.build({word: found.count(word) for word in found}, tokeniser=tokeniser)


# --- building


def test_ids_follow_frequency_and_ties_the_alphabet():
    vocabulary = Vocabulary.build(COUNTS)
    assert vocabulary.words == ("the", EOS, "cat", "dog", "sat", UNK)
    assert vocabulary.counts == (5, 3, 2, 2, 1, 0)
    assert Vocabulary.build(dict(reversed(COUNTS.items()))) == vocabulary
    assert vocabulary.unk == 5 and vocabulary.eos == 1 and len(vocabulary) == 6
    assert "cat" in vocabulary and "cow" not in vocabulary


@pytest.mark.parametrize(
    ("limits", "kept", "counts"),
    [
        ({"min_count": 2}, ("the", EOS, "cat", "dog", UNK), (5, 3, 2, 2, 1)),
        ({"max_size": 4}, ("the", EOS, UNK, "cat"), (5, 3, 3, 2)),
        ({"max_size": 3}, (UNK, "the", EOS), (5, 5, 3)),
        ({"min_count": 6}, (UNK, EOS), (10, 3)),
        ({"max_size": 6}, ("the", EOS, "cat", "dog", "sat", UNK), (5, 3, 2, 2, 1, 0)),
    ],
)
def test_words_that_fall_out_are_counted_as_unknown(limits, kept, counts):
    vocabulary = Vocabulary.build(COUNTS, **limits)
    assert vocabulary.words == kept and vocabulary.counts == counts


def test_ties_at_the_size_limit_follow_the_alphabet():
    assert "cat" in Vocabulary.build({"dog": 2, "cat": 2}, max_size=3)
    assert "cat" in Vocabulary.build({"cat": 2, "dog": 2}, max_size=3)


def test_unknown_words_of_the_text_itself_and_rare_ones_add_up():
    assert Vocabulary.build({UNK: 4, "a": 9, "b": 1}, min_count=2).counts == (9, 5, 0)


@given(
    st.dictionaries(words, st.integers(1, 50)),
    st.integers(1, 20),
    st.none() | st.integers(3, 10),
)
def test_no_count_is_lost_and_sizes_are_kept(counter, min_count, max_size):
    vocabulary = Vocabulary.build(counter, min_count=min_count, max_size=max_size)
    assert sum(vocabulary.counts) == sum(counter.values())
    assert list(vocabulary.counts) == sorted(vocabulary.counts, reverse=True)
    assert max_size is None or len(vocabulary) <= max_size
    assert vocabulary.counts_tensor().dtype == torch.float64
    assert vocabulary.counts_tensor().tolist() == list(vocabulary.counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": 0}, "min_count must be at least 1, got 0"),
        ({"max_size": 2}, "max_size must be at least 3"),
        ({"tokeniser": "bytes"}, "tokeniser must be one of whitespace, simple, got 'bytes'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.build(COUNTS, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("a", UNK, EOS), (1, 2)), "counts must be one a word, got 2 for 3 words"),
        ((("a", "a", UNK, EOS), (1, 1, 1, 1)), "words must differ from each other, got 1 repeated"),
        ((("a", EOS), (1, 1)), "words must have <unk> and <eos> among them"),
    ],
)
def test_a_vocabulary_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(*arguments)


# --- tokenising, encoding and decoding


def test_whitespace_changes_nothing_but_line_ends():
    assert tokenise("The cat's  <unk>,\t3.5\r\n\n日本 <eos>", "whitespace") == [
        *["The", "cat's", "<unk>,", "3.5", EOS, EOS, "日本", EOS]
    ]


def test_simple_sets_words_numbers_and_punctuation_apart():
    text = "The cat's file_name, x2 = 3.5 (naïve)\n<unk> <UNK>—Привет _ __init__ <eos>"
    assert tokenise(text, "simple") == [
        *["the", "cat's", "file_name", ",", "x", "2", "=", "3", ".", "5", "(", "naïve", ")", EOS],
        *[UNK, UNK, "—", "привет", "_", "_", "_", "init", "_", "_", EOS],
    ]


def test_unknown_words_get_the_unknown_id_and_no_text_no_ids():
    vocabulary = Vocabulary.build(COUNTS)
    assert vocabulary.encode("the cow sat\n") == [0, 5, 4, 1]
    assert vocabulary.encode_words(["dog", "cow"]) == [3, 5]
    assert vocabulary.encode("") == [] and vocabulary.text_of([]) == ""
    assert vocabulary.words_of(torch.tensor([0, 2])) == ["the", "cat"]


def test_simple_text_reads_as_people_write_it():
    text = "is it (really) so? yes: one, two; three!\n<unk>."
    vocabulary = vocabulary_of(text, "simple")
    assert vocabulary.text_of(vocabulary.encode(text)) == text


def test_whitespace_text_keeps_its_blanks():
    vocabulary = vocabulary_of("so ( it ) is .\n\nYes !", "whitespace")
    assert vocabulary.text_of(vocabulary.encode("so ( it ) is .\n\nYes !\n")) == "so ( it ) is .\n\nYes !\n"


@pytest.mark.parametrize("tokeniser", ["whitespace", "simple"])
@given(text=st.text() | st.text("aB1 ,.()<eos>unk'_\n"))
def test_encoding_the_text_of_ids_gives_the_ids_again(tokeniser, text):
    vocabulary = vocabulary_of(text, tokeniser)
    ids = vocabulary.encode(text)
    assert vocabulary.words_of(ids) == tokenise(text, tokeniser)
    assert vocabulary.encode(vocabulary.text_of(ids)) == ids


@given(text=st.text())
def test_simple_loses_no_character(text):
    found = "".join(tokenise(text, "simple")).replace(EOS, "")
    assert found == "".join(text.lower().split()).replace(EOS, "")


# --- saving


@given(st.dictionaries(words, st.integers(1, 1 << 40)), st.sampled_from(["whitespace", "simple"]))
def test_loads_what_it_saved(tmp_path_factory, counter, tokeniser):
    vocabulary = Vocabulary.build(counter, tokeniser=tokeniser)
    path = tmp_path_factory.mktemp("saved") / "deep" / "vocabulary.json"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "v.json"
    Vocabulary.build(COUNTS).save(path)
    before = path.read_bytes()
    monkeypatch.setattr("ecoc.data.vocabulary.os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        Vocabulary.build({"other": 1}).save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: b"\x80" + content,
        lambda content: b"[1, 2]",
        lambda content: b"[" * 100_000,
        lambda content: b"{}",
        lambda content: content.replace(b"vocabulary 1", b"vocabulary 9"),
        lambda content: content.replace(b'"the"', b"7"),
        lambda content: content.replace(b'"the"', b'"cat"'),
        lambda content: content.replace(b"[5,", b"[-5,"),
        lambda content: content.replace(b"[5,", b"[5, 5,"),
        lambda content: content.replace(b"whitespace", b"bytes"),
        lambda content: content.replace(b"<unk>", b"<UNK>"),
    ],
)
def test_damaged_and_foreign_files_are_refused_in_one_line(tmp_path, change):
    path = tmp_path / "v.json"
    Vocabulary.build(COUNTS).save(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=r"v\.json: not a vocabulary, or damaged .*; restore the file") as caught:
        Vocabulary.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"v\.json: no such file"):
        Vocabulary.load(tmp_path / "v.json")


def test_fingerprint_tells_words_order_and_tokeniser_apart_but_not_counts():
    one = Vocabulary(("a", UNK, EOS), (3, 2, 1))
    others = [Vocabulary((UNK, "a", EOS), (3, 2, 1)), Vocabulary(("a", UNK, EOS), (3, 2, 1), "simple")]
    assert one.fingerprint == Vocabulary(("a", UNK, EOS), (9, 0, 0)).fingerprint
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 3
    content = json.dumps(["whitespace", ["a", UNK, EOS]]).encode()
    assert one.fingerprint == hashlib.sha256(content).hexdigest()  # stays the same over versions and machines


def test_repr_is_one_line():
    assert repr(Vocabulary.build(COUNTS)) == "Vocabulary(6 words, whitespace: the, <eos>, cat, ...)"
