"""The benchmark measures what it says, for every head, and writes what other tools read."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.heads import BASELINE, OUR_HEADS
from benchmarks.measure import median_seconds, peak_extra_bytes

ROOT = Path(__file__).parents[2]


def test_peak_memory_is_what_is_held_at_once() -> None:
    held = torch.ones(1000)  # before: does not count

    def call() -> torch.Tensor:
        first = torch.ones(500_000)  # 2 MB
        del first
        second = torch.ones(1_000_000)  # 4 MB, not together with the first
        return second + held[0]  # and 4 MB more

    assert 8_000_000 <= peak_extra_bytes(call) < 8_100_000


def test_the_median_leaves_the_warm_up_out() -> None:
    calls = []
    seconds = median_seconds(lambda: calls.append(1), repeats=5)
    assert len(calls) == 6 and 0 <= seconds < 1


def test_every_head_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.heads", "--vocab", "3000", "--hidden", "16", "--tokens", "20"]
    command += ["--repeats", "1", "--json", str(tmp_path / "heads.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "heads.json").read_text())["rows"]
    measured = {row["head"] for row in rows}
    assert measured >= {BASELINE, "torch AdaptiveLogSoftmaxWithLoss", *OUR_HEADS}
    assert all(row[key] > 0 for row in rows for key in ("step_ms", "extra_mb", "parameters", "greedy_ms", "nll_ms"))
    parameters = {row["head"]: row["parameters"] for row in rows}
    assert parameters[BASELINE] == parameters["softmax"] == 3000 * 17
    assert "V = 3,000" in done.stdout
