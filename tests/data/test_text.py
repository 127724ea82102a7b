import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoc.codes.vectors import progress_bar
from ecoc.data import text


def read(path):
    return list(text.read_pieces(path, progress_bar(False), "read"))


words = st.text("aé日\t\r\u2028", max_size=3)


@given(st.lists(st.tuples(words, st.sampled_from(" \n"))), words, st.integers(9, 20), st.booleans())
def test_pieces_are_the_file_with_its_last_line_ended(tmp_path_factory, start, end, size, zipped):
    content = "x " + "".join(word + blank for word, blank in start) + end
    path = tmp_path_factory.mktemp("text") / "file"
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PIECE", size)
        pieces = read(path)
    assert "".join(pieces) == content + "\n" * (not content.endswith("\n"))
    assert all(piece.endswith((" ", "\n")) for piece in pieces)  # so neither words nor characters are cut


def test_a_single_long_line_comes_in_small_pieces(tmp_path):
    (tmp_path / "text8").write_text("anarchism originated " * 300_000)
    pieces = read(tmp_path / "text8")
    assert max(map(len, pieces)) < 2 << 20 and sum(map(len, pieces)) == 300_000 * 21 + 1


def test_something_without_blanks_is_refused_before_it_fills_the_memory(tmp_path):
    (tmp_path / "endless").write_bytes(b"words\n" + b"x" * (8 << 20))
    with pytest.raises(ValueError, match=r"endless, line 2: a word of more than 1048576 bytes"):
        read(tmp_path / "endless")


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": the file is empty; give one with text in it"),
        (b" \n\t\n ", ": the file is empty"),
        (b"one\ntwo\nthr\0ee\n", ", line 3: a NUL byte"),
        (b"one\n" * 400_000 + b"a b \xff\n", ", line 400001: not UTF-8"),
        ("naïve".encode("latin-1"), ", line 1: not UTF-8"),
        ("text".encode("utf-16"), ", line 1: "),
    ],
)
def test_what_is_no_text_is_named_with_its_line(tmp_path, content, message, zipped):
    (tmp_path / "file").write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(ValueError, match=f"/file{message}") as caught:
        read(tmp_path / "file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [-5, 40, 3])
def test_a_cut_off_gzip_file_is_broken(tmp_path, cut):
    content = gzip.compress("\n".join(str(number) for number in range(100_000)).encode())
    (tmp_path / "file.gz").write_bytes(content[:cut])
    with pytest.raises(ValueError, match=r"file\.gz, after line \d+: broken gzip .*; fetch the file again"):
        read(tmp_path / "file.gz")


def test_a_damaged_gzip_file_is_broken(tmp_path):
    content = bytearray(gzip.compress("\n".join(str(number) for number in range(100_000)).encode()))
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "file.gz").write_bytes(content)
    with pytest.raises(ValueError, match="broken gzip"):
        read(tmp_path / "file.gz")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match=f"{path.name}: no such file; give a text file"):
            read(path)
