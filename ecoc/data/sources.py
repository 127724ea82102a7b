"""Where the text of a corpus comes from: the built-in one, presets of well-known ones, folders and single files.

Nothing is read here but names, sizes and times; texts are opened when somebody iterates over them.
"""

import platform
import re
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from io import StringIO
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rich.progress import Progress

from ecoc.codes.vectors import progress_bar
from ecoc.data.builtin import builtin_splits
from ecoc.data.text import read_pieces
from ecoc.data.vocabulary import PathLike

Text: TypeAlias = Callable[[Progress, str], Iterator[str]]  # (bar, label) -> pieces, cut between words

SPLITS = ("train", "valid", "test")

_NAMES = {  # at the start of a word of a file's name, so that neither "latest" nor "constraint" is one
    "train": re.compile(r"(?<![a-z])train", re.I),
    "valid": re.compile(r"(?<![a-z])(?:val|dev)", re.I),
    "test": re.compile(r"(?<![a-z])test", re.I),
}


class Preset(NamedTuple):
    """What is known about the files of a well-known corpus."""

    stems: tuple[str, ...]  # of file names, the usual ones first
    tokens: tuple[int, int, int]  # of train, valid and test, with one <eos> a line
    home: str
    folder: str  # in which the archive keeps the files


class Source(NamedTuple):
    """The texts of a corpus, and what belongs to it."""

    name: str
    identity: list[str]  # changes when a text does
    texts: dict[str, Text]
    tokeniser: str = "whitespace"
    min_count: int = 1
    preset: Preset | None = None
    files: tuple[Path, ...] = ()  # of train, valid and test

    def check_tokens(self, tokens: dict[str, int]) -> None:
        """Raise ValueError if a preset's files do not have the published numbers of tokens."""
        if self.preset is None:
            return
        triples = zip(self.files, tokens.values(), self.preset.tokens, strict=True)
        if wrong := [f"{path} has {has} tokens instead of {due}" for path, has, due in triples if has != due]:
            raise ValueError(
                f"{self.name}: not the published files: {', '.join(wrong)}; get {self.preset.home}, "
                f"or give the folder's path instead of {self.name} to use these files as they are"
            )


_PRESETS = {
    "ptb": Preset(
        ("ptb.{}.txt", "{}.txt"),
        (929_589, 73_760, 82_430),
        "the Penn Treebank as Mikolov prepared it (search 'simple-examples.tgz' or 'ptb.train.txt')",
        "simple-examples/data",
    ),
    "wikitext-2": Preset(
        ("wiki.{}.tokens", "{}.tokens", "wiki.{}.txt", "{}.txt"),
        (2_088_628, 217_646, 245_569),
        "the WikiText-2 word-level archive by Merity et al. (search 'wikitext-2-v1.zip'; not the raw one)",
        "wikitext-2",
    ),
    "wikitext-103": Preset(
        ("wiki.{}.tokens", "{}.tokens", "wiki.{}.txt", "{}.txt"),
        (103_227_021, 217_646, 245_569),
        "the WikiText-103 word-level archive by Merity et al. (search 'wikitext-103-v1.zip'; not the raw one)",
        "wikitext-103",
    ),
}


def find_source(name: PathLike, data_dir: PathLike | None = None) -> Source:
    """The source that a name means: ``builtin``, a preset, or the path of a folder or file.

    Presets are looked for in ``data_dir`` (``data`` without), ``data_dir/name`` and where their archives unpack to.
    """
    if name == "builtin":
        return _builtin()
    if name in _PRESETS:
        return _preset(str(name), Path(data_dir or "data"))
    path = Path(name)
    if not path.exists() and data_dir is not None:
        path = Path(data_dir, name)
    if path.is_dir():
        return _folder(path.resolve())
    if not path.exists():
        raise ValueError(
            f"{path}: no such folder or file; give one, or one of builtin, {', '.join(_PRESETS)} (see data_dir)"
        )
    return _single(path.resolve(), path.name)


def _builtin() -> Source:
    lines = cache(lambda: {split: [f"{line}\n" for line in text] for split, text in builtin_splits().items()})

    def text(split: str, bar: Progress, label: str) -> Iterator[str]:
        return iter(bar.track(lines()[split], description=label))

    identity = [platform.python_implementation(), platform.python_version(), sysconfig.get_path("stdlib")]
    return Source("builtin", identity, {split: partial(text, split) for split in SPLITS}, "simple", min_count=2)


def _preset(name: str, data_dir: Path) -> Source:
    preset = _PRESETS[name]
    for stem in preset.stems:
        for folder in (data_dir / name, data_dir / preset.folder, data_dir):
            choices = {split: [folder / (stem.format(split) + end) for end in ("", ".gz")] for split in SPLITS}
            found = {split: next((path for path in paths if path.is_file()), None) for split, paths in choices.items()}
            files = {split: path.resolve() for split, path in found.items() if path is not None}
            if len(files) == len(SPLITS):
                return _files(name, files, preset)
    wanted = ", ".join(preset.stems[0].format(split) for split in SPLITS)
    raise ValueError(
        f"{name}: no {wanted} (or with .gz) in {data_dir} or {data_dir / name}; get {preset.home} "
        f"and put its three files into {data_dir / name}, or give another data_dir"
    )


def _folder(folder: Path) -> Source:
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    matches = []
    for split, pattern in _NAMES.items():
        for path in paths:
            stem = path.name.removesuffix(".gz")
            if Path(stem).suffix in ("", ".txt", ".tokens") and pattern.search(stem):
                matches.append((split, path))
    files = dict(matches)
    if len(files) < len(matches) or len(set(files.values())) < len(matches):
        listed = ", ".join(path.name for _, path in matches)
        raise ValueError(f"{folder}: several files for one split, or one for several: {listed}; keep one for each")
    if list(files) == ["train"]:
        return _single(files["train"], folder.name)
    if len(files) < len(SPLITS):
        listed = ", ".join(path.name for path in paths[:9]) + (", ..." if len(paths) > 9 else "")
        raise ValueError(
            f"{folder}: needs a train, a valid (or val, dev) and a test file, or a train file alone, "
            f"ending in .txt, .tokens or nothing, plain or .gz; found {listed or 'no files'}"
        )
    return _files(folder.name, files)


def _files(name: str, files: dict[str, Path], preset: Preset | None = None) -> Source:
    texts: dict[str, Text] = {split: partial(read_pieces, path) for split, path in files.items()}
    identity = [_identity(path) for path in files.values()]
    return Source(name, identity, texts, preset=preset, files=tuple(files.values()))


def _single(path: Path, name: str) -> Source:
    lines = _LinesOfFile(path)
    return Source(name, [_identity(path), "cut"], {split: partial(lines.read, split) for split in SPLITS})


def _identity(path: Path) -> str:
    stored = path.stat()
    return f"{path} {stored.st_size} {stored.st_mtime_ns}"


@dataclass(frozen=True)
class _LinesOfFile:
    """A file cut into 90, 5 and 5 % of its lines.

    Of every twenty blocks of lines, eighteen are for training, then come one for valid and one for test. Blocks keep
    neighbouring lines together, for context; several of them sample all of the file.
    """

    path: Path

    @cached_property
    def block(self) -> int:
        """Lines of a block: five rounds of twenty, more in a file of more than 100 000 lines, one if lines are few."""
        lines = sum(piece.count("\n") for piece in read_pieces(self.path, progress_bar(False), ""))
        if lines < 20:
            raise ValueError(
                f"{self.path}: {lines} lines are too few to set some aside for valid and test; "
                f"give at least 20 lines, or a folder with a train, a valid and a test file"
            )
        return min(1000, max(1, lines // 100))

    def read(self, split: str, bar: Progress, label: str) -> Iterator[str]:
        """The text of a split; see `read_pieces`."""
        number = 0
        for piece in read_pieces(self.path, bar, label):
            kept = []
            for line in StringIO(piece, newline="\n"):  # the first and the last may be parts of a line
                if SPLITS[max(0, number // self.block % 20 - 17)] == split:
                    kept.append(line)
                number += line.endswith("\n")
            yield "".join(kept)
