"""What feeding policies cost, as ratios to teacher forcing in one run.

    python -m benchmarks.feeding --json feeding.json

One training step (forward and backward) of a 2-layer LSTM of 400 units, batch 40, 35 steps of BPTT, over a vocabulary
of the size of Penn Treebank, for every policy and head that go together, in two passes and step by step. Every policy
is at probability 0.5, and its steps are taken in turn with those of teacher forcing.
"""

from functools import partial

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.measure import parser, show, side_by_side
from ecoc import codes, feeding, heads
from ecoc.models import CodeEmbedding, LanguageModel, TokenEmbedding, VariationalLSTM

VOCABULARY, HIDDEN, BATCH, STEPS, BITS = 10_000, 400, 40, 35, 512
CASES = {
    "softmax": ("scheduled", "soft"),
    "adaptive": ("scheduled", "soft"),
    "hierarchical": ("scheduled", "curriculum", "differentiable"),
    "ecoc": ("scheduled", "soft", "curriculum", "soft-curriculum", "differentiable"),
}


def measure(head_name: str, repeats: int, progress: Progress) -> list[dict]:
    """Seconds of a step for every policy of one head, each next to teacher forcing."""
    torch.manual_seed(0)
    counts = 1e6 / torch.arange(1, VOCABULARY + 1)
    ids = torch.multinomial(counts, BATCH * (STEPS + 1), replacement=True).view(BATCH, STEPS + 1)
    embedding: TokenEmbedding | CodeEmbedding = TokenEmbedding(VOCABULARY, HIDDEN)
    options = {}
    if head_name == "ecoc":
        options["codebook"] = codes.build("random", VOCABULARY, BITS, counts)
        embedding = CodeEmbedding(options["codebook"], HIDDEN)
    head = heads.build(head_name, HIDDEN, VOCABULARY, counts, **options)
    lstm = VariationalLSTM(HIDDEN, HIDDEN, 2, 0.2, 0.2)

    def step(model: LanguageModel) -> None:
        model.zero_grad()
        model(ids[:, :-1], ids[:, 1:]).loss.backward()

    teacher = LanguageModel(embedding, lstm, head)
    rows: list[dict] = []
    for policy in CASES[head_name]:
        for sequential in (False, True):
            built = feeding.build(policy, head, embedding, feeding.Schedule("constant", 1, 0.5))
            model = LanguageModel(embedding, lstm, head, feeding=built, sequential=sequential)
            without, seconds = side_by_side(partial(step, teacher), partial(step, model), repeats)
            mode = "sequential" if sequential else "parallel"
            row = {"head": head_name, "policy": policy, "mode": mode, "teacher_seconds": without, "seconds": seconds}
            rows.append(row | {"ratio": seconds / without})
            progress.advance(progress.task_ids[0])
    return rows


def table(rows: list[dict]) -> Table:
    """The ratios, one line a policy."""
    result = Table(title=f"Cost of a step, {torch.get_num_threads()} threads", title_justify="left")
    for name in ("head", "policy", "mode"):
        result.add_column(name)
    for name in ("teacher ms", "ms", "times teacher forcing"):
        result.add_column(name, justify="right")
    for row in rows:
        numbers = (f"{row[name] * 1000:,.0f}" for name in ("teacher_seconds", "seconds"))
        result.add_row(row["head"], row["policy"], row["mode"], *numbers, f"{row['ratio']:.2f}")
    return result


def main() -> None:
    """Command line."""
    given = parser("Cost of feeding policies next to teacher forcing, in one run.", CASES).parse_args()
    torch.set_num_threads(given.threads)
    chosen = given.head or [*CASES]
    with Progress(console=Console(stderr=True)) as progress:
        progress.add_task("measuring", total=sum(2 * len(CASES[head]) for head in chosen))
        rows = [row for head in chosen for row in measure(head, given.repeats, progress)]
    show(rows, table(rows), given.json)


if __name__ == "__main__":
    main()
