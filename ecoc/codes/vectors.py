"""Word vectors from files: what semantic codes and the embedding order are made of.

A vocabulary of V words and a file of vectors become one ``(V, d)`` matrix and a mask that says which words
the file knew. Files are streamed and only the wanted rows kept, so that memory is that of the result.

>>> vectors = concatenate([read_vectors("glove.6B.100d.txt", words), context_vectors(ids, len(words))])
>>> codebook = ecoc.codes.build("semantic", len(words), bits=512, vectors=vectors)
"""

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

PathLike: TypeAlias = str | os.PathLike[str]
Rows: TypeAlias = Iterator[tuple[bytes, np.ndarray | None]]  # a token, and its numbers if it is wanted

_NOT_FOUND = 4  # exact, lower, Capitalised and UPPER are 0 to 3
_CONTROL_BYTES = frozenset(range(32)) - frozenset(b"\t\n\r")
_BROKEN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """One vector a vocabulary word, with a mask of the words that have one.

    Attributes:
        matrix: ``(V, d)`` float32; rows without a vector are zeros.
        found: ``(V,)`` bool; which rows hold a vector.
        source: Where the vectors come from, for people to read.
        missing_words: The words without a vector in vocabulary order; empty when the words are not known.
    """

    matrix: Tensor
    found: Tensor
    source: str
    missing_words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        matrix, found, named = self.matrix, self.found, len(self.missing_words)
        if matrix.ndim != 2 or matrix.dtype != torch.float32:
            raise ValueError(f"matrix must be (V, d) float32, got {tuple(matrix.shape)} {matrix.dtype}")
        if found.shape != matrix.shape[:1] or found.dtype != torch.bool:
            raise ValueError(f"found must be ({len(matrix)},) bool, got {tuple(found.shape)} {found.dtype}")
        if named and named != int((~found).sum()):
            raise ValueError(f"missing_words has {named} words, but {int((~found).sum())} rows are not found")

    @property
    def coverage(self) -> float:
        """Share of the vocabulary that has a vector."""
        return int(self.found.sum()) / max(1, len(self.found))

    def __repr__(self) -> str:
        (rows, dim), found = self.matrix.shape, int(self.found.sum())
        names = ", ".join(self.missing_words[:3]) + (", ..." if len(self.missing_words) > 3 else "")
        missing = f"{rows - found} missing" + (f": {names}" if names else "")
        return f"WordVectors({rows} x {dim} from {self.source}, {found} found, {missing})"


def read_vectors(path: PathLike, words: Sequence[str], *, progress: bool = False) -> WordVectors:
    """Read the vectors of ``words`` from a word2vec (text or binary) or GloVe file, plain or gzip.

    The format is told by content, not by name. A word is looked up as it is, then in lower case, Capitalised
    and in UPPER case; where a file holds a word twice, the first row counts.

    Args:
        path: The file.
        words: The vocabulary in id order.
        progress: Show a bar, by bytes of the file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is empty, malformed or cut off, or has none of the words.
    """
    path = Path(path)
    wanted: dict[bytes, list[tuple[int, int]]] = {}  # token in the file -> (row, how far from its spelling)
    for row, word in enumerate(words):
        for distance, spelling in enumerate((word, word.lower(), word.capitalize(), word.upper())):
            wanted.setdefault(spelling.encode(), []).append((row, distance))
    layout = _sniff(path)
    matrix = np.zeros((len(words), layout.dim), dtype=np.float32)
    distances = np.full(len(words), _NOT_FOUND)
    with progress_bar(progress) as bar:
        for token, numbers in _rows(path, layout, wanted, bar):
            for row, distance in wanted[token] if numbers is not None else ():
                if distance < distances[row]:
                    matrix[row], distances[row] = numbers, distance
    found = distances < _NOT_FOUND
    if (broken := ~np.isfinite(matrix).all(1)).any():
        word = words[int(broken.argmax())]
        raise ValueError(f"{path}: the vector of {word!r} is not finite; remove that row")
    if not found.any():
        raise ValueError(
            f"{path}: none of the {len(words)} words ({', '.join(words[:3])}, ...) has a vector in it; "
            f"use vectors of the language of the text, and pass words as strings in id order"
        )
    missing = tuple(word for word, known in zip(words, found, strict=True) if not known)
    return WordVectors(torch.from_numpy(matrix), torch.from_numpy(found), path.name, missing)


def write_vectors(path: PathLike, words: Sequence[str], vectors: Tensor) -> None:
    """Write ``vectors`` ``(V, d)`` as a word2vec text file, gzip if the name ends in .gz.

    Numbers read back exactly. The file appears under its name only when it is complete.
    """
    path, rows = Path(path), vectors.detach().cpu().float().numpy()
    if rows.ndim != 2 or len(rows) != len(words):
        raise ValueError(f"vectors must have shape ({len(words)}, d), one row a word, got {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("vectors must be finite: some are NaN or infinite")
    if bad := [word for word in words if word.encode().split() != [word.encode()]]:
        raise ValueError(f"words must not be empty or hold blanks, got {bad[0]!r}: replace blanks by '_'")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with ExitStack() as stack:
            file: IO[bytes] | gzip.GzipFile = stack.enter_context(partial.open("wb"))
            if path.suffix == ".gz":  # without time and name inside, the same vectors give the same bytes
                file = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0))
            file.write(f"{len(rows)} {rows.shape[1]}\n".encode())
            for word, row in zip(words, rows, strict=True):
                file.write(f"{word} {' '.join(map(str, row))}\n".encode())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def concatenate(sources: Sequence[WordVectors]) -> WordVectors:
    """Put sources side by side, each centred and scaled to rows of length 1 so that none outweighs another.

    A word that a source lacks is zero in its block, and found if any source has it.
    """
    sizes = [len(source.matrix) for source in sources]
    if len(set(sizes)) != 1:
        raise ValueError(f"sources must be at least one and of the same vocabulary, got sizes {sizes}")
    blocks = []
    for source in sources:
        known = source.matrix[source.found]
        block = torch.zeros_like(source.matrix)
        block[source.found] = F.normalize(known - known.mean(0))
        blocks.append(block)
    found = torch.stack([source.found for source in sources]).any(0)
    # A word that is missing in all is missing in each: any source that knows its missing words can name it.
    named = next((source for source in sources if source.missing_words), sources[0])
    rows = (~named.found).nonzero().flatten().tolist()
    missing = tuple(word for row, word in zip(rows, named.missing_words, strict=False) if not found[row])
    return WordVectors(torch.cat(blocks, 1), found, " + ".join(source.source for source in sources), missing)


def fill_missing(vectors: WordVectors, seed: int = 0) -> Tensor:
    """The matrix ``(V, d)`` with a random direction, of the median length, for each word without a vector."""
    # Semantic codes draw hyperplanes from a generator with the same seed: do not give them the same numbers.
    generator = torch.Generator().manual_seed(seed ^ 0x5EED)
    directions = torch.randn(int((~vectors.found).sum()), vectors.matrix.shape[1], generator=generator)
    lengths = vectors.matrix[vectors.found].norm(dim=1)
    length = float(lengths.median()) if len(lengths) else 1.0
    filled = vectors.matrix.clone()
    filled[~vectors.found] = length * F.normalize(directions)
    return filled


def checked_matrix(vectors: Tensor | WordVectors | None, vocab_size: int, seed: int) -> Tensor | None:
    """Word vectors as a finite matrix ``(V, d)`` on the CPU, with random rows for words that were not found."""
    if vectors is None:
        return None
    matrix = fill_missing(vectors, seed) if isinstance(vectors, WordVectors) else torch.as_tensor(vectors).cpu()
    if matrix.ndim != 2 or len(matrix) != vocab_size or matrix.shape[1] < 1:
        raise ValueError(f"vectors must have shape ({vocab_size}, d), one row a token, got {tuple(matrix.shape)}")
    if not torch.isfinite(matrix).all():
        raise ValueError("vectors must be finite: some are NaN or infinite")
    return matrix


def progress_bar(visible: bool) -> Progress:
    """A bar on standard error, so that standard output holds results only."""
    return Progress(console=Console(stderr=True), disable=not visible)


class _Layout(NamedTuple):
    promised: int | None  # rows, by the first line; None without such a line
    dim: int
    binary: bool


def _open(path: Path, stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """The file as stored, whose position tells the progress, and its content, unpacked if it is gzip."""
    stored = stack.enter_context(path.open("rb"))
    if stored.peek(2)[:2] != b"\x1f\x8b":
        return stored, stored
    unpacked = stack.enter_context(gzip.GzipFile(fileobj=stored))
    return stored, io.BufferedReader(unpacked, 1 << 20)


def _sniff(path: Path) -> _Layout:
    """Tell the format by the first line and the bytes after it."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a word2vec (text or binary) or GloVe file")
    with ExitStack() as stack:
        try:
            content = _open(path, stack)[1]
            fields = content.readline(1 << 20).split()
            sample = content.read(1 << 10)
        except _BROKEN_GZIP as error:
            raise ValueError(f"{path}, line 1: broken gzip: {error}; fetch the file again") from error
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        layout = _Layout(int(fields[0]), int(fields[1]), binary=not _is_text(sample))
    else:  # GloVe: the first field is the word, or the beginning of it
        layout = _Layout(None, sum(1 for _ in takewhile(_is_number, reversed(fields[1:]))), binary=False)
    if layout.dim < 1:
        raise ValueError(
            f"{path}, line 1: no vectors: the file is empty, or starts neither with 'count dim' nor with a "
            f"word and its numbers; give a word2vec (text or binary) or GloVe file"
        )
    return layout


def _is_text(sample: bytes) -> bool:
    """Whether these bytes are UTF-8 without control characters: float32 numbers hardly ever are."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # a character may be cut in two at the end
    except UnicodeDecodeError:
        return False
    return _CONTROL_BYTES.isdisjoint(sample)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _rows(path: Path, layout: _Layout, wanted: Container[bytes], bar: Progress) -> Rows:
    """All rows of the file; errors say where in it they are."""
    task = bar.add_task(path.name, total=path.stat().st_size)
    header, rows = layout.promised is not None, 0
    with ExitStack() as stack:
        stored, content = _open(path, stack)
        if header:
            content.readline()
        parse = _binary_rows if layout.binary else _text_rows
        try:
            for rows, row in enumerate(parse(content, layout.dim, wanted), start=1):
                yield row
                if rows % 1024 == 0:
                    bar.update(task, completed=stored.tell())
        except (*_BROKEN_GZIP, ValueError) as error:
            place = f"vector {rows + 1}" if layout.binary else f"line {rows + 1 + header}"
            raise ValueError(f"{path}, {place}: {error}; fetch the file again, or remove that row") from error
    if header and rows != layout.promised:
        raise ValueError(
            f"{path}, line 1: promises {layout.promised} rows, but the file has {rows}; "
            f"fetch the file again, or correct its first line"
        )
    bar.update(task, completed=path.stat().st_size)


def _text_rows(content: IO[bytes], dim: int, wanted: Container[bytes]) -> Rows:
    for line in content:
        line = line.rstrip()
        token = line.partition(b" ")[0]
        if line.count(b" ") == dim and token not in wanted:  # nearly all rows of a large file: keep it cheap
            yield token, None
        elif fields := line.split():
            extra = len(fields) - 1 - dim  # these belong to the token: glove.840B has tokens with blanks
            if extra < 0 or (extra > 0 and _is_number(fields[extra])):
                raise ValueError(f"{len(fields) - 1} numbers where {dim} are expected")
            token = b" ".join(fields[: extra + 1])
            numbers = fields[extra + 1 :] if token in wanted else None
            yield token, None if numbers is None else np.array([float(x) for x in numbers], np.float32)


def _binary_rows(content: IO[bytes], dim: int, wanted: Container[bytes]) -> Rows:
    while True:
        token = bytearray()
        while (byte := content.read(1)) not in (b" ", b""):
            token += byte
        numbers = content.read(4 * dim)
        name = bytes(token).strip(b"\r\n")  # word2vec itself ends vectors with a line end, gensim does not
        if not name and not byte:
            return
        if len(numbers) < 4 * dim:
            raise ValueError("the file ends inside a vector")
        yield name, np.frombuffer(numbers, "<f4") if name in wanted else None
