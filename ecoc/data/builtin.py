"""The built-in corpus: what Python's standard library says about itself.

The docstrings of the standard library's modules and the help topics of `pydoc_data`, read from the installed
interpreter: real English on every machine, nothing to download. The same for the same Python.
"""

import ast
import gc
import hashlib
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ecoc.data.vocabulary import TOKENISERS

_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "pydoc_data"}
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # where statements stand inside a statement


def builtin_sentences() -> dict[str, list[list[str]]]:
    """Paragraphs as lists of words, by module, in order of the modules' names."""
    return {name: [words for _, words in paragraphs] for name, paragraphs in _paragraphs().items()}


def builtin_splits() -> dict[str, Iterator[str]]:
    """Paragraphs as lines of text, for ``train``, ``valid`` and ``test``: about 90, 5 and 5 % of the words.

    A package is never divided, so that no module is tested on what its neighbours have said in training. Packages come
    in the order of a hash of their names; valid and test take those that fit into a quarter of the room they have left,
    so that no single one makes up most of them.
    """
    lines: dict[str, list[str]] = {}
    size: Counter[str] = Counter()
    for name, paragraphs in _paragraphs().items():
        package = name.partition(".")[0]
        lines.setdefault(package, []).extend(line for line, _ in paragraphs)
        size[package] += sum(len(words) for _, words in paragraphs)
    room = dict.fromkeys(("valid", "test"), size.total() / 20)
    members: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for package in sorted(lines, key=lambda name: hashlib.sha256(name.encode()).digest()):
        split = next((split for split, left in room.items() if size[package] <= left / 4), "train")
        members[split].append(package)
        if split in room:
            room[split] -= size[package]
    return {split: (line for name in sorted(names) for line in lines[name]) for split, names in members.items()}


def _paragraphs() -> dict[str, list[tuple[str, list[str]]]]:
    """Each module's paragraphs of three words or more, as a line and as words, in order of the modules' names."""
    texts = {"pydoc_data.topics": list(_topics())}
    collecting = gc.isenabled()
    gc.disable()  # it would go through the syntax trees' million objects again and again: 4.7 s instead of 2.7
    try:
        texts |= {name: list(_docstrings(path)) for name, path in _modules()}
    finally:
        if collecting:
            gc.enable()
    result = {}
    for name, parts in sorted(texts.items()):
        lines = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", "\n\n".join(parts)))
        pairs = ((line, TOKENISERS["simple"](line)) for line in lines)
        if kept := [(line, words) for line, words in pairs if len(words) > 2]:
            result[name] = kept
    return result


def _modules() -> Iterator[tuple[str, Path]]:
    root = Path(sysconfig.get_path("stdlib"))
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders) - _SKIPPED  # not entered: site-packages can be larger than all the rest
        for file in files:
            name, suffix = os.path.splitext(file)
            if suffix == ".py" and name not in _SKIPPED:
                path = Path(folder, file)
                yield ".".join(path.relative_to(root).with_suffix("").parts), path


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # some files of the library are broken on purpose
        return
    # ast.walk would go into every expression, where no docstring is: 1.1 s more over all modules
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
        inside = [child for block in _BLOCKS for child in getattr(node, block, ())]
        nodes.extend(reversed(inside))


def _topics() -> Iterator[str]:
    from pydoc_data.topics import topics

    yield from (text for _, text in sorted(topics.items()))
