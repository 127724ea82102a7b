"""How time and memory of one call are measured, and the command line of benchmarks that compare two."""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch is loaded: its profiler talks on every start

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

Call = Callable[[], object]


def parser(description: str, heads: Iterable[str]) -> argparse.ArgumentParser:
    """Options of a benchmark over heads."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--head", action="append", choices=[*heads], help="head; may be given several times (all)")
    result.add_argument(
        "--repeats",
        type=int,
        choices=range(1, 1000),
        metavar="N",
        default=5,
        help="turns to take the median of (default: 5)",
    )
    result.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)")
    result.add_argument("--json", type=Path, help="also write the numbers here")
    return result


def show(rows: list[dict], table: Table, path: Path | None) -> None:
    """Print what was measured, and write it if asked to."""
    Console().print(table)
    if path:
        path.write_text(json.dumps({"threads": torch.get_num_threads(), "rows": rows}, indent=1) + "\n")


def median_seconds(call: Call, repeats: int, at_most: float = 20.0) -> float:
    """Median time of `repeats` calls after one to warm up; slow calls are repeated three times at least."""
    call()
    times: list[float] = []
    while len(times) < repeats and (len(times) < 3 or sum(times) < at_most):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def side_by_side(first: Call, second: Call, repeats: int) -> tuple[float, float]:
    """Median times of two calls, taken in turn: a machine whose speed drifts slows both alike."""
    first()
    second()
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for call, own in zip((first, second), times, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def peak_extra_bytes(call: Call) -> int:
    """Most bytes held at once by torch's allocator during the call, beyond those held before."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            call()
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = [(e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes):
        held += change
        peak = max(peak, held)
    return peak
