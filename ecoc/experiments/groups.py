"""Results that can be compared: the rows of one study on one corpus within one budget, over their seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ecoc.experiments.results import Result

FULL = "Full-SM"  # what all others are compared with
TIMED = 1  # the seed whose CPU seconds are compared: others may have been run on another day or machine
TEST, VALID = "test.perplexity.normalised", "valid.perplexity.normalised"
_CORPORA = ("ptb", "wikitext-2", "wikitext-103", "coco")
_PAPER_ROWS = (
    *(FULL, "Rand-Sample-SM", "Uni-Sample-SM", "Rand-Hierarchical-SM", "Uni-Hierarchical-SM", "Adaptive-SM", "NCE"),
    *("Random-ECOC", "Uni-ECOC", "Embedding-ECOC"),  # so far Table 1, from here Table 2
    *("SS-SM", "Soft-SS-SM", "SS-Adaptive-SM", "SS-Hierarchical-SM", "CLVMS-Hierarchical-SM", "DLVMS-Hierarchical-SM"),
    *("SS-ECOC", "Soft-SS-ECOC", "CLVMS-ECOC", "DLVMS-ECOC"),
)
FACTORS = ("codebook", "vectors", "objective", "mixture", "predictor_layers", "bits")  # options that make a code
DEFAULTS = {"objective": "likelihood", "mixture": "1", "predictor_layers": "1"}  # of those that a row may leave out


@dataclass(frozen=True)
class Runs:
    """The runs of one row, one a seed; if it was skipped, the one result that says so."""

    name: str
    results: tuple[Result, ...]

    @property
    def skipped(self) -> str:
        return self.results[0].skipped

    @property
    def coded(self) -> bool:
        """Whether words are error-correcting codes here."""
        return "ECOC" in self.name or self.first("options.head") in ("ecoc", "hybrid")

    def first(self, path: str) -> Any:
        """What the first seed has under ``part.name.name``; None if there is nothing."""
        return _under(self.results[0], path)

    def values(self, path: str, seed: int | None = None) -> list[float]:
        """What the runs have there, of all seeds or of one."""
        found = (_under(result, path) for result in self.results if seed in (None, result.seed))
        return [float(value) for value in found if isinstance(value, int | float) and math.isfinite(value)]

    def mean(self, path: str, seed: int | None = None) -> float | None:
        values = self.values(path, seed)
        return fmean(values) if values else None

    @property
    def bits(self) -> float:
        """Length of a codeword; 0 without one."""
        return self.mean("options.bits") or self.mean("test.bits") or 0.0


@dataclass(frozen=True)
class Group:
    """What can be compared: the rows of one study on one corpus within one budget."""

    study: str
    corpus: str
    budget: str
    rows: Sequence[Runs]

    def row(self, name: str) -> Runs | None:
        return next((row for row in self.rows if row.name == name), None)

    def code(self, row: Runs) -> dict[str, Any]:
        """What makes the row's code; vectors are part of its kind where the same kind has several."""
        code = {name: row.first(f"options.{name}") for name in FACTORS}
        vectors = {
            one.first("options.vectors") for one in self.rows if one.first("options.codebook") == code["codebook"]
        }
        used = code.pop("vectors")
        return code | {"codebook": f"{code['codebook']} {used}" if len(vectors) > 1 else code["codebook"]}


def groups(results: Sequence[Result], study: str) -> list[Group]:
    """A study's results: corpora in the paper's order, the budget with most rows first.

    What other studies bring along has names of its own: ``bands`` is Table 1 by how frequent words are, ``flips`` is
    of any study that flipped bits.
    """
    rows: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in results:
        flips, bands = "flips" in result.extra, result.study == "table1" and "perplexity_by_band" in result.test
        if result.study == study or (study == "flips" and flips) or (study == "bands" and bands):
            rows.setdefault((result.corpus, result.budget), {}).setdefault(result.row, []).append(result)
    found = []
    for (corpus, budget), named in rows.items():
        finished = {name: [run for run in runs if not run.skipped] or runs[:1] for name, runs in named.items()}
        runs = [Runs(name, tuple(results)) for name, results in finished.items()]
        found.append(Group(study, corpus, budget, sorted(runs, key=_place)))

    def order(group: Group) -> tuple[Any, ...]:
        known = _CORPORA.index(group.corpus) if group.corpus in _CORPORA else len(_CORPORA)
        return known, group.corpus, -sum(not row.skipped for row in group.rows), group.budget

    return sorted(found, key=order)


def _place(row: Runs) -> tuple[Any, ...]:
    """The paper's rows first, skipped ones last; codes by kind and length, all others by what they reach."""
    known = _PAPER_ROWS.index(row.name) if row.name in _PAPER_ROWS else len(_PAPER_ROWS)
    codes = row.results[0].study in ("figure2", "ablation")
    kind = [str(row.first(f"options.{name}") or "") for name in FACTORS[:-1]] if codes else []
    length = row.bits if codes else 0.0
    scores = row.mean(TEST), row.mean("test.cider")
    score = scores[0] if scores[0] is not None else math.inf if scores[1] is None else -scores[1]
    return known, bool(row.skipped), kind, length, score, row.name


def _under(result: Result, path: str) -> Any:
    value: Any = vars(result)
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value
