"""Every head next to torch's own three, in one run.

    python -m benchmarks.heads --json heads.json

For each vocabulary size: time of forward and backward over a batch, peak extra memory of that step, decoder parameters
and bytes, time of one greedy step (one hidden state) and of the exact `nll` of the batch. Targets follow Zipf's law, as
words do. Times are medians after a warm-up; compare them within one run only.
"""

import argparse
import gc
import json
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import median_seconds, peak_extra_bytes  # first: it quiets torch's profiler

# isort: split
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc import heads
from ecoc.heads.adaptive import checked_cutoffs

VOCABULARIES = (10_000, 33_278, 267_735)  # Penn Treebank, WikiText-2, WikiText-103
BASELINE = "torch Linear + cross_entropy"
CODE = {"bits": 128, "codebook": "random"}
SPAN = {"bits": 40, "codebook": "span-unigram"}

OUR_HEADS: dict[str, tuple[str, dict[str, object]]] = {
    "softmax": ("softmax", {}),
    "sampled, 1000": ("sampled", {}),
    "sampled, 1000, sparse": ("sampled", {"sparse": True}),
    "nce, 1000": ("nce", {}),
    "hierarchical, two levels": ("hierarchical", {}),
    "hierarchical, binary tree": ("hierarchical", {"tree": "binary"}),
    "adaptive": ("adaptive", {}),
    "differentiated": ("differentiated", {}),
    "ecoc likelihood, 128 bits, 1000": ("ecoc", CODE),
    "ecoc likelihood, 128 bits, 1000, two layers": ("ecoc", CODE | {"layers": 2}),
    "ecoc likelihood, 1024 bits, 1000": ("ecoc", CODE | {"bits": 1024}),
    "ecoc bits, 128 bits": ("ecoc", CODE | {"objective": "bits"}),
    "ecoc span-max, 40 bits": ("ecoc", SPAN | {"objective": "span-max"}),
    "ecoc span-mass, 40 bits": ("ecoc", SPAN | {"objective": "span-mass"}),
    "ecoc span-mass, 40 bits, 8 parts": ("ecoc", SPAN | {"objective": "span-mass", "mixture": 8}),
    "hybrid, 2000 + 128 bits": ("hybrid", CODE | {"frequent": 2000}),
}


@dataclass
class Subject:
    """What is measured: a module and its three calls."""

    name: str
    module: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    nll: Callable[[Tensor, Tensor], Tensor]
    greedy: Callable[[Tensor], Tensor]
    bytes: int = 0


@dataclass
class Row:
    """One line of the table; times in milliseconds, memory in megabytes."""

    vocab: int
    head: str
    step_ms: float
    extra_mb: float
    parameters: int
    decoder_mb: float
    greedy_ms: float
    nll_ms: float


def subjects(vocab: int, hidden: int, counts: Tensor, only: str | None) -> Iterator[Subject]:
    """Build the heads one after the other, so that one at a time is in memory."""
    for make in (_linear, _linear_cross_entropy, _torch_adaptive):
        if only is None or only in make.__doc__ or make is _linear:  # type: ignore[operator]
            subject = make(vocab, hidden)
            if subject is not None:
                yield subject
    for label, (name, options) in OUR_HEADS.items():
        if only is None or only in label:
            head = heads.build(name, hidden, vocab, counts=counts, **options)
            yield Subject(label, head, head, head.nll, head.predict, head.num_bytes())
            if isinstance(head, heads.ECOC) and "span-mass, 40 bits" in label and "parts" not in label:
                yield Subject(
                    "ecoc span, 40 bits, bit decoding", head, head, head.nll, _span_decoding(head), head.num_bytes()
                )


def _span_decoding(head: heads.ECOC) -> Callable[[Tensor], Tensor]:
    return lambda hidden: head.token_of(head.latent_logits(hidden) > 0)


def _linear(vocab: int, hidden: int) -> Subject:
    """torch Linear + cross_entropy"""
    linear = nn.Linear(hidden, vocab)
    return Subject(
        BASELINE,
        linear,
        lambda h, t: F.cross_entropy(linear(h), t),
        lambda h, t: F.cross_entropy(linear(h), t, reduction="none"),
        lambda h: linear(h).argmax(-1),
    )


def _linear_cross_entropy(vocab: int, hidden: int) -> Subject | None:
    """torch linear_cross_entropy"""
    fused = getattr(F, "linear_cross_entropy", None)
    if fused is None:
        return None
    linear = nn.Linear(hidden, vocab)

    def loss(h: Tensor, t: Tensor, reduction: str = "mean") -> Tensor:
        result: Tensor = fused(h, linear.weight, t, linear_bias=linear.bias, reduction=reduction)
        return result

    return Subject(
        "torch linear_cross_entropy", linear, loss, lambda h, t: loss(h, t, "none"), lambda h: linear(h).argmax(-1)
    )


def _torch_adaptive(vocab: int, hidden: int) -> Subject:
    """torch AdaptiveLogSoftmaxWithLoss"""
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(hidden, vocab, checked_cutoffs(None, vocab))
    return Subject(
        "torch AdaptiveLogSoftmaxWithLoss",
        adaptive,
        lambda h, t: adaptive(h, t).loss,
        lambda h, t: -adaptive(h, t).output,
        adaptive.predict,
    )


def measure(subject: Subject, vocab: int, hidden: Tensor, target: Tensor, repeats: int) -> Row:
    """Measure one head."""
    states = hidden.clone().requires_grad_()

    def step() -> None:
        subject.module.zero_grad(set_to_none=True)
        states.grad = None
        subject.loss(states, target).backward()

    step_seconds = median_seconds(step, repeats)
    subject.module.zero_grad(set_to_none=True)
    states.grad = None
    extra = peak_extra_bytes(step)
    subject.module.zero_grad(set_to_none=True)
    parameters = sum(p.numel() for p in subject.module.parameters())
    with torch.no_grad():
        greedy = median_seconds(lambda: subject.greedy(hidden[:1]), 3 * repeats)
        nll = median_seconds(lambda: subject.nll(hidden, target), repeats)
    size = (subject.bytes or 4 * parameters) / 1e6
    return Row(vocab, subject.name, step_seconds * 1e3, extra / 1e6, parameters, size, greedy * 1e3, nll * 1e3)


def run(
    vocab: int,
    hidden_size: int,
    tokens: int,
    repeats: int,
    only: str | None,
    progress: Progress,
    counts: Tensor | None = None,
) -> list[Row]:
    """All heads at one vocabulary size; without counts of its words, with Zipf's."""
    torch.manual_seed(0)
    if counts is None:
        counts = (1e7 / torch.arange(1, vocab + 1, dtype=torch.float64)).ceil()
    target = torch.multinomial(counts, tokens, replacement=True)
    hidden = torch.randn(tokens, hidden_size)
    task = progress.add_task(f"V = {vocab:,}", total=None)
    rows = []
    for subject in subjects(vocab, hidden_size, counts, only):
        progress.update(task, description=f"V = {vocab:,}: {subject.name}")
        rows.append(measure(subject, vocab, hidden, target, repeats))
        del subject
        gc.collect()
    progress.remove_task(task)
    return rows


def table(rows: list[Row]) -> Table:
    """The rows of one vocabulary size, with times and memory as ratios to Linear + cross entropy."""
    base = next(row for row in rows if row.head == BASELINE)
    result = Table(title=f"V = {base.vocab:,} (in brackets: times less than {BASELINE})", title_justify="left")
    result.add_column("head")
    for column in ("step ms", "extra MB", "parameters", "decoder MB", "greedy ms", "nll ms"):
        result.add_column(column, justify="right")

    def compared(mine: float, other: float) -> str:
        return f"{mine:,.2f} ({other / mine:,.1f}x)"

    for row in rows:
        result.add_row(
            row.head,
            compared(row.step_ms, base.step_ms),
            compared(row.extra_mb, base.extra_mb),
            f"{row.parameters:,}",
            f"{row.decoder_mb:,.2f}",
            compared(row.greedy_ms, base.greedy_ms),
            compared(row.nll_ms, base.nll_ms),
        )
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="+", default=VOCABULARIES, help="vocabulary sizes")
    parser.add_argument("--hidden", type=int, default=400, help="size of a hidden state")
    parser.add_argument("--tokens", type=int, default=700, help="tokens in a batch (20 sequences of 35)")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls; the median counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="torch threads")
    parser.add_argument("--only", help="only heads whose label contains this (and the baseline)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    setting = {
        "hidden": arguments.hidden,
        "tokens": arguments.tokens,
        "repeats": arguments.repeats,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    console = Console(width=None if Console().is_terminal else 150)
    console.print(", ".join(f"{key} {value}" for key, value in setting.items()))
    rows: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        for vocab in arguments.vocab:
            rows += run(vocab, arguments.hidden, arguments.tokens, arguments.repeats, arguments.only, progress)
            console.print(table([row for row in rows if row.vocab == vocab]))
    if arguments.json:
        arguments.json.write_text(json.dumps({"setting": setting, "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
