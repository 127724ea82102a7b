"""An ECOC language model and a softmax, trained for the same time on the documentation inside Python.

    python -m examples.demo --seconds 90

The corpus is read from the Python that runs this: nothing is downloaded. All that is printed is computed here.
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ecoc
from ecoc.options import TrainOptions
from ecoc.training import train
from ecoc.training.journal import read_log

HEADS = {"ecoc": "ECOC, 512 bits", "softmax": "softmax"}
PREFIX = "this method returns the"
PROMPT = "the file"


def trained(head: str, seconds: float, folder: Path, console: Console) -> ecoc.TrainedModel:
    """A model with this head, trained for that long; everything else is the same for both."""
    options = TrainOptions(
        corpus="builtin", head=head, hidden=256, epochs=12, max_seconds=seconds, out=str(folder / head), overwrite=True
    )
    console.rule(f"{HEADS[head]}: {seconds:.0f} seconds", align="left")
    return ecoc.TrainedModel(train(options))


def comparison(models: dict[str, ecoc.TrainedModel], console: Console) -> Table:
    """What each head reached, and what it takes."""
    table = Table(title="The same LSTM, the same time, the same held-out text", title_justify="left")
    table.add_column("")
    columns = {}
    for head, model in models.items():
        table.add_column(HEADS[head], justify="right")
        with console.status(f"evaluating {HEADS[head]}"):
            columns[head] = model.evaluate("test") | speed(model)
    rows = {
        "test perplexity (normalised)": lambda scores: f"{scores['perplexity']['normalised']:.1f}",
        "next word right": lambda scores: f"{scores['accuracy']:.1%}",
        "decoder parameters": lambda scores: f"{scores['decoder_parameters']:,}",
        "parameters in all": lambda scores: f"{scores['parameters']:,}",
        "bytes, codebook included": lambda scores: f"{scores['bytes']:,}",
        "tokens a second in training": lambda scores: f"{scores['rate']:,.0f}",
        "passes over the text": lambda scores: f"{scores['passes']:.1f}",
    }
    for name, shown in rows.items():
        table.add_row(name, *(shown(scores) for scores in columns.values()))
    return table


def speed(model: ecoc.TrainedModel) -> dict[str, float]:
    """Tokens a second and passes over the text, from the log of a run."""
    last = [record for record in read_log(model.folder) if record["event"] == "epoch"][-1]
    tokens = last["step"] * model.options.batch * model.options.bptt
    seconds = last["seconds"] - last["validation_seconds"]
    return {"rate": tokens / seconds, "passes": tokens / float(model.vocabulary.counts_tensor().sum())}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train an ECOC model and a softmax for the same time, and compare.")
    parser.add_argument("--seconds", type=float, default=90.0, help="time to train each (default: 90)")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where the runs go (default: runs/demo)")
    given = parser.parse_args()
    console = Console()
    models = {head: trained(head, given.seconds, given.out, console) for head in HEADS}
    console.print("", comparison(models, console), "")
    for head, model in models.items():
        words = ", ".join(f"{word} {probability:.0%}" for word, probability in model.suggest(PREFIX, 5))
        console.print(f"after '{PREFIX}', {HEADS[head]} suggests: {words}", highlight=False)
    paragraph = models["ecoc"].generate(PROMPT, tokens=80, temperature=0.7, seed=1)[0]
    console.print(f"\n{HEADS['ecoc']} goes on from '{PROMPT}':\n{paragraph}\n", highlight=False)
    console.print(f"Go on with: ecoc suggest {given.out}/ecoc 'some words'   (in .venv/bin, if make set things up)")


if __name__ == "__main__":
    main()
