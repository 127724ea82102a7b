"""Text files in pieces: plain or gzip, checked on the way, never held as a whole."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from rich.progress import Progress

_PIECE = 1 << 20
_BROKEN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)


def read_pieces(path: Path, bar: Progress, label: str) -> Iterator[str]:
    """The text in pieces of about a megabyte, cut between words; the last line is ended if the file does not end it.

    Lines end at ``\\n`` only. A line may be as long as the file: some corpora are a single one.

    Args:
        path: A UTF-8 file, plain or gzip; which of them is told by content, not by name.
        bar: Shows how much of the file is done.
        label: What the bar says.

    Raises:
        ValueError: The file is missing, empty, not text, or broken gzip.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give a text file, plain or gzip")
    task = bar.add_task(label, total=path.stat().st_size)
    line, blank = 1, True
    with ExitStack() as stack:
        stored = stack.enter_context(path.open("rb"))
        content: IO[bytes] = stored
        if stored.peek(2)[:2] == b"\x1f\x8b":
            content = io.BufferedReader(stack.enter_context(gzip.GzipFile(fileobj=stored)), _PIECE)
        try:
            for block in _blocks(content):
                if (nul := block.find(b"\0")) >= 0:
                    line += block.count(b"\n", 0, nul)
                    raise ValueError("a NUL byte, so this is no text in UTF-8; give a text file, or convert it")
                try:
                    text = block.decode()
                except UnicodeDecodeError as error:
                    line += block.count(b"\n", 0, error.start)
                    raise ValueError(f"not UTF-8 ({error.reason}); give a text file, or convert it") from error
                yield text
                line, blank = line + text.count("\n"), blank and text.isspace()
                bar.update(task, completed=stored.tell())
        except _BROKEN_GZIP as error:
            raise ValueError(f"{path}, after line {line}: broken gzip ({error}); fetch the file again") from error
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from error
    if blank:
        raise ValueError(f"{path}: the file is empty; give one with text in it")


def _blocks(content: IO[bytes]) -> Iterator[bytes]:
    """Bytes up to a blank or line end each, so that neither a word nor a character is cut."""
    rest, ended = b"", True
    while block := content.read(_PIECE):
        ended = block.endswith(b"\n")
        cut = max(block.rfind(b" "), block.rfind(b"\n")) + 1
        if cut:
            yield rest + block[:cut]
            rest = b""
        elif len(rest) > _PIECE:
            raise ValueError(f"a word of more than {_PIECE} bytes, so this is no text; put blanks between words")
        rest += block[cut:]
    if not ended:
        yield rest + b"\n"
