"""Results of experiments: one JSON file a row, seed and corpus, under ``results/``.

A file holds what was run (command, commit, versions), under which conditions (seed, epochs, learning rate and how it
was chosen), what it cost (CPU seconds, memory, parameters, bytes), and what came out (scores, curve). A row that nobody
would wait for has the measured seconds of an epoch instead.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ecoc.training.checkpoint import written_whole


@dataclass
class Result:
    """One row under one seed.

    Attributes:
        study: ``table1``, ``table2``, ``figure2`` or ``ablation``.
        row: Name of the row, as in the paper.
        corpus: ``ptb``, ``wikitext-2``, ``wikitext-103`` or ``coco``.
        seed, budget: What it was run with.
        command: The command that trains the same again, from the root of the repository.
        commit: Of the code that training was started with, with ``-dirty`` if it had changes.
        evaluated: Of the code that evaluated it.
        versions: Of Python, torch and ecoc.
        data: Digests of outside files: ``vectors``, ``captions``, ``features``, ``projection``.
        paper: The paper's values by name, such as ``valid`` and ``test``; empty if it has none.
        note: What a reader should know about the row.
        options: The options of training.
        tuning: Validation perplexity (normalised) after one epoch, by learning rate.
        tuned: Whose that is: a row on a corpus.
        sizes: ``decoder_parameters``, ``parameters``, ``bytes`` (packed codebook included).
        cost: ``cpu_seconds`` of training with validation, ``validation_cpu_seconds``, ``preparation_cpu_seconds``,
            ``peak_memory_bytes``, ``threads``, ``epochs``.
        valid, test: Scores: ``perplexity`` by mode and others for language models, BLEU and the like for captions.
        curve: A record an epoch: ``epoch``, ``train_loss``, ``valid_perplexity`` by mode, ``cpu_seconds``.
        extra: What a study has beyond this: ``captions`` (table2); ``flips``, ``accuracy`` and ``recovered`` of
            :func:`ecoc.metrics.bit_flips` (ablation).
        skipped: Why the row was not run; empty if it was. Then ``cost`` has ``cpu_seconds_per_epoch``.
    """

    study: str
    row: str
    corpus: str
    seed: int
    budget: str
    command: str = ""
    commit: str = ""
    evaluated: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)
    note: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    tuning: dict[str, float] = field(default_factory=dict)
    tuned: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    valid: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    skipped: str = ""

    def path(self, results: Path) -> Path:
        """Where the file is, below the folder of results."""
        return results / self.study / self.corpus / f"{self.row}.{self.budget}.seed{self.seed}.json"

    def save(self, results: Path) -> None:
        """Write the file, whole or not at all."""
        path = self.path(results)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


_INSIDE = {  # what tables and figures take from values of any kind
    "valid.perplexity": dict[str, float],
    "test.perplexity": dict[str, float],
    "test.perplexity_by_band": dict[str, dict[str, float]],
    "extra.flips": list[float],
    "extra.accuracy": list[float],
    "extra.recovered": list[float],
    "extra.captions": list[dict[str, Any]],
}


def read_results(results: Path) -> list[Result]:
    """All results below a folder, in the order of their files."""
    if not results.is_dir():
        raise ValueError(f"{results} is no folder: run `ecoc reproduce table1` first, or give --results")
    found: dict[Path, tuple[Path, Result]] = {}
    for path in sorted(results.glob("*/*/*.json")):
        result = read_result(path)
        other, _ = found.setdefault(result.path(results), (path, result))
        if other != path:  # it would count as one more seed
            raise ValueError(f"{path} and {other} are results of the same row and seed: delete one")
    return [result for _, result in found.values()]


def read_result(path: Path) -> Result:
    """One file of results."""
    try:
        result = Result(**json.loads(path.read_text(encoding="utf-8")))
        for name, hint in get_type_hints(Result).items():
            _check(getattr(result, name), hint, name)
        for name, hint in _INSIDE.items():
            group, _, key = name.partition(".")
            if key in (values := getattr(result, group)):
                _check(values[key], hint, name)
        for record in result.curve:
            _check(record.get("cpu_seconds"), float, "curve's cpu_seconds")
            _check(record.get("valid_perplexity"), dict[str, float], "curve's valid_perplexity")
        return result
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no result, or damaged ({error}): delete it and run the row again") from error


def _check(value: Any, hint: Any, name: str) -> None:
    """Raise TypeError if the value, or one in it, is not of this type; a number must be finite."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return
    if kind is float and isinstance(value, int):
        kind = int
    if not isinstance(value, kind) or isinstance(value, bool) or (kind is float and not math.isfinite(value)):
        raise TypeError(f"its {name} is no {kind.__name__}")
    for one in value.values() if kind is dict else value if kind is list else ():
        _check(one, inner[-1], name)
