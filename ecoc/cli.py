"""The command line: options of a command from flags or a YAML file, and mistakes in one line."""

import argparse
import inspect
import re
import sys
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ecoc import __version__
from ecoc.commands import COMMANDS, GROUPS, Options
from ecoc.options import RunOptions, flag, typed


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
        below = commands[group].add_parser(last, help=help_, description=_before_arguments(options))
        below.set_defaults(command=name, parser=below)
        _add_options(below, options)
    known, rest = parser.parse_known_args(arguments)
    given = vars(known)
    (options, run, _), own = COMMANDS[given.pop("command")], given.pop("parser")
    several = [name for name, hint in typing.get_type_hints(options).items() if typing.get_origin(hint) is list]
    if rest and (not several or any(one.startswith("-") for one in rest)):
        own.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # argparse takes files before a flag for all there are
        given[several[0]] += rest
    try:
        values = _from_yaml(given.pop("config", None), options) | given
        chosen = options(**values)
        if isinstance(chosen, RunOptions):
            chosen.given = frozenset(values)
        return run(chosen)
    except (ValueError, ImportError) as error:
        return _mistake(str(error))
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stdout = None
        return 141
    except OSError as error:
        return _mistake(f"{error.filename or 'the disk'}: {error.strerror}" if error.strerror else str(error))
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
    own = [*vars(options)["__annotations__"]]  # before what it shares with others
    for field in sorted(fields(options), key=lambda field: own.index(field.name) if field.name in own else len(own)):
        kinds = [kind for kind in typing.get_args(hints[field.name]) or (hints[field.name],) if kind is not type(None)]
        text = help_[field.name].replace("%", "%%")
        if typing.get_origin(hints[field.name]) is list:
            parser.add_argument(field.name, metavar=field.name.upper().removesuffix("S"), nargs="*", help=text)
        elif field.default is MISSING:
            parser.add_argument(field.name, metavar=field.name.upper(), help=text)
        elif kinds[0] is bool:
            parser.add_argument(flag(field.name), action="store_true", default=argparse.SUPPRESS, help=text)
        else:
            shown = f" (default: {field.default})" if field.default is not None else ""
            parser.add_argument(
                *(["-o"] if field.name == "out" else []),
                flag(field.name),
                type=kinds[0],
                default=argparse.SUPPRESS,
                metavar=kinds[0].__name__.upper(),
                help=text + shown,
            )
    parser.add_argument("--config", metavar="FILE.yaml", help="options from a YAML file; flags on the line win")


def _before_arguments(options: type[Options]) -> str:
    """What the class's docstring says before its ``Args``."""
    return (inspect.getdoc(options) or "").partition("\nArgs:")[0].strip()


def _field_help(options: type[Options]) -> dict[str, str]:
    """Help of each field from the ``Args`` of the class's docstring and of those above it."""
    result: dict[str, str] = {}
    for kind in reversed(options.__mro__):
        section = (kind.__doc__ or "").partition("Args:\n")[2]
        entries = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\Z)", section, re.S | re.M)
        result |= {name: " ".join(text.split()) for name, text in entries}
    return result


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
