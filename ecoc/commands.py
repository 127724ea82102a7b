"""What each command does, and the table of them all.

Nothing here imports torch before it is needed, so that ``--help`` answers at once.
"""

import json
import os
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ecoc.options import (
    CaptionEvalOptions,
    CaptionTrainOptions,
    CodebookBuildOptions,
    CodebookNearestOptions,
    CodebookShowOptions,
    DescribeOptions,
    EvalOptions,
    FeaturesOptions,
    GenerateOptions,
    InfoOptions,
    ReportOptions,
    ReproduceOptions,
    RunOptions,
    SuggestOptions,
    TrainOptions,
)

if typing.TYPE_CHECKING:
    from ecoc.data.captions import Skipped

Options = (
    RunOptions
    | EvalOptions
    | GenerateOptions
    | SuggestOptions
    | InfoOptions
    | CodebookBuildOptions
    | CodebookShowOptions
    | CodebookNearestOptions
    | CaptionEvalOptions
    | DescribeOptions
    | FeaturesOptions
    | ReproduceOptions
    | ReportOptions
)


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
    _print_scores(scores)
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

    suggestions = TrainedModel(options.run).suggest(options.text, options.k)
    if options.json:
        print(json.dumps([{"word": word, "probability": probability} for word, probability in suggestions]))
        return 0
    for word, probability in suggestions:
        print(f"{probability:7.2%}  {word}")
    return 0


def info_command(options: InfoOptions) -> int:
    """What is in a run."""
    from ecoc.trained import load

    print(load(options.run).summary())
    return 0


def codebook_build_command(options: CodebookBuildOptions) -> int:
    """Build a codebook, and show it."""
    from ecoc.wordcode import build

    _print_facts(build(options).facts())
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
        _print_facts(facts)
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


def caption_eval_command(options: CaptionEvalOptions) -> int:
    """Scores of a captioner on a split."""
    from ecoc.captioning import TrainedCaptioner

    scores, skipped = TrainedCaptioner(options.run).evaluate(
        options.split,
        beam=options.beam,
        length_power=options.length_power,
        batch=options.batch,
        captions=options.captions,
        features=options.features,
        out=options.out,
        progress=True,
    )
    if options.json:
        print(json.dumps(scores))
    else:
        _print_scores(scores)
    return _left_out(skipped)


def describe_command(options: DescribeOptions) -> int:
    """Sentences about pictures."""
    from ecoc.captioning import TrainedCaptioner
    from ecoc.gallery import Entry, check_page, write_gallery

    if options.html is not None:
        check_page(options.html)  # before the work, not after
    described, skipped = TrainedCaptioner(options.run).describe(
        options.images,
        beam=options.beam,
        sentences=options.sentences or 3,  # never None: see the options
        length_power=options.length_power,
        progress=True,
    )
    for one in described:
        if options.json:
            sentences = [{"sentence": sentence.text, "score": sentence.score} for sentence in one.sentences]
            print(json.dumps({"image": one.name, "sentences": sentences}))
            continue
        print(one.name)
        for sentence in one.sentences:
            print(f"  {sentence.score:7.2f}  {sentence.text}")
    if options.html is not None:
        entries = [
            Entry(
                one.name, one.picture, [(sentence.text, sentence.score) for sentence in one.sentences], one.references
            )
            for one in described
        ]
        power = options.length_power
        divided = f", divided by its length to the power {power:g}" if power else ""
        write_gallery(
            options.html,
            f"Described by {options.run}",
            entries,
            f"A sentence's score is its log probability{divided}.",
            [(str(one.id), one.reason) for one in skipped],
        )
        print(f"{options.html}: a page of {len(entries)} pictures", file=sys.stderr)
    return _left_out(skipped)


def features_command(options: FeaturesOptions) -> int:
    """Features of pictures."""
    from ecoc.data.extract import extract_features

    skipped = extract_features(
        options.images,
        options.out,
        grid=options.grid,
        projection=options.projection,
        batch=options.batch,
        overwrite=options.overwrite,
        progress=True,
    )
    same = f" --projection {options.projection}" if options.projection else ""
    print(f"{options.out}: done. Next: ecoc caption train --captions FILE.json --features {options.out}{same}")
    return _left_out(skipped)


def reproduce_command(options: ReproduceOptions) -> int:
    """Run the rows of a study."""
    from ecoc.experiments.runner import jobs, reproduce

    if options.list:
        for job in jobs(options):
            state = "finished" if job.finished else "to do"
            print(f"{state:9} {job.corpus:12} seed {job.seed}  {job.row.name}")
        return 0
    failed = reproduce(options)
    for line in failed:
        print(f"ecoc: failed: {line}", file=sys.stderr)
    print(f"{options.results}: {len(jobs(options)) - len(failed)} rows of {options.study}. Next: ecoc report")
    return 1 if failed else 0


def report_command(options: ReportOptions) -> int:
    """A page of all results."""
    from ecoc.experiments.report import update_readme, write_report

    results = Path(options.results)
    write_report(results, Path(options.out), Path(options.markdown or options.results), progress=True)
    print(f"{options.out}: done")
    if options.readme is not None:
        update_readme(Path(options.readme), results)
    return 0


def _left_out(skipped: "Sequence[Skipped]") -> int:
    """Say which images were left out; the exit code, 1 if there were any."""
    for one in skipped[:_TOLD]:
        print(f"ecoc: left out {one.id}: {one.reason}", file=sys.stderr)
    if len(skipped) > _TOLD:
        print(f"ecoc: left out {len(skipped) - _TOLD} more, {len(skipped)} in all", file=sys.stderr)
    return 1 if skipped else 0


_TOLD = 20  # images left out that are named


def _print_scores(scores: dict[str, Any]) -> None:
    """Scores for people, one a line."""
    for name, value in scores.items():
        if isinstance(value, dict):
            for part, number in value.items():
                shown = number["perplexity"] if isinstance(number, dict) else number
                print(f"{name} ({part}): {shown:.2f}")
        elif isinstance(value, str):
            print(f"{name}: {value}")
        elif value is not None:
            print(f"{name}: {value:,.4f}" if isinstance(value, float) else f"{name}: {value:,}")


def _print_facts(facts: dict[str, object]) -> None:
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        print(f"{name.replace('_', ' ')}: {shown}")


COMMANDS: dict[str, tuple[type[Options], Callable[..., int], str]] = {
    "train": (TrainOptions, train_command, "train a language model with any head, or go on training it"),
    "eval": (EvalOptions, eval_command, "perplexity, accuracy and sizes of a run"),
    "generate": (GenerateOptions, generate_command, "write text"),
    "suggest": (SuggestOptions, suggest_command, "the most probable next words"),
    "info": (InfoOptions, info_command, "sizes, codebook and parameters of a run"),
    "codebook build": (CodebookBuildOptions, codebook_build_command, "build a code over the words of a corpus"),
    "codebook show": (CodebookShowOptions, codebook_show_command, "distances, size and balance of a code"),
    "codebook nearest": (CodebookNearestOptions, codebook_nearest_command, "words with the most similar codewords"),
    "caption train": (CaptionTrainOptions, train_command, "train a captioner with any head, or go on training it"),
    "caption eval": (CaptionEvalOptions, caption_eval_command, "BLEU, ROUGE-L, CIDEr, METEOR and sizes of a run"),
    "caption describe": (DescribeOptions, describe_command, "say what is on pictures"),
    "features": (FeaturesOptions, features_command, "features of pictures, for training a captioner"),
    "reproduce": (ReproduceOptions, reproduce_command, "run the paper's tables and figure again"),
    "report": (ReportOptions, report_command, "a page of the results, and tables as Markdown"),
}
GROUPS = {
    "codebook": "build a code, look at it, find the neighbours of a word",
    "caption": "train a captioner, evaluate it, describe pictures with it",
}
