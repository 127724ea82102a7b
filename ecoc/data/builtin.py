"""The built-in corpus: what Python's standard library says about itself.

The docstrings of the standard library's modules and the help topics of `pydoc_data`, read from the installed
interpreter: real English on every machine, nothing to download. The same for the same Python.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_WORD = re.compile(r"[A-Za-z]+(?:['_][A-Za-z]+)*|\d+|[^\sA-Za-z\d]")
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "pydoc_data"}


def builtin_sentences() -> dict[str, list[list[str]]]:
    """Paragraphs as lists of words, by module, in order of the modules' names."""
    texts = {name: list(_docstrings(path)) for name, path in _modules()}
    texts["pydoc_data.topics"] = list(_topics())
    sentences = {}
    for name, parts in sorted(texts.items()):
        paragraphs = (paragraph for part in parts for paragraph in re.split(r"\n\s*\n", part))
        words = (_WORD.findall(paragraph.lower()) for paragraph in paragraphs)
        if kept := [sentence for sentence in words if len(sentence) > 2]:
            sentences[name] = kept
    return sentences


def _modules() -> Iterator[tuple[str, Path]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if _SKIPPED.isdisjoint(parts):
            yield ".".join(parts), path


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # some files of the library are broken on purpose
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _topics() -> Iterator[str]:
    from pydoc_data.topics import topics

    yield from (text for _, text in sorted(topics.items()))
