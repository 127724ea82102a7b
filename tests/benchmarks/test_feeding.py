"""The benchmark of feeding policies measures what it says."""

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import feeding
from benchmarks.measure import median_seconds


def test_rows_are_ratios_to_teacher_forcing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("VOCABULARY", 60), ("HIDDEN", 8), ("BATCH", 3), ("STEPS", 4), ("BITS", 16)):
        monkeypatch.setattr(feeding, name, value)
    models = []

    def timed(step, repeats: int) -> float:
        step()
        models.append(step.__defaults__[0])
        assert models[-1].training and all(p.grad is not None for p in models[-1].parameters())
        return median_seconds(step, repeats)

    monkeypatch.setattr(feeding, "median_seconds", timed)
    with Progress(disable=True) as progress:
        progress.add_task("")
        rows = feeding.measure("ecoc", 1, progress)
    assert models[0].feeding is None and all(model.feeding.probability == 0.5 for model in models[1:])
    assert [model.sequential for model in models[1:]] == [row["mode"] == "sequential" for row in rows[1:]]
    assert [model.feeding.name for model in models[1:]] == [row["policy"] for row in rows[1:]]
    assert rows[0]["policy"] == "teacher" and rows[0]["ratio"] == 1.0 and len(rows) == 11
    assert all(row["ratio"] == pytest.approx(row["seconds"] / rows[0]["seconds"]) for row in rows)
    console = Console(record=True, width=120)
    console.print(feeding.table(rows))
    assert "differentiable" in console.export_text()
