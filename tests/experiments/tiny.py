"""A study of two rows small enough for a second an epoch."""

from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from ecoc.cli import main
from ecoc.experiments.job import Job
from ecoc.experiments.results import Result, read_results
from ecoc.experiments.rows import SHARED
from ecoc.options import ReproduceOptions
from tests.training.tiny import write_corpus

ROOT = Path(__file__).parents[2]


def write_study(tmp_path: Path) -> ReproduceOptions:
    folder = tmp_path / "configs/tiny"
    folder.mkdir(parents=True)
    write_corpus(tmp_path / "text")
    shared = {
        "command": "train",
        "options": {"layers": 1, "hidden": 16, "batch": 4, "bptt": 8},
        "learning_rates": [0.02],
        "budgets": {"small": {"text": {"epochs": 2}}},
        "order": ["Softmax", "Code"],
    }
    (folder / SHARED).write_text(yaml.safe_dump(shared))
    rows = {
        "softmax": {"row": "Softmax", "options": {"head": "softmax"}, "paper": {"text": {"test": 5.0}}},
        "code": {"row": "Code", "options": {"head": "ecoc", "bits": 24, "samples": 20}, "note": "a note"},
    }
    for name, row in rows.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(row))
    return ReproduceOptions(
        "tiny", data_dir=str(tmp_path), results=str(tmp_path / "results"), out=str(tmp_path / "runs"), jobs=2
    )


class Here:
    """A process that is none: the command runs here, where torch is loaded already."""

    def __init__(self, job: Job, arguments: list[str]) -> None:
        job.folder.mkdir(parents=True, exist_ok=True)
        out, errors = job.folder / "output.txt", job.folder / "errors.txt"
        with out.open("w") as one, errors.open("w") as other, redirect_stdout(one), redirect_stderr(other):
            self.code = main(arguments)

    def poll(self) -> int:
        return self.code

    wait = poll


def change(tmp_path: Path, name: str, **values: Any) -> None:
    """Give a config other values."""
    path = tmp_path / "configs/tiny" / name
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))


def with_two_rates(tmp_path: Path) -> None:
    change(tmp_path, SHARED, learning_rates=[1e-5, 0.02])


def read(settings: ReproduceOptions) -> dict[str, Result]:
    return {one.row: one for one in read_results(Path(settings.results))}
