import gzip
from itertools import chain, pairwise

import pytest

from ecoc.codes.vectors import progress_bar
from ecoc.data.sources import SPLITS, find_source


def text(source, split):
    return "".join(source.texts[split](progress_bar(False), "read"))


def fill(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        content = f"this is {name}\n".encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


# --- folders


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("train", "dev", "test"),
        ("my-train.txt.gz", "my-val.tokens.gz", "my-test.gz"),
        ("Training_set.txt", "Validation_set.txt", "Test_set.txt"),
    ],
)
def test_a_folders_files_are_known_by_their_names(tmp_path, names):
    fill(tmp_path, *names, "README.md", "train.json", "latest.txt", "constraints.txt", ".train.txt")
    source = find_source(tmp_path)
    assert [text(source, split) for split in SPLITS] == [f"this is {name}\n" for name in names]
    assert source.name == tmp_path.name


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("train.txt", "train.txt.gz", "valid.txt", "test.txt"),
            "several files for one split.*: train.txt, train.txt.gz",
        ),
        (("train-test.txt", "valid.txt"), "or one for several: train-test.txt, valid.txt, train-test.txt; keep one"),
        (("train.txt", "test.txt"), r"needs a train, a valid \(or val, dev\) and a test.*; found test.txt, train.txt$"),
        (("valid.txt", "test.txt"), "needs a train"),
        (("train.csv",), "found train.csv"),
        ((), "found no files"),
        (tuple(f"{number}.txt" for number in range(10, 30)), r"18.txt, \.\.\.$"),
    ],
)
def test_a_folder_that_is_not_clear_is_refused_with_what_it_has(tmp_path, names, message):
    with pytest.raises(ValueError, match=message) as caught:
        find_source(fill(tmp_path / "corpus", *names))
    assert str(tmp_path / "corpus") in str(caught.value) and "\n" not in str(caught.value)


def test_a_path_may_be_inside_data_dir(tmp_path, monkeypatch):
    fill(tmp_path / "mine", "train", "valid", "test")
    assert text(find_source("mine", tmp_path), "valid") == "this is valid\n"
    monkeypatch.chdir(tmp_path)
    assert find_source("mine").identity == find_source("mine", tmp_path).identity


def test_what_is_not_there_is_named_with_the_choices(tmp_path):
    with pytest.raises(ValueError, match=r"absent: no such folder or file; .* builtin, ptb, wikitext-2, wikitext-103"):
        find_source(tmp_path / "absent")


# --- single files


@pytest.mark.parametrize("lines", [20, 39, 100, 5000, 230_000])
def test_a_single_file_is_cut_into_blocks_of_its_lines(tmp_path, lines):
    content = [f"{number} is a line\n" for number in range(lines)]
    (tmp_path / "book.md").write_text("".join(content))
    source = find_source(tmp_path / "book.md")
    parts = {split: text(source, split).splitlines(keepends=True) for split in SPLITS}
    assert sorted(chain(*parts.values())) == sorted(content)  # each line once
    for part in parts.values():
        numbers = [int(line.split()[0]) for line in part]
        assert numbers == sorted(numbers)
        breaks = sum(after != before + 1 for before, after in pairwise(numbers))
        assert breaks <= max(4, lines // 20_000) or lines < 100
        assert breaks >= lines // 20_000 - 1  # blocks are short enough for many of them in a large file
    assert len(parts["valid"]) == pytest.approx(0.05 * lines, rel=0.1, abs=1)
    assert len(parts["test"]) == pytest.approx(0.05 * lines, rel=0.1, abs=1)


def test_lines_end_at_line_feeds_only(tmp_path):
    content = "".join(f"{number}\rmac\x0cpage\u2028line\r\n" for number in range(200))
    (tmp_path / "book.txt").write_bytes(content.encode())
    source = find_source(tmp_path / "book.txt")
    assert text(source, "valid") == "".join(
        f"{number}\rmac\x0cpage\u2028line\r\n" for first in range(36, 200, 40) for number in (first, first + 1)
    )


def test_lines_that_go_over_several_pieces_stay_whole(tmp_path, monkeypatch):
    content = "".join(f"{number} " + "word " * (number % 50) + "\n" for number in range(500))
    (tmp_path / "book.txt").write_text(content)
    whole = {split: text(find_source(tmp_path / "book.txt"), split) for split in SPLITS}
    monkeypatch.setattr("ecoc.data.text._PIECE", 32)
    assert {split: text(find_source(tmp_path / "book.txt"), split) for split in SPLITS} == whole


def test_a_train_file_alone_is_cut_like_a_single_file(tmp_path):
    fill(tmp_path, "README.md")
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"one line\n" * 40))
    source = find_source(tmp_path)
    assert [text(source, split).count("\n") for split in SPLITS] == [36, 2, 2]


def test_too_few_lines_to_cut_are_refused(tmp_path):
    (tmp_path / "song.txt").write_text("la la la\n" * 19)
    with pytest.raises(ValueError, match=r"song.txt: 19 lines are too few .* give at least 20 lines, or a folder with"):
        text(find_source(tmp_path / "song.txt"), "train")


# --- presets


@pytest.mark.parametrize(
    ("name", "folder", "names"),
    [
        ("ptb", ".", "ptb.{}.txt"),
        ("ptb", "ptb", "ptb.{}.txt.gz"),
        ("ptb", "simple-examples/data", "ptb.{}.txt"),
        ("ptb", ".", "{}.txt"),
        ("wikitext-2", "wikitext-2", "wiki.{}.tokens"),
        ("wikitext-103", "wikitext-103", "wiki.{}.tokens.gz"),
        ("wikitext-103", ".", "{}.txt"),
    ],
)
def test_presets_know_their_file_names_and_folders(tmp_path, name, folder, names):
    files = [names.format(split) for split in SPLITS]
    fill(tmp_path / folder, *files)
    source = find_source(name, tmp_path)
    assert [path.name for path in source.files] == files
    assert [text(source, split) for split in SPLITS] == [f"this is {file}\n" for file in files]


def test_a_preset_prefers_its_own_folder_and_its_own_names(tmp_path):
    fill(tmp_path, *(f"{split}.txt" for split in SPLITS), *(f"wiki.{split}.tokens" for split in SPLITS))
    fill(tmp_path / "wikitext-2", *(f"wiki.{split}.tokens" for split in SPLITS))
    assert find_source("wikitext-2", tmp_path).files[0].parent == tmp_path / "wikitext-2"
    assert find_source("wikitext-103", tmp_path).files[0] == tmp_path / "wiki.train.tokens"


@pytest.mark.parametrize(
    ("name", "file", "home"),
    [
        ("ptb", "ptb.train.txt", "Penn Treebank .*'simple-examples.tgz'"),
        ("wikitext-2", "wiki.train.tokens", "WikiText-2 .*Merity.*'wikitext-2-v1.zip'"),
        ("wikitext-103", "wiki.train.tokens", "WikiText-103 .*Merity.*'wikitext-103-v1.zip'"),
    ],
)
def test_absent_presets_say_where_to_get_them_and_where_to_put_them(tmp_path, name, file, home):
    fill(tmp_path / name, "wiki.valid.tokens", "ptb.test.txt")
    with pytest.raises(ValueError, match=home) as caught:
        find_source(name, tmp_path)
    message = str(caught.value)
    assert file in message and f"put its three files into {tmp_path / name}" in message and "\n" not in message


def test_presets_look_in_the_folder_data_if_told_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "data" / "ptb", *(f"ptb.{split}.txt" for split in SPLITS))
    assert find_source("ptb").files[0] == tmp_path / "data" / "ptb" / "ptb.train.txt"


def test_a_preset_with_other_numbers_of_tokens_names_the_files(tmp_path):
    fill(tmp_path, *(f"ptb.{split}.txt" for split in SPLITS))
    source = find_source("ptb", tmp_path)
    source.check_tokens({"train": 929_589, "valid": 73_760, "test": 82_430})
    with pytest.raises(ValueError, match=r"ptb.valid.txt has 73759 tokens instead of 73760; get the Penn") as caught:
        source.check_tokens({"train": 929_589, "valid": 73_759, "test": 82_430})
    assert "ptb.train.txt has" not in str(caught.value)
