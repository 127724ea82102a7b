"""Rows of the paper's tables and figure, from the YAML files in ``configs/``.

A study is a folder with one file a row and ``shared.yaml``, which has what all rows share: options of ``ecoc train`` or
``ecoc caption train``, the learning rates that every row chooses from, and the budgets.

    # shared.yaml                                  # full-sm.yaml
    command: train                                 row: Full-SM
    options: {layers: 2, hidden: 400}              paper: {ptb: {valid: 86.19, test: 79.24}}
    learning_rates: [0.001, 0.002, 0.004]          options: {head: softmax}
    budgets: {small: {ptb: {epochs: 6}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

import ecoc

SHARED = "shared.yaml"


@dataclass(frozen=True)
class Row:
    """One row: a name, and what is special about it.

    Attributes:
        name: As in the paper.
        about: What it is: the comment that its file begins with.
        options: Of training; ``VECTORS`` in a value stands for the file of outside word vectors. A row with an ``lr``
            of its own is not tuned.
        paper: The paper's values by corpus.
        note: What a reader should know.
        by_corpus: Options that one corpus has beside them.
        measure_only: By budget, corpora on which an epoch is measured and not run to the end.
        tuned_as: The row whose learning rate it takes because its first epoch is the same; its own by default.
        corpora: That it is run on; all by default.
    """

    name: str
    about: str
    options: dict[str, Any]
    paper: dict[str, dict[str, float]] = field(default_factory=dict)
    note: str = ""
    by_corpus: dict[str, dict[str, Any]] = field(default_factory=dict)
    measure_only: dict[str, list[str]] = field(default_factory=dict)
    tuned_as: str = ""
    corpora: tuple[str, ...] = ()

    @property
    def needs_vectors(self) -> bool:
        return "VECTORS" in str(self.options.get("vectors", ""))


@dataclass(frozen=True)
class Study:
    """A table or figure.

    Attributes:
        name: Of its folder.
        command: That trains a row.
        options: That all rows share.
        learning_rates: That every row chooses from.
        budgets: Options by budget and corpus.
        tuned_on: By budget, corpora whose rows take the learning rates of another corpus: ``{wikitext-2: ptb}``.
        rows: In the paper's order, then ours.
    """

    name: str
    command: str
    options: dict[str, Any]
    learning_rates: list[float]
    budgets: dict[str, dict[str, dict[str, Any]]]
    tuned_on: dict[str, dict[str, str]]
    rows: list[Row]

    def chosen(self, names: str | None) -> list[Row]:
        """The rows with these names, joined by commas; all by default."""
        if names is None:
            return self.rows
        wanted = dict.fromkeys(name.strip() for name in names.split(","))
        known = {row.name.lower(): row for row in self.rows}
        for name in wanted:
            if name.lower() not in known:
                raise ValueError(
                    f"{self.name} has no row {name}: choose from {', '.join(row.name for row in self.rows)}"
                )
        return [known[name.lower()] for name in wanted]

    def corpora(self, budget: str, names: str | None) -> list[str]:
        """The corpora of a budget with these names, joined by commas; all by default."""
        if budget not in self.budgets:
            raise ValueError(f"{self.name} has no budget {budget}: choose from {', '.join(self.budgets)}")
        known = self.budgets[budget]
        wanted = dict.fromkeys(known if names is None else (name.strip() for name in names.split(",")))
        for name in wanted:
            if name not in known:
                raise ValueError(f"{self.name} does not run on {name}: choose from {', '.join(known)}")
        return [*wanted]


def configs() -> Path:
    """The folder of configs: beside the package in a clone, inside it when installed."""
    inside, beside = Path(ecoc.__file__).parent / "configs", Path(ecoc.__file__).parents[1] / "configs"
    return inside if inside.is_dir() else beside


def studies() -> list[str]:
    """Names of all studies."""
    return sorted(path.parent.name for path in configs().glob(f"*/{SHARED}"))


def read_study(name: str, folder: Path | None = None) -> Study:
    """A study's shared settings and rows."""
    folder = folder or configs() / name
    if not (folder / SHARED).is_file():
        raise ValueError(f"study {name} is unknown: choose one of {', '.join(studies())}")
    shared = _read(folder / SHARED, {"command", "options", "learning_rates", "budgets", "tuned_on", "order"})
    rows = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.name == SHARED:
            continue
        values = _read(path, {"row", "options", "paper", "note", "by_corpus", "measure_only", "tuned_as", "corpora"})
        row = Row(
            str(values["row"]),
            _comment(path),
            values["options"],
            values.get("paper") or {},
            " ".join(str(values.get("note") or "").split()),
            values.get("by_corpus") or {},
            values.get("measure_only") or {},
            str(values.get("tuned_as") or ""),
            tuple(values.get("corpora") or ()),
        )
        if row.name in rows:
            raise ValueError(f"{path}: row {row.name} is there twice; rename one")
        rows[row.name] = row
    order = shared["order"]
    if sorted(order) != sorted(rows):
        raise ValueError(
            f"{folder / SHARED}: order must name every row once; it and the files differ in "
            f"{', '.join(sorted(set(order) ^ set(rows))) or 'repeated names'}"
        )
    for row in rows.values():
        if row.tuned_as and (row.tuned_as not in rows or rows[row.tuned_as].tuned_as):
            raise ValueError(
                f"{folder}: {row.name} is tuned as {row.tuned_as}, which must be a row with its own tuning"
            )
    return Study(
        name,
        shared["command"],
        shared["options"],
        shared["learning_rates"],
        shared["budgets"],
        shared.get("tuned_on") or {},
        [rows[one] for one in order],
    )


def _comment(path: Path) -> str:
    """The lines at a file's beginning that are comments."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return " ".join(line.strip("# ") for line in lines)


def _read(path: Path, known: set[str]) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, Mapping) or set(values) - known or not isinstance(values.get("options"), Mapping):
        raise ValueError(f"{path} must have options, and nothing but {', '.join(sorted(known))}")
    return dict(values)
