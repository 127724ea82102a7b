"""What the commands for language models and codebooks do."""

import json
import os
import sys
from typing import TYPE_CHECKING

from ecoc.commands.printing import print_facts, print_scores
from ecoc.options import (
    CodebookBuildOptions,
    CodebookNearestOptions,
    CodebookShowOptions,
    EvalOptions,
    GenerateOptions,
    InfoOptions,
    RunOptions,
    SuggestOptions,
)

if TYPE_CHECKING:
    from ecoc.data import Vocabulary


def train_command(options: RunOptions) -> int:
    """Train, and say what to do next."""
    from ecoc.training import Stopped, train

    first = os.environ.get("RANK", "0") == "0"
    try:
        folder = train(options, progress=True)
    except Stopped:
        if first:
            print(f"stopped; go on with: ecoc {options.command} --out {options.out} --resume", file=sys.stderr)
        return 130
    if first:
        print(f"{folder}: done. Next: {_NEXT[options.command].format(run=folder)}")
    return 0


_NEXT = {
    "train": "ecoc eval {run}, ecoc generate {run}, ecoc suggest {run} 'some words'",
    "caption train": "ecoc caption eval {run}, ecoc caption describe {run} photo.jpg",
}


def eval_command(options: EvalOptions) -> int:
    """Scores of a run on a split or a file."""
    from ecoc.language import TrainedModel

    scores = TrainedModel(options.run).evaluate(
        options.split or "test",
        file=options.file,
        data_dir=options.data_dir,
        free_steps=options.free_running,
        sampled=options.sampled,
        flips=options.flips,
        progress=True,
    )
    if options.json:
        print(json.dumps(scores))
        return 0
    free, flips = scores.pop("free_running", None), scores.pop("bit_flips", None)
    print_scores(scores)
    if isinstance(free, dict):
        print(f"\nfed with its own outputs ({free['fed']}), over {free['scored']:,} places in the text:")
        print("  steps      loss    growth")
        for step, (loss, growth) in enumerate(zip(free["loss"], free["growth"], strict=True)):
            print(f"  {step:5}  {loss:8.3f}  {growth:+8.3f}")
    if isinstance(flips, dict):
        print(
            f"\nbits flipped at random, over {flips['tokens']:,} words; minimum distance {flips['minimum_distance']}:"
        )
        print("  flipped  right words  codewords that survive")
        for rate, right, survived in zip(flips["flips"], flips["accuracy"], flips["recovered"], strict=True):
            print(f"  {rate:7.0%}  {right:11.2%}  {survived:22.2%}")
    return 0


def generate_command(options: GenerateOptions) -> int:
    """Text from a run."""
    from ecoc.language import TrainedModel

    model = TrainedModel(options.run)
    _tell_unknown(model.vocabulary, options.prompt)
    for text in model.generate(
        options.prompt,
        tokens=options.tokens,
        count=options.count,
        temperature=0.8 if options.temperature is None else options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        beam=options.beam,
        seed=options.seed,
    ):
        print(text)
    return 0


def suggest_command(options: SuggestOptions) -> int:
    """Next words from a run."""
    from ecoc.language import TrainedModel

    model = TrainedModel(options.run)
    _tell_unknown(model.vocabulary, options.text)
    suggestions = model.suggest(options.text, options.k)
    if options.json:
        print(json.dumps([{"word": word, "probability": probability} for word, probability in suggestions]))
        return 0
    for word, probability in suggestions:
        print(f"{probability:7.2%}  {word}")
    return 0


def _tell_unknown(vocabulary: "Vocabulary", text: str) -> None:
    if words := vocabulary.unknown(text):
        more = f" and {len(words) - 10} more" if len(words) > 10 else ""
        print(f"ecoc: not in the vocabulary, read as <unk>: {', '.join(words[:10])}{more}", file=sys.stderr)


def info_command(options: InfoOptions) -> int:
    """What is in a run."""
    from ecoc.trained import load

    print(load(options.run).summary())
    return 0


def codebook_build_command(options: CodebookBuildOptions) -> int:
    """Build a codebook, and show it."""
    from ecoc.wordcode import build

    print_facts(build(options).facts())
    use = f"ecoc train --corpus {options.corpus} --codebook {options.out}"
    print(f"{options.out}: done. Next: ecoc codebook nearest {options.out} WORD, {use}")
    return 0


def codebook_show_command(options: CodebookShowOptions) -> int:
    """What a codebook is like."""
    from ecoc.wordcode import WordCode

    facts = WordCode(options.folder).facts()
    if options.json:
        print(json.dumps(facts))
    else:
        print_facts(facts)
    return 0


def codebook_nearest_command(options: CodebookNearestOptions) -> int:
    """Neighbours of a word in Hamming space."""
    from ecoc.wordcode import WordCode

    words = WordCode(options.folder).nearest(options.word, options.k)
    if options.json:
        print(json.dumps([{"word": word, "distance": distance} for word, distance in words]))
        return 0
    for word, distance in words:
        print(f"{distance:5}  {word}")
    return 0
