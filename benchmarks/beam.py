"""What beam search costs, as ratios to greedy decoding in one run.

    python -m benchmarks.beam --json beam.json

Captions of 100 images at once, 20 words each (hardly any ends), by a 1-layer LSTM of 400 units over 10 000 words,
for several heads and widths. Greedy is the plain loop: best word, next step.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.measure import median_seconds
from ecoc import heads
from ecoc.decode import search
from ecoc.models import Captioner, FeatureEncoder, TokenEmbedding, VariationalLSTM

VOCABULARY, HIDDEN, FEATURES, BATCH, WORDS = 10_000, 400, 512, 100, 20
HEADS = {
    "softmax": ("softmax", {}),
    "adaptive": ("adaptive", {}),
    "hierarchical": ("hierarchical", {}),
    "ecoc, 200 bits": ("ecoc", {"bits": 200}),
}
WIDTHS = (3, 5, 10)


@torch.no_grad()
def measure(name: str, repeats: int, progress: Progress) -> list[dict]:
    """Seconds of greedy decoding and of every width for one head."""
    torch.manual_seed(0)
    counts = 1e6 / torch.arange(1, VOCABULARY + 1)
    kind, options = HEADS[name]
    head = heads.build(kind, HIDDEN, VOCABULARY, counts, **options)
    lstm = VariationalLSTM(HIDDEN, HIDDEN, 1)
    model = Captioner(FeatureEncoder(FEATURES, HIDDEN), TokenEmbedding(VOCABULARY, HIDDEN), lstm, head).eval()
    features, start = torch.randn(BATCH, FEATURES), torch.zeros(BATCH, dtype=torch.long)

    def greedy() -> None:
        hidden, state = model.advance(start, model.begin(features))
        for _ in range(WORDS - 1):
            hidden, state = model.advance(head.predict(hidden), state)
        head.predict(hidden)

    def beam(width: int) -> None:
        hidden, state = model.advance(start, model.begin(features))
        search(model, hidden, state, WORDS, width, end=VOCABULARY - 1, banned=torch.tensor([1]))

    rows: list[dict] = [{"head": name, "search": "greedy", "seconds": median_seconds(greedy, repeats)}]
    for width in WIDTHS:
        seconds = median_seconds(lambda width=width: beam(width), repeats)  # type: ignore[misc]
        rows.append({"head": name, "search": f"beam {width}", "seconds": seconds})
        progress.advance(progress.task_ids[0])
    return [row | {"ratio": row["seconds"] / rows[0]["seconds"]} for row in rows]


def table(rows: list[dict]) -> Table:
    """The ratios, one line a width."""
    title = f"Captions of {BATCH} images, {WORDS} words, {torch.get_num_threads()} threads"
    result = Table(title=title, title_justify="left")
    for name in ("head", "search"):
        result.add_column(name)
    for name in ("ms", "times greedy"):
        result.add_column(name, justify="right")
    for row in rows:
        result.add_row(row["head"], row["search"], f"{row['seconds'] * 1000:,.0f}", f"{row['ratio']:.2f}")
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Cost of beam search next to greedy decoding, in one run.")
    parser.add_argument("--head", action="append", choices=HEADS, help="head; may be given several times (all)")
    parser.add_argument("--repeats", type=int, default=5, help="searches to take the median of (default: 5)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    chosen = given.head or [*HEADS]
    with Progress(console=Console(stderr=True)) as progress:
        progress.add_task("measuring", total=len(WIDTHS) * len(chosen))
        rows = [row for name in chosen for row in measure(name, given.repeats, progress)]
    Console().print(table(rows))
    if given.json:
        given.json.write_text(json.dumps({"threads": torch.get_num_threads(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
