"""The benchmark of training measures what it says."""

from rich.console import Console

from benchmarks.training import measure, table
from tests.training.tiny import options, write_corpus


def test_a_row_has_rate_memory_and_sizes(tmp_path):
    row = measure(options(write_corpus(tmp_path / "corpus"), tmp_path / "run"), steps=5)
    assert row["steps"] == 5 and row["words"] == 32 and row["tokens_per_second"] > 0
    assert row["parameters"]["decoder"] == 24 * 17 and 0 < row["loss"] < 5
    console = Console(record=True, width=150)
    console.print(table([row, row | {"tokens_per_second": row["tokens_per_second"] / 2}]))
    assert "0.50" in console.export_text()
