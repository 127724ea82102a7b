"""Scenes of shapes in words: what is where, and five sentences that are true of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")

SIDE = 64  # pixels of a picture's height and width
CAPTIONS = 5
PLACES = {  # by column and row of a picture's thirds
    (0, 0): "in the top left corner",
    (1, 0): "at the top",
    (2, 0): "in the top right corner",
    (0, 1): "on the left",
    (1, 1): "in the middle",
    (2, 1): "on the right",
    (0, 2): "in the bottom left corner",
    (1, 2): "at the bottom",
    (2, 2): "in the bottom right corner",
}

_SIZE_WORDS = {"small": ("small", "small", "little"), "large": ("large", "large", "big")}
_BEFORE = {"row": ("to the left of", "left of"), "column": ("above", "over")}
_AFTER = {"row": ("to the right of", "right of"), "column": ("below", "under")}
_ORDERS = {"row": "from left to right", "column": "from top to bottom"}
_TOGETHER = {"row": ("side by side", "next to each other"), "column": ("one above the other", "one below the other")}


@dataclass(frozen=True)
class Shape:
    """A shape of a scene: what it is, and where its centre is in pixels from the left and from the top."""

    kind: str
    colour: str
    size: str
    x: int
    y: int
    radius: int


@dataclass(frozen=True)
class Scene:
    """Shapes in a layout.

    Attributes:
        layout: ``alone``, ``row``, ``column`` or ``inside``.
        shapes: From left to right or from the top; for ``inside`` the inner, the outer and perhaps one beside them.
    """

    layout: str
    shapes: tuple[Shape, ...]

    @property
    def direction(self) -> str:
        """``row`` or ``column``: how the shapes, or the outer one and that beside it, lie to each other."""
        if self.layout != "inside":
            return self.layout
        outer, other = self.shapes[-2:]
        return "row" if abs(outer.x - other.x) > abs(outer.y - other.y) else "column"

    @property
    def last_is_after(self) -> bool:
        """Whether the last shape is to the right of or below the one before it."""
        before, last = self.shapes[-2:]
        return last.x > before.x if self.direction == "row" else last.y > before.y

    @property
    def content(self) -> tuple[object, ...]:
        """What can be said about the scene: scenes with the same content differ by pixels only."""
        things = tuple((shape.kind, shape.colour, shape.size) for shape in self.shapes)
        if self.layout == "alone":
            return self.layout, things, place_of(self.shapes[0])
        if self.layout == "inside" and len(self.shapes) == 3:
            return self.layout, things, self.direction, self.last_is_after
        return self.layout, things


def place_of(shape: Shape) -> str:
    """Where in the picture a shape is, in words."""
    return PLACES[min(2, shape.x * 3 // SIDE), min(2, shape.y * 3 // SIDE)]


def describe(scene: Scene, random: np.random.Generator) -> list[str]:
    """Five different sentences that are true of a scene."""
    wordings = random.permutation(len(_sentences(scene, random)))[:CAPTIONS]
    return [_sentences(scene, random)[wording] for wording in wordings]  # shapes named anew in each


def _sentences(scene: Scene, random: np.random.Generator) -> list[str]:
    """True sentences in every wording that suits a scene, with its shapes named in random ways."""
    names = [_name(random, shape) for shape in scene.shapes]
    if len(names) > 1 and len({(shape.kind, shape.colour) for shape in scene.shapes}) == 1:
        return _about_alike(scene, random)
    if scene.layout == "alone":
        return _about_one(_a(names[0]), place_of(scene.shapes[0]))
    if scene.layout == "inside":
        return _about_inside(scene, random, names)
    before, after = choice(random, _BEFORE[scene.layout]), choice(random, _AFTER[scene.layout])
    if len(names) == 2:
        return _about_two(names, before, after)
    return _about_three(names, before, after, scene.layout)


def _about_one(one: str, place: str) -> list[str]:
    return [
        f"{one} {place}",
        f"there is {one} {place}",
        f"{one} is {place}",
        f"{place} is {one}",
        f"{one} {place} of the picture",
        f"a picture of {one}",
        f"the only shape is {one}",
        f"{one} and nothing else",
    ]


def _about_two(names: list[str], before: str, after: str) -> list[str]:
    one, two = map(_a, names)
    return [
        f"{one} {before} {two}",
        f"{two} {after} {one}",
        f"there is {one} {before} {two}",
        f"there is {two} {after} {one}",
        f"{one} is {before} {two}",
        f"the {names[1]} is {after} the {names[0]}",
        f"{one} and {two}",
        f"a picture of {two} {after} {one}",
    ]


def _about_three(names: list[str], before: str, after: str, layout: str) -> list[str]:
    one, two, three = map(_a, names)
    return [
        f"{one} {two} and {three} {_ORDERS[layout]}",
        f"{two} between {one} and {three}",
        f"{one} {before} {two} and {three}",
        f"{three} {after} {one} and {two}",
        f"three shapes in a {layout} with {two} in the middle",
        f"there is {two} between {one} and {three}",
        f"the {names[2]} is {after} the {names[1]}",
        f"{one} is {before} {two}",
    ]


def _about_inside(scene: Scene, random: np.random.Generator, names: list[str]) -> list[str]:
    inner, outer = map(_a, names[:2])
    within = choice(random, ("inside", "within", "in"))
    if len(names) == 2:
        return [
            f"{inner} {within} {outer}",
            f"{outer} with {inner} inside",
            f"{outer} around {inner}",
            f"there is {inner} {within} {outer}",
            f"{inner} is {within} {outer}",
            f"the {names[0]} is {within} the {names[1]}",
            f"{outer} contains {inner}",
        ]
    other, sides = _a(names[2]), (_BEFORE[scene.direction], _AFTER[scene.direction])
    here, there = (choice(random, side) for side in (sides[::-1] if scene.last_is_after else sides))
    return [
        f"{other} {here} {outer} with {inner} inside",
        f"{inner} {within} {outer} and {other}",
        f"{outer} {there} {other}",
        f"{other} is {here} {outer}",
        f"there is {inner} {within} {outer} {there} {other}",
        f"{other} and {outer} with {inner} inside",
        f"the {names[2]} is {here} the {names[1]}",
        f"{outer} contains {inner}",
    ]


def _about_alike(scene: Scene, random: np.random.Generator) -> list[str]:
    number = ("two", "three")[len(scene.shapes) - 2]
    name = _name(random, scene.shapes[0])
    several = f"{number} {name}{'es' if name.endswith('s') else 's'}"
    together = choice(random, _TOGETHER[scene.layout])
    return [
        several,
        f"{several} {together}",
        f"there are {several} {together}",
        f"a picture of {several}",
        f"a {scene.layout} of {several}",
        f"{several} of the same size",
        f"{several} in a {scene.layout}",
        f"{_a(name)} {choice(random, _BEFORE[scene.layout])} another one",
    ]


def _name(random: np.random.Generator, shape: Shape) -> str:
    """Colour and kind of a shape, mostly with its size."""
    size = choice(random, (*_SIZE_WORDS[shape.size], ""))
    return f"{size} {shape.colour} {shape.kind}".strip()


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def choice(random: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options."""
    return options[int(random.integers(len(options)))]
