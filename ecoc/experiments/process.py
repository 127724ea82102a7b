"""What running a row in a process of its own takes: where the data is, a lock, and what ended the process."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import ecoc

# Children run the code that runs here, whatever lies in the current folder, where -m would look first.
_MAIN = "import sys; sys.path[0] = sys.argv.pop(1); from ecoc.cli import main; sys.exit(main())"


class Failed(Exception):  # noqa: N818 (what a row did, not a mistake here)
    """A row's process ended with an error; its last line is the message."""


def data_dir_of(data_dir: str | None, corpus: str) -> str:
    """The folder of a corpus: the one given, or the one of its name in there."""
    if data_dir is None:
        raise ValueError(f"--data-dir is missing: the folder that has {corpus}, or a folder {corpus} with its files")
    inside = Path(data_dir) / corpus
    return str(inside if inside.is_dir() else data_dir)


def start(arguments: Sequence[str], folder: Path, threads: int, lock: int) -> "subprocess.Popen[str]":
    """Run ``ecoc`` with these arguments; what it says goes to files in the folder, and it keeps the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "output.txt").open("w") as output, (folder / "errors.txt").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", _MAIN, str(Path(ecoc.__file__).parents[1]), *arguments],
            stdout=output,
            stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            text=True,
            pass_fds=(lock,),
            start_new_session=True,  # an interrupt is the runner's, which asks once: a second one is harsher
        )


def output_of(process: "subprocess.Popen[str]", folder: Path, what: str) -> str:
    """What it printed when it is done; raises what ended it."""
    code = process.wait()
    if code == 130:
        raise KeyboardInterrupt
    if code < 0:
        raise Failed(f"{what}: killed by signal {-code}{' (out of memory?)' if code == -signal.SIGKILL else ''}")
    if code != 0:
        errors = (folder / "errors.txt").read_text().strip().splitlines()
        raise Failed(f"{what}: {errors[-1] if errors else f'exit code {code}'}")
    return (folder / "output.txt").read_text()


@contextmanager
def alone(folder: Path, stop: threading.Event) -> Iterator[int]:
    """Wait until no process, not even one that a killed runner left behind, works on this folder, or for the event."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.with_name(f".{folder.name}.lock"), os.O_CREAT | os.O_RDWR)
    try:
        while not _locked(descriptor):
            if stop.wait(0.1):
                raise KeyboardInterrupt
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
