"""What running a row in a process of its own takes: what is typed, a lock, and what the result should remember."""

import fcntl
import hashlib
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ecoc import __version__


class Failed(Exception):  # noqa: N818 (what a row did, not a mistake here)
    """A row's process ended with an error; its last line is the message."""


def flags(options: dict[str, Any]) -> list[str]:
    """Options as they are typed; those that are off are not."""
    result = []
    for name, value in options.items():
        if value is not None and value is not False:
            result += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return result


def command_of(command: str, options: dict[str, Any]) -> str:
    """The whole line, with placeholders for what is elsewhere on another machine."""
    return f"ecoc {command} {shlex.join(flags(options))}"


def data_dir_of(data_dir: str | None, corpus: str) -> str:
    """The folder of a corpus: the one given, or the one of its name in there."""
    if data_dir is None:
        raise ValueError(f"--data-dir is missing: the folder that has {corpus}, or a folder {corpus} with its files")
    inside = Path(data_dir) / corpus
    return str(inside if inside.is_dir() else data_dir)


@contextmanager
def alone(folder: Path) -> Iterator[int]:
    """Wait until no process, not even one that a killed runner left behind, works on this folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.with_name(f".{folder.name}.lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def commit() -> str:
    """Of the code that runs, with ``-dirty`` if it has changes; ``unknown`` outside its own repository."""
    here = Path(__file__).parents[2]
    if not (here / ".git").exists():  # an installed package may lie in the repository of something else
        return "unknown"
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "ecoc": __version__}


def digest(path: str) -> str:
    """Of a file's content, short."""
    result = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(2**20):
            result.update(block)
    return result.hexdigest()[:12]
