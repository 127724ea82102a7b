"""How time and memory of one call are measured."""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch is loaded: its profiler talks on every start

from torch.profiler import ProfilerActivity, profile

Call = Callable[[], object]


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
