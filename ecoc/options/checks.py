"""What options must be: numbers in a range, words of a list, values of a type."""

import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any


def flag(name: str) -> str:
    """A field's name as it is typed."""
    return "--" + name.replace("_", "-")


def in_range(options: object, lowest: float, highest: float, *names: str) -> None:
    """Check numbers that are given; NaN is in no range."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not lowest <= value <= highest:
            limits = f"at least {lowest:g}" if highest == math.inf else f"from {lowest:g} to {highest:g}"
            raise ValueError(f"{flag(name)} must be {limits}, got {value}")


def typed(options: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values of a file as what the options' fields are: names with _ or -, numbers also as text (YAML reads 1e-3 so).

    Raises:
        ValueError: A name is unknown, or a value is of another type.
    """
    hints = typing.get_type_hints(options)
    known = [field.name for field in fields(options) if field.default is not MISSING]
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise ValueError(f"{where}: option {key} is unknown")
        kinds = typing.get_args(hints[name]) or (hints[name],)
        if value is None and type(None) in kinds:
            result[name] = None
            continue
        kind = kinds[0]
        try:
            if kind is bool and not isinstance(value, bool):
                raise ValueError
            if isinstance(value, bool) != (kind is bool) or (kind is int and float(value) != int(value)):
                raise ValueError
            result[name] = kind(value)
        except (TypeError, ValueError, OverflowError):
            wanted = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
            raise ValueError(f"{where}: {key} must be {wanted[kind.__name__]}, got {value!r}") from None
    return result


def one_of(name: str, value: str | None, choices: tuple[str | None, ...]) -> None:
    """Check a word."""
    if value not in choices:
        known = ", ".join(choice for choice in choices if choice is not None)
        raise ValueError(f"--{name} {value} is unknown: choose one of {known}")
