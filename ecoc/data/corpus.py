"""Corpora as memory-mapped token ids.

The text is read twice, once to count its words and once to write their ids, in pieces of a megabyte: a corpus may be
much larger than the memory. The ids are kept in a cache folder and found there the next time.

>>> corpus = open_corpus("ptb", data_dir="data", cache="runs/cache")
>>> corpus
Corpus(ptb: 10000 words, 929589 + 73760 + 82430 tokens)
"""

import hashlib
import json
import shutil
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from ecoc.codes.vectors import progress_bar
from ecoc.data.sources import SPLITS, Source, find_source
from ecoc.data.text import read_pieces
from ecoc.data.vocabulary import PathLike, Vocabulary, tokenise

_FORMAT = 1  # of the cache and of how splits are made: a change makes old caches unused
_STALE = 3600  # seconds after which an unfinished cache is that of a process which was killed


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """A vocabulary and three streams of ids.

    Attributes:
        name: For people to read.
        vocabulary: The words of the ids.
        train: The ids ``(N,)`` of all lines, each ended by ``<eos>``; int32, a memory map.
        valid: The same for validation.
        test: The same for the final test.
    """

    name: str
    vocabulary: Vocabulary
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    def split(self, name: str) -> np.ndarray:
        """The ids of ``train``, ``valid`` or ``test``."""
        if name not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {name!r}")
        ids: np.ndarray = getattr(self, name)
        return ids

    def __repr__(self) -> str:
        tokens = " + ".join(str(len(self.split(split))) for split in SPLITS)
        return f"Corpus({self.name}: {len(self.vocabulary)} words, {tokens} tokens)"


def open_corpus(
    name: PathLike,
    *,
    cache: PathLike,
    data_dir: PathLike | None = None,
    tokeniser: str | None = None,
    min_count: int | None = None,
    max_size: int | None = None,
    vocabulary: Vocabulary | None = None,
    progress: bool = False,
) -> Corpus:
    """Open a corpus; the vocabulary is that of its training text. Every line, also an empty one, ends with ``<eos>``.

    Args:
        name: ``builtin`` (Python's documentation), ``ptb``, ``wikitext-2``, ``wikitext-103``, a folder with a train, a
            valid and a test file, or a single file, which is cut into 90, 5 and 5 % of its lines.
        cache: Folder for the ids; used again as long as files and options stay the same.
        data_dir: Where the files are: of presets there or in a folder of their name. ``data`` if left out.
        tokeniser: ``whitespace`` or ``simple``; ``simple`` for the built-in corpus if left out, else ``whitespace``.
        min_count: Words that occur less often become ``<unk>``; 2 for the built-in corpus if left out, else 1.
        max_size: Most words to keep, ``<unk>`` and ``<eos>`` among them.
        vocabulary: Use this one, such as that of a trained model, instead of the three options above.
        progress: Show bars.

    Raises:
        ValueError: A file or folder is missing, empty or not text; a preset's files are not the published ones; there
            are too few words; options contradict each other.
    """
    source = find_source(name, data_dir)
    if vocabulary is not None and (tokeniser, min_count, max_size) != (None, None, None):
        raise ValueError("vocabulary says which words there are: leave out tokeniser, min_count and max_size")
    options: dict[str, Any] = {
        "min_count": source.min_count if min_count is None else min_count,
        "max_size": max_size,
        "tokeniser": source.tokeniser if tokeniser is None else tokeniser,
    }
    Vocabulary.build({}, **options)  # complains about wrong options now and not after reading a large file
    recipe = [_FORMAT, source.identity, vocabulary.fingerprint if vocabulary else options]
    folder = Path(cache, f"{source.name}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]}")
    corpus = _load(source.name, folder, vocabulary)
    if corpus is None:
        with progress_bar(progress) as bar:
            _write(source, folder, vocabulary or _count(source, options, bar), bar)
        corpus = _load(source.name, folder, vocabulary)
    if corpus is None:
        raise ValueError(f"{folder}: changed by somebody else while it was written; remove it and try again")
    return corpus


def encode_file(path: PathLike, vocabulary: Vocabulary, progress: bool = False) -> np.ndarray:
    """Ids ``(N,)`` int32 of a text file, plain or gzip, each line ended by ``<eos>``.

    Raises:
        ValueError: The file is missing, empty, not text, or broken gzip.
    """
    path = Path(path)
    with progress_bar(progress) as bar:
        pieces = read_pieces(path, bar, f"encode {path.name}")
        return np.concatenate([np.array(vocabulary.encode(piece), np.int32) for piece in pieces])


def _count(source: Source, options: dict[str, Any], bar: Progress) -> Vocabulary:
    """The vocabulary of the training text."""
    counter: Counter[str] = Counter()
    for piece in source.texts["train"](bar, "count train"):
        counter.update(tokenise(piece, options["tokeniser"]))
    vocabulary = Vocabulary.build(counter, **options)
    if (words := len(vocabulary) - 2) < 2:  # but <unk> and <eos>
        raise ValueError(
            f"{source.name}: a vocabulary of {words} word(s) is too small for a language model; "
            f"give more text, or a lower min_count or larger max_size"
        )
    return vocabulary


def _write(source: Source, folder: Path, vocabulary: Vocabulary, bar: Progress) -> None:
    """Fill the cache: under another name, so that what a killed process leaves is never taken for whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(".*.unfinished"):
        with suppress(FileNotFoundError):  # its process may be finishing just now
            if time.time() - left.stat().st_mtime > _STALE:
                shutil.rmtree(left, ignore_errors=True)
    unfinished = folder.with_name(f".{uuid.uuid4().hex}.unfinished")  # several processes may write at once
    unfinished.mkdir()
    try:
        tokens = {split: _write_ids(unfinished, source, split, vocabulary, bar) for split in SPLITS}
        if vocabulary.tokeniser == "whitespace":
            source.check_tokens(tokens)
        vocabulary.save(unfinished / "vocabulary.json")
        (unfinished / "tokens.json").write_text(json.dumps(tokens))
        try:
            unfinished.rename(folder)
        except OSError:  # it is there already: another process was faster, or it is damaged
            if _load(source.name, folder, None) is None:
                shutil.rmtree(folder)
                unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_ids(folder: Path, source: Source, split: str, vocabulary: Vocabulary, bar: Progress) -> int:
    """Write the ids of a split and return how many they are."""
    tokens = 0
    with (folder / f"{split}.bin").open("wb") as file:
        for piece in source.texts[split](bar, f"encode {split}"):
            ids = vocabulary.encode(piece)
            file.write(np.array(ids, np.int32).tobytes())
            tokens += len(ids)
    if tokens < 2:
        raise ValueError(
            f"{source.name}: {split} has {tokens} token(s), but predicting takes 2 or more; give more text"
        )
    return tokens


def _load(name: str, folder: Path, vocabulary: Vocabulary | None) -> Corpus | None:
    """The corpus in a cache folder; None if there is none or it is damaged."""
    try:
        tokens = json.loads((folder / "tokens.json").read_text())
        files = {split: folder / f"{split}.bin" for split in SPLITS}
        if any(path.stat().st_size != 4 * tokens[split] for split, path in files.items()):
            return None
        maps = {split: np.memmap(path, np.int32, mode="r") for split, path in files.items()}
        return Corpus(name, vocabulary or Vocabulary.load(folder / "vocabulary.json"), **maps)
    except (OSError, ValueError, KeyError, TypeError):
        return None
