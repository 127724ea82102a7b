"""The command line: a table of commands, each with its options.

Nothing here imports torch before it is needed, so that ``--help`` answers at once.
"""

import argparse
import json
import os
import re
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ecoc import __version__
from ecoc.options import (
    CodebookBuildOptions,
    CodebookNearestOptions,
    CodebookShowOptions,
    EvalOptions,
    GenerateOptions,
    InfoOptions,
    SuggestOptions,
    TrainOptions,
    flag,
    typed,
)

Options = (
    TrainOptions
    | EvalOptions
    | GenerateOptions
    | SuggestOptions
    | InfoOptions
    | CodebookBuildOptions
    | CodebookShowOptions
    | CodebookNearestOptions
)


def train_command(options: TrainOptions) -> int:
    """Train, and say what to do next."""
    from ecoc.training import Stopped, train

    first = os.environ.get("RANK", "0") == "0"
    try:
        folder = train(options, progress=True)
    except Stopped:
        if first:
            print(f"stopped; go on with: ecoc train --out {options.out} --resume", file=sys.stderr)
        return 130
    if first:
        print(f"{folder}: done. Next: ecoc eval {folder}, ecoc generate {folder}, ecoc suggest {folder} 'some words'")
    return 0


def eval_command(options: EvalOptions) -> int:
    """Scores of a run on a split or a file."""
    from ecoc.language import load

    scores = load(options.run).evaluate(
        options.split or "test",
        file=options.file,
        data_dir=options.data_dir,
        free_steps=options.free_running,
        sampled=options.sampled,
        progress=True,
    )
    if options.json:
        print(json.dumps(scores))
        return 0
    free = scores.pop("free_running", None)
    for name, value in scores.items():
        if isinstance(value, dict):
            for part, number in value.items():
                shown = number["perplexity"] if isinstance(number, dict) else number
                print(f"{name} ({part}): {shown:.2f}")
        elif value is not None:
            print(f"{name}: {value:,.4f}" if isinstance(value, float) else f"{name}: {value:,}")
    if isinstance(free, dict):
        print(f"\nfed with its own outputs ({free['fed']}), over {free['scored']:,} places in the text:")
        print("  steps      loss    growth")
        for step, (loss, growth) in enumerate(zip(free["loss"], free["growth"], strict=True)):
            print(f"  {step:5}  {loss:8.3f}  {growth:+8.3f}")
    return 0


def generate_command(options: GenerateOptions) -> int:
    """Text from a run."""
    from ecoc.language import load

    model = load(options.run)
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
    from ecoc.language import load

    suggestions = load(options.run).suggest(options.text, options.k)
    if options.json:
        print(json.dumps([{"word": word, "probability": probability} for word, probability in suggestions]))
        return 0
    for word, probability in suggestions:
        print(f"{probability:7.2%}  {word}")
    return 0


def info_command(options: InfoOptions) -> int:
    """What is in a run."""
    from ecoc.language import load

    print(load(options.run).describe())
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
}
GROUPS = {"codebook": "build a code, look at it, find the neighbours of a word"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; mistakes are one line on standard error and exit code 2."""
    parser = _Parser(
        prog="ecoc", description="Sequence models with large vocabularies.", epilog="ecoc COMMAND --help says more."
    )
    parser.add_argument("--version", action="version", version=f"ecoc {__version__}")
    commands = {"": parser.add_subparsers(required=True, metavar="COMMAND")}
    for name, (options, _, help_) in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in commands:
            above = commands[""].add_parser(group, help=GROUPS[group], description=f"{GROUPS[group]}.".capitalize())
            commands[group] = above.add_subparsers(required=True, metavar="COMMAND")
        below = commands[group].add_parser(last, help=help_, description=(options.__doc__ or "").split("\n\n")[0])
        below.set_defaults(command=name)
        _add_options(below, options)
    given = vars(parser.parse_args(arguments))
    options, run, _ = COMMANDS[given.pop("command")]
    try:
        values = _from_yaml(given.pop("config", None), options) | given
        chosen = options(**values)
        if isinstance(chosen, TrainOptions):
            chosen.given = frozenset(values)
        return run(chosen)
    except (ValueError, ImportError) as error:
        return _mistake(str(error))
    except OSError as error:
        return _mistake(f"{error.filename or 'the disk'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("ecoc: stopped", file=sys.stderr)
        return 130


def _mistake(message: str) -> int:
    print(f"ecoc: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _add_options(parser: argparse.ArgumentParser, options: type[Options]) -> None:
    """One flag a field; a field without a default is a positional argument. Help is the field's docstring."""
    help_ = _field_help(options)
    hints = typing.get_type_hints(options)
    for field in fields(options):
        kinds = [kind for kind in typing.get_args(hints[field.name]) or (hints[field.name],) if kind is not type(None)]
        text = help_[field.name].replace("%", "%%")
        if field.default is MISSING:
            parser.add_argument(field.name, metavar=field.name.upper(), help=text)
        elif kinds[0] is bool:
            parser.add_argument(flag(field.name), action="store_true", default=argparse.SUPPRESS, help=text)
        else:
            shown = f" (default: {field.default})" if field.default is not None else ""
            parser.add_argument(
                flag(field.name),
                type=kinds[0],
                default=argparse.SUPPRESS,
                metavar=kinds[0].__name__.upper(),
                help=text + shown,
            )
    parser.add_argument("--config", metavar="FILE.yaml", help="options from a YAML file; flags on the line win")


def _field_help(options: type[Options]) -> dict[str, str]:
    """Help of each field from the ``Args`` of the class's docstring."""
    section = (options.__doc__ or "").split("Args:\n")[1]
    entries = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\Z)", section, re.S | re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def _from_yaml(path: str | None, options: type[Options]) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"--config {path} has no options: write one a line, such as hidden: 400")
    return typed(options, values, f"--config {path}")


class _Parser(argparse.ArgumentParser):
    """Mistakes on the command line are one line, like all others."""

    def error(self, message: str) -> typing.NoReturn:
        print(f"ecoc: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
