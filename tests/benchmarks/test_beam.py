"""The benchmark of beam search measures what it says."""

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import beam
from ecoc.heads import Head
from ecoc.models import Captioner


def test_rows_are_ratios_to_greedy_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("VOCABULARY", 60), ("HIDDEN", 8), ("FEATURES", 6), ("BATCH", 3), ("WORDS", 4)):
        monkeypatch.setattr(beam, name, value)
    steps: list[int] = []
    advance, topk = Captioner.advance, Head.topk
    monkeypatch.setattr(Captioner, "advance", lambda self, t, s: steps.append(len(t)) or advance(self, t, s))
    widths: list[int] = []
    monkeypatch.setattr(Head, "topk", lambda self, hidden, k: widths.append(k) or topk(self, hidden, k))
    monkeypatch.setattr(beam, "median_seconds", lambda call, repeats: call() or 0.5 * len(steps))
    with Progress(disable=True) as progress:
        progress.add_task("")
        rows = beam.measure("softmax", 1, progress)
    assert steps[:4] == [3, 3, 3, 3]  # greedy: one row an image
    assert steps[4:8] == [3, 9, 9, 9] and {5, 7, 12} <= {*widths}  # one more, and one banned
    assert [row["search"] for row in rows] == ["greedy", "beam 3", "beam 5", "beam 10"]
    assert all(row["ratio"] == pytest.approx(row["seconds"] / rows[0]["seconds"]) for row in rows)
    console = Console(record=True, width=120)
    console.print(beam.table(rows))
    assert "times greedy" in console.export_text()
