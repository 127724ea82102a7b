"""What beam search costs, as ratios to greedy decoding in one run.

    python -m benchmarks.beam --json beam.json
    python -m benchmarks.beam --run runs/coco

Captions of 100 images at once, by trained captioners (`--run`, on their test images) or by untrained ones of a 1-layer
LSTM of 400 units over 10 000 words, whose sentences all have 20 words: the dearest case. Greedy decoding of a trained
one is a beam of 1, of an untrained one the plain loop: best word, next step. Searches are taken in turn with it.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import ecoc
from benchmarks.measure import parser, show, side_by_side
from ecoc import heads
from ecoc.captioning import TrainedCaptioner
from ecoc.decode import search
from ecoc.models import Captioner, FeatureEncoder, TokenEmbedding, VariationalLSTM
from ecoc.training.launch import caption_data

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
    """Every width of one untrained head."""
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
        search(model, hidden, state, WORDS, width, end=None, banned=torch.tensor([1]))

    return compare(name, greedy, beam, repeats, progress)


def measure_run(folder: Path, repeats: int, progress: Progress) -> list[dict]:
    """Every width of a trained captioner."""
    try:
        captioner = ecoc.load(folder)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if not isinstance(captioner, TrainedCaptioner):
        raise SystemExit(f"{folder} is no captioner: train one with `ecoc caption train`")
    _, features = next(caption_data(captioner.options, vocabulary=captioner.vocabulary).evaluation("test", BATCH))

    def beam(width: int) -> None:
        captioner.captions(features, width)

    return compare(str(folder), lambda: beam(1), beam, repeats, progress)


def compare(
    name: str, greedy: Callable[[], None], beam: Callable[[int], None], repeats: int, progress: Progress
) -> list[dict]:
    """Seconds of a search of every width, each next to greedy decoding."""
    rows = []
    for width in WIDTHS:
        plain, seconds = side_by_side(greedy, lambda width=width: beam(width), repeats)  # type: ignore[misc]
        rows.append(
            {"head": name, "beam": width, "greedy_seconds": plain, "seconds": seconds, "ratio": seconds / plain}
        )
        progress.advance(progress.task_ids[0])
    return rows


def table(rows: list[dict]) -> Table:
    """The ratios, one line a width."""
    title = f"Captions of up to {BATCH} images, {torch.get_num_threads()} threads"
    result = Table(title=title, title_justify="left")
    result.add_column("head")
    for name in ("beam", "greedy ms", "ms", "times greedy"):
        result.add_column(name, justify="right")
    for row in rows:
        numbers = (f"{row[name] * 1000:,.0f}" for name in ("greedy_seconds", "seconds"))
        result.add_row(row["head"], str(row["beam"]), *numbers, f"{row['ratio']:.2f}")
    return result


def main() -> None:
    """Command line."""
    options = parser("Cost of beam search next to greedy decoding, in one run.", HEADS)
    options.add_argument(
        "--run", action="append", type=Path, help="trained captioner; untrained ones then only with --head"
    )
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    runs, names = given.run or [], given.head or ([] if given.run else [*HEADS])
    with Progress(console=Console(stderr=True)) as progress:
        progress.add_task("measuring", total=len(WIDTHS) * (len(runs) + len(names)))
        rows = [row for folder in runs for row in measure_run(folder, given.repeats, progress)]
        rows += [row for name in names for row in measure(name, given.repeats, progress)]
    show(rows, table(rows), given.json)


if __name__ == "__main__":
    main()
