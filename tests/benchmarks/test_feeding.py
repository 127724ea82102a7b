"""The benchmark of feeding policies measures what it says."""

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import feeding
from benchmarks.measure import side_by_side


def test_rows_are_ratios_to_teacher_forcing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("VOCABULARY", 60), ("HIDDEN", 8), ("BATCH", 3), ("STEPS", 4), ("BITS", 16)):
        monkeypatch.setattr(feeding, name, value)
    models = []

    def timed(first, second, repeats: int) -> tuple[float, float]:
        for step in (first, second):
            step()
            model = step.args[0]
            assert model.training and all(p.grad is not None for p in model.parameters())
        models.append(second.args[0])
        assert first.args[0].feeding is None and first.args[0].head is models[-1].head
        return side_by_side(first, second, repeats)

    monkeypatch.setattr(feeding, "side_by_side", timed)
    with Progress(disable=True) as progress:
        progress.add_task("")
        rows = feeding.measure("ecoc", 1, progress)
    assert all(model.feeding.probability == 0.5 for model in models)
    assert [model.sequential for model in models] == [row["mode"] == "sequential" for row in rows]
    assert [model.feeding.name for model in models] == [row["policy"] for row in rows]
    assert len(rows) == 10
    assert all(row["ratio"] == pytest.approx(row["seconds"] / row["teacher_seconds"]) for row in rows)
    console = Console(record=True, width=120)
    console.print(feeding.table(rows))
    assert "differentiable" in console.export_text()
