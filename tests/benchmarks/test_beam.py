"""The benchmark of beam search measures what it says."""

from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import beam
from ecoc.captioning import TrainedCaptioner
from ecoc.heads import Head
from ecoc.models import Captioner
from ecoc.options import CaptionTrainOptions
from ecoc.training import train


def test_rows_are_ratios_to_greedy_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("VOCABULARY", 60), ("HIDDEN", 8), ("FEATURES", 6), ("BATCH", 3), ("WORDS", 4)):
        monkeypatch.setattr(beam, name, value)
    steps: list[int] = []
    advance, topk = Captioner.advance, Head.topk
    monkeypatch.setattr(Captioner, "advance", lambda self, t, s: steps.append(len(t)) or advance(self, t, s))
    widths: list[int] = []
    monkeypatch.setattr(Head, "topk", lambda self, hidden, k: widths.append(k) or topk(self, hidden, k))
    monkeypatch.setattr(beam, "side_by_side", lambda one, other, repeats: (one() or 2.0, other() or len(steps)))
    with Progress(disable=True) as progress:
        progress.add_task("")
        rows = beam.measure("softmax", 1, progress)
    assert steps[:4] == [3, 3, 3, 3]  # greedy: one row an image
    assert (
        steps[4:6] == [3, 9] and all(9 <= rows <= 12 for rows in steps[6:8]) and {5, 7, 12} <= {*widths}
    )  # one more, and one banned
    assert [row["beam"] for row in rows] == [3, 5, 10]
    assert all(row["ratio"] == row["seconds"] / 2.0 for row in rows)
    console = Console(record=True, width=120)
    console.print(beam.table(rows))
    assert "times greedy" in console.export_text()


def test_trained_captioners_are_measured_on_their_test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CaptionTrainOptions(
        scenes=30, hidden=8, layers=1, epochs=1, batch=20, head="softmax", out=str(tmp_path / "run"), threads=1
    )
    run = train(options, progress=False)
    widths: list[int] = []
    captions = TrainedCaptioner.captions
    monkeypatch.setattr(
        TrainedCaptioner,
        "captions",
        lambda self, features, width: widths.append(width) or captions(self, features, width),
    )
    with Progress(disable=True) as progress:
        progress.add_task("")
        rows = beam.measure_run(run, 1, progress)
    assert [row["beam"] for row in rows] == [3, 5, 10] and {row["head"] for row in rows} == {str(run)}
    assert widths == [1, 3, 1, 3, 1, 5, 1, 5, 1, 10, 1, 10]  # once to warm up, once measured
