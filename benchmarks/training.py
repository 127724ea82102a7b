"""How fast language models train on corpora of different vocabularies, in one run.

    python -m benchmarks.training --corpus ptb --corpus FOLDER --data-dir DIR --steps 100

Each head on each corpus trains in a process of its own for some steps, as ``ecoc train`` does (2 layers of 400, batch
20, 35 steps of BPTT); reading the text and building the code come before and are not in the rate. The peak of resident
memory is that of the whole process, code and corpus included.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ecoc.options import TrainOptions
from ecoc.training.launch import build_task, prepared
from ecoc.training.trainer import Trainer


def measure(options: TrainOptions, steps: int) -> dict[str, object]:
    """Rate, memory and sizes of one model on one corpus."""
    torch.set_num_threads(options.threads or torch.get_num_threads())
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        corpus, parts = prepared(options, Path(scratch))
        task = build_task(options, corpus, parts)
        trainer = Trainer(options, task, Path(scratch))
        trainer.model.train()
        seconds, cpu, losses = [], [], []
        for batch in task.batches(0, 0):
            clock = time.perf_counter(), time.process_time()
            losses.append(trainer.step(batch))
            trainer.position["step"] += 1
            seconds.append(time.perf_counter() - clock[0])
            cpu.append(time.process_time() - clock[1])
            if len(seconds) == steps:
                break
    tokens = options.batch * options.bptt
    return {
        "corpus": options.corpus,
        "head": options.head,
        "words": len(corpus.vocabulary),
        "tokens_per_second": tokens / statistics.median(seconds),
        "cpu_seconds_per_1000_tokens": statistics.median(cpu) / tokens * 1000,
        "steps": len(seconds),
        "loss": statistics.mean(losses[-10:]),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
        "parameters": task.model.num_parameters(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def table(rows: list[dict]) -> Table:
    """The rows, each next to the first."""
    result = Table(title=f"Training, {rows[0]['threads']} threads", title_justify="left")
    for name in ("corpus", "head"):
        result.add_column(name)
    for name in ("words", "tokens/s", "of the first", "peak memory, MB", "decoder", "all parameters", "loss"):
        result.add_column(name, justify="right")
    for row in rows:
        result.add_row(
            Path(row["corpus"]).name,
            row["head"],
            f"{row['words']:,}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['tokens_per_second'] / rows[0]['tokens_per_second']:.2f}",
            f"{row['peak_memory_bytes'] / 1e6:,.0f}",
            f"{row['parameters']['decoder']:,}",
            f"{sum(row['parameters'].values()):,}",
            f"{row['loss']:.2f}",
        )
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Rates of training, each head on each corpus, in one run.")
    parser.add_argument("--corpus", action="append", help="corpus; may be given several times (default: builtin)")
    parser.add_argument("--data-dir", help="where the files of ptb and wikitext are")
    parser.add_argument("--head", action="append", help="head; may be given several times (default: ecoc, softmax)")
    parser.add_argument("--min-count", type=int, help="words seen less often become <unk>")
    parser.add_argument("--steps", type=int, default=100, help="steps to measure (default: 100)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    given = parser.parse_args()
    console, rows = Console(), []
    for corpus in given.corpus or ["builtin"]:
        for head in given.head or ["ecoc", "softmax"]:
            options = TrainOptions(
                corpus=corpus, head=head, data_dir=given.data_dir, min_count=given.min_count, threads=given.threads
            )
            with (
                console.status(f"{head} on {corpus}"),
                ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process,
            ):
                rows.append(process.submit(measure, options, given.steps).result())
    console.print(table(rows))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
