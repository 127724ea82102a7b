import gzip
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ecoc.codes.vectors import WordVectors, concatenate, fill_missing, read_vectors, write_vectors

SHARED = Path(os.environ.get("ECOC_SHARED", Path(__file__).parents[3] / "shared")) / "data"
WORDS = ["the", "naïve", "<unk>", "n't", "日本", "1989"]


@pytest.fixture
def matrix() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)


def keyed_vectors(words, matrix):
    keyed = pytest.importorskip("gensim.models").KeyedVectors(matrix.shape[1])
    keyed.add_vectors(words, matrix)
    return keyed


def binary_rows(words, matrix, end=b""):
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in zip(words, matrix, strict=True)]
    return f"{len(words)} {matrix.shape[1]}\n".encode() + b"".join(rows)


# --- reading


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin", "vectors.gz"])
def test_reads_what_gensim_writes_whatever_the_name(tmp_path, matrix, binary, zipped, name):
    keyed_vectors(WORDS, matrix).save_word2vec_format(tmp_path / "gensim", binary=binary)
    content = (tmp_path / "gensim").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if zipped else content)
    wanted = ["1989", "absent", "日本", "the"]
    got = read_vectors(tmp_path / name, wanted)
    np.testing.assert_array_equal(got.matrix[[0, 2, 3]], matrix[[5, 4, 0]])
    assert got.found.tolist() == [True, False, True, True]
    assert got.matrix[1].eq(0).all()
    assert got.missing_words == ("absent",)
    assert got.coverage == 0.75
    assert repr(got) == f"WordVectors(4 x 5 from {name}, 3 found, 1 missing: absent)"


def test_reads_binary_files_with_a_line_end_after_each_vector(tmp_path, matrix):
    (tmp_path / "c.bin").write_bytes(binary_rows(WORDS, matrix, end=b"\n"))
    np.testing.assert_array_equal(read_vectors(tmp_path / "c.bin", WORDS).matrix, matrix)


def test_small_binary_files_are_not_taken_for_text(tmp_path):
    for seed in range(200):
        matrix = np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32)
        (tmp_path / "v").write_bytes(binary_rows(["a", "b"], matrix))
        np.testing.assert_array_equal(read_vectors(tmp_path / "v", ["a", "b"]).matrix, matrix)


def test_a_character_cut_by_the_sample_does_not_make_text_binary(tmp_path):
    for padding in range(3):  # the bytes that tell the format end at each place inside a three-byte character
        words = ["x" * padding + "日" * 400, "the"]
        write_vectors(tmp_path / "v", words, torch.ones(2, 3))
        assert read_vectors(tmp_path / "v", words).matrix.equal(torch.ones(2, 3))


def test_reads_glove_without_header_and_tokens_with_blanks(tmp_path):
    lines = [". . . 9 9", "the 0.5 -1e-3", "at name@domain.com 2 3", "cat\t4\t5 "]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n\n")
    got = read_vectors(tmp_path / "glove.txt", ["cat", "at", "the", "at name@domain.com", ". . ."])
    assert got.found.tolist() == [True, False, True, True, True]
    expected = torch.tensor([[4, 5], [0, 0], [0.5, -1e-3], [2, 3], [9, 9]])
    assert got.matrix.equal(expected)


def test_a_number_as_first_word_is_not_taken_for_a_part_of_its_vector(tmp_path):
    (tmp_path / "glove.txt").write_text("1989 1 2\nthe 3 4\n")
    assert read_vectors(tmp_path / "glove.txt", ["the", "1989"]).matrix.tolist() == [[3, 4], [1, 2]]


def test_looks_for_exact_then_lower_then_capitalised_then_upper(tmp_path):
    (tmp_path / "v").write_text("IBM 1\nibm 2\nUs 3\nUS 4\nparis 5\nParis 6\nnasa 7\nNASA 8\nNATO 9\n")
    words = ["IBM", "ibm", "Ibm", "us", "PARIS", "paris", "Nasa", "nato", "uS"]
    got = read_vectors(tmp_path / "v", words)
    assert got.matrix.flatten().tolist() == [1, 2, 2, 3, 5, 5, 7, 9, 3]


def test_the_first_row_of_a_word_counts(tmp_path):
    (tmp_path / "v").write_text("the 1 1\nThe 3 3\nthe 2 2\n")
    assert read_vectors(tmp_path / "v", ["the", "the"]).matrix.tolist() == [[1, 1], [1, 1]]


def test_memory_is_that_of_the_result_not_of_the_file(tmp_path):
    words = [f"w{i}" for i in range(20_000)]
    matrix = np.ones((len(words), 100), dtype=np.float32)  # 8 MB
    (tmp_path / "v").write_bytes(binary_rows(words, matrix))
    tracemalloc.start()
    read_vectors(tmp_path / "v", words[-10:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


def test_progress_goes_to_standard_error(tmp_path, matrix, capsys):
    write_vectors(tmp_path / "v.gz", WORDS, torch.from_numpy(matrix))
    read_vectors(tmp_path / "v.gz", WORDS, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "v.gz" in err and "100%" in err
    read_vectors(tmp_path / "v.gz", WORDS)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "v, line 1: no vectors.*give a word2vec"),
        (b"hello world\n", "v, line 1: no vectors"),
        (b"3 0\n", "v, line 1: no vectors"),
        (b"2 3\nthe 1 2 3\na 1 2\n", "v, line 3: 2 numbers where 3 are expected.*remove that row"),
        (b"2 3\nthe 1 2 3\nthe  1 2\n", "v, line 3: 2 numbers where 3"),
        (b"the 1 2 3\na 1 2 3\na 1 2 3 4\n", "v, line 3: 4 numbers where 3"),
        (b"the 1 2 3\nthe 1 2 x\n", "v, line 2: could not convert.*remove that row"),
        (b"the 1 nan 3\n", "v: the vector of 'the' is not finite; remove"),
        (b"9 3\nthe 1 2 3\n", "v, line 1: promises 9 rows, but the file has 1; fetch.*or correct"),
        (b"1 3\nthe 1 2 3\na 1 2 3\n", "v, line 1: promises 1 rows, but the file has 2"),
        (b"a 1 2 3\n", "v: none of the 1 words .*the.* has a vector in it; use vectors of the language"),
        (b"2 2\nthe \0\0\0\0\0\0\0\0a \0\0\0\0\0\0\0", "v, vector 2: the file ends inside a vector; fetch"),
        (b"2 2\nthe \0\0\0\0\0\0\0\0a", "v, vector 2: the file ends inside a vector"),
        (b"2 2\nthe \0\0\0\0\0\0\0\0", "v, line 1: promises 2 rows, but the file has 1"),
    ],
)
def test_malformed_files_say_where_and_what_to_do(tmp_path, content, message):
    for packed in (content, gzip.compress(content)):
        (tmp_path / "v").write_bytes(packed)
        with pytest.raises(ValueError, match=message):
            read_vectors(tmp_path / "v", ["the"])


@pytest.mark.parametrize("kept", [15, 20_000])
def test_a_cut_off_gzip_is_an_error_wherever_the_cut_is(tmp_path, kept):
    words = [f"w{i}" for i in range(1000)]
    content = gzip.compress(binary_rows(words, np.random.default_rng(0).normal(size=(1000, 20)).astype("f4")))
    (tmp_path / "v.gz").write_bytes(content[:kept])
    with pytest.raises(ValueError, match=r"v\.gz, (line 1|vector \d+): .*ended before.*fetch the file again"):
        read_vectors(tmp_path / "v.gz", words)


@pytest.mark.parametrize(("place", "message"), [(10, "invalid block type"), (-8, "CRC check failed")])
def test_a_damaged_gzip_is_an_error(tmp_path, place, message):
    content = bytearray(gzip.compress(b"".join(b"w%d 1 2 3\n" % i for i in range(5000))))
    content[place] = 7 if place == 10 else content[place] ^ 1
    (tmp_path / "v.gz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"v\.gz, line \d+: .*{message}.*fetch the file again"):
        read_vectors(tmp_path / "v.gz", ["w1"])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.bin: no such file; give a word2vec"):
        read_vectors(tmp_path / "nowhere.bin", ["the"])


# --- writing


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz"])
def test_gensim_reads_what_we_write(tmp_path, matrix, name):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    write_vectors(tmp_path / "new" / name, WORDS, torch.from_numpy(matrix))
    read = keyed.load_word2vec_format(tmp_path / "new" / name)
    assert read.index_to_key == WORDS
    np.testing.assert_array_equal(read.vectors, matrix)
    assert ((tmp_path / "new" / name).read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_every_float32_reads_back_exactly(tmp_path_factory, matrix):
    path = tmp_path_factory.mktemp("exact") / "v"
    write_vectors(path, ["a", "b", "c"], torch.from_numpy(matrix))
    np.testing.assert_array_equal(read_vectors(path, ["a", "b", "c"]).matrix, matrix)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, matrix, monkeypatch):
    vectors = torch.from_numpy(matrix)
    write_vectors(tmp_path / "v", WORDS, vectors)
    before = (tmp_path / "v").read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_vectors(tmp_path / "v", WORDS, 2 * vectors)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    assert (tmp_path / "v").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a"], torch.zeros(2, 3), r"shape \(1, d\).*\(2, 3\)"),
        (["a"], torch.full((1, 3), torch.inf), "finite"),
        (["New York"], torch.zeros(1, 3), "'New York': replace blanks by '_'"),
        ([""], torch.zeros(1, 3), "must not be empty"),
        (["a\n"], torch.zeros(1, 3), "hold blanks"),
    ],
)
def test_what_a_text_file_cannot_hold_is_refused(tmp_path, words, vectors, message):
    with pytest.raises(ValueError, match=message):
        write_vectors(tmp_path / "v", words, vectors)
    assert not list(tmp_path.iterdir())


# --- combining


def make(matrix, found, source="x", missing=()):
    found = torch.tensor(found)
    return WordVectors(torch.tensor(matrix) * found.unsqueeze(1), found, source, missing)


def test_concatenate_centres_and_scales_the_found_rows_of_each_source():
    one = make([[3.0, 0.0], [1.0, 0.0], [9.0, 9.0], [9.0, 9.0]], [True, True, False, False], "one")
    two = make([[0.0], [5.0], [7.0], [9.0]], [False, True, True, False], "two", ("a", "d"))
    both = concatenate([one, two])
    torch.testing.assert_close(both.matrix, torch.tensor([[1.0, 0, 0], [-1, 0, -1], [0, 0, 1], [0, 0, 0]]))
    assert both.found.tolist() == [True, True, True, False]
    assert repr(both) == "WordVectors(4 x 3 from one + two, 3 found, 1 missing: d)"
    rows = torch.randn(50, 6) + 4
    same = concatenate([make(rows.tolist(), [True] * 50)]).matrix
    expected = (rows - rows.mean(0)) / (rows - rows.mean(0)).norm(dim=1, keepdim=True)
    torch.testing.assert_close(same, expected)


def test_concatenate_takes_a_source_that_knows_nothing():
    both = concatenate([make([[1.0], [2.0]], [True, True]), make([[1.0], [2.0]], [False, False])])
    assert both.matrix.tolist() == [[-1, 0], [1, 0]]


def test_concatenate_refuses_different_vocabularies():
    with pytest.raises(ValueError, match=r"same vocabulary, got sizes \[1, 2\]"):
        concatenate([make([[1.0]], [True]), make([[1.0], [2.0]], [True, True])])
    with pytest.raises(ValueError, match=r"at least one.*\[\]"):
        concatenate([])


def test_missing_words_get_random_directions_of_the_median_length():
    rows = torch.randn(300, 64) * torch.rand(300, 1)
    vectors = make(rows.tolist(), [i % 3 > 0 for i in range(300)])
    filled = fill_missing(vectors, seed=1)
    assert filled[vectors.found].equal(vectors.matrix[vectors.found])
    drawn = filled[~vectors.found]
    median = vectors.matrix[vectors.found].norm(dim=1).median()
    torch.testing.assert_close(drawn.norm(dim=1), median.expand(100))
    cosine = drawn @ drawn.T / median**2
    assert (cosine - torch.eye(100)).abs().max() < 0.6  # independent directions: 5 deviations of 1/8
    assert fill_missing(vectors, seed=1).equal(filled)
    assert not fill_missing(vectors, seed=2).equal(filled)
    assert vectors.matrix[~vectors.found].eq(0).all()


def test_missing_words_are_independent_of_the_hyperplanes_of_the_same_seed():
    filled = fill_missing(make([[0.0] * 8] * 5, [False] * 5), seed=3)
    planes = torch.randn(5, 8, generator=torch.Generator().manual_seed(3))
    assert torch.cosine_similarity(filled, planes).abs().max() < 0.99
    torch.testing.assert_close(filled.norm(dim=1), torch.ones(5))


@pytest.mark.parametrize(
    ("matrix", "found", "missing", "message"),
    [
        (torch.zeros(2), torch.ones(2).bool(), (), r"matrix must be \(V, d\) float32"),
        (torch.zeros(2, 3).double(), torch.ones(2).bool(), (), "float32, got .* torch.float64"),
        (torch.zeros(2, 3), torch.ones(3).bool(), (), r"found must be \(2,\) bool"),
        (torch.zeros(2, 3), torch.ones(2), (), r"found must be \(2,\) bool"),
        (torch.zeros(2, 3), torch.tensor([True, False]), ("a", "b"), "2 words, but 1 rows"),
    ],
)
def test_word_vectors_check_their_parts(matrix, found, missing, message):
    with pytest.raises(ValueError, match=message):
        WordVectors(matrix, found, "x", missing)


def test_repr_names_three_missing_words_and_none_when_unknown():
    nothing = torch.zeros(4, 2), torch.zeros(4, dtype=torch.bool), "x"
    assert repr(WordVectors(*nothing, tuple("abcd"))).endswith("0 found, 4 missing: a, b, c, ...)")
    assert repr(WordVectors(*nothing)).endswith("0 found, 4 missing)")


# --- real vectors


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"real vectors and PTB are not at {SHARED}")
def test_glove_covers_ptb_but_for_clitics_numbers_and_single_letters():
    with gzip.open(SHARED / "ptb/ptb.train.txt.gz", "rt") as file:
        words = list(dict.fromkeys(word for line in file for word in [*line.split(), "<eos>"]))
    vectors = read_vectors(SHARED / "vectors/glove100.vec.gz", words)
    assert vectors.matrix.shape == (10_000, 100)
    assert 0.96 < vectors.coverage < 0.97
    assert {"a", "'s", "n't", "N", "<eos>"} <= set(vectors.missing_words)
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    expected = keyed.load_word2vec_format(SHARED / "vectors/glove100.vec.gz", limit=1000)
    compared = [word for word in expected.index_to_key if word in words]
    assert len(compared) > 200
    got = vectors.matrix[[words.index(word) for word in compared]]
    np.testing.assert_array_equal(got, expected[compared])
