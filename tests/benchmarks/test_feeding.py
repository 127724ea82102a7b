"""The benchmark of feeding policies measures what it says."""

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import feeding


def test_rows_are_ratios_to_teacher_forcing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("VOCABULARY", 60), ("HIDDEN", 8), ("BATCH", 3), ("STEPS", 4), ("BITS", 16)):
        monkeypatch.setattr(feeding, name, value)
    with Progress(disable=True) as progress:
        progress.add_task("")
        rows = feeding.measure("ecoc", 1, progress)
    assert rows[0]["policy"] == "teacher" and rows[0]["ratio"] == 1.0 and len(rows) == 11
    assert all(row["ratio"] == pytest.approx(row["seconds"] / rows[0]["seconds"]) for row in rows)
    console = Console(record=True, width=120)
    console.print(feeding.table(rows))
    assert "differentiable" in console.export_text()
