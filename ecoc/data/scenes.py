"""The built-in captioned images: drawn scenes of one to three shapes, each with five sentences that are true of it.

A scene is a layout and its shapes in order: one ``alone``, two or three in a ``row`` (from left to right) or ``column``
(from the top), or one ``inside`` another, the third, if there is one, beside the two. Shapes of a scene all differ, or
are all of a kind ("three small red stars"). Nothing is stored: the same seed gives the same scenes, and the first
scenes of a larger set are those of a smaller one.

>>> data, pictures = builtin_scenes(images=3000)
>>> data
CaptionData(builtin scenes: 76 words, 2400 + 300 + 300 images, features (64, 64, 3))
"""

import math
from itertools import count

import numpy as np

from ecoc.codes.vectors import progress_bar
from ecoc.data.captions import CaptionData, CaptionedImage, Features, caption_vocabulary
from ecoc.data.scene_sentences import SIDE, Scene, Shape, choice, describe

KINDS = ("circle", "square", "triangle", "ring", "cross", "star", "diamond")
COLOURS = {
    "red": (214, 34, 34),
    "green": (38, 150, 58),
    "blue": (36, 72, 206),
    "yellow": (240, 208, 24),
    "purple": (134, 44, 162),
    "orange": (246, 132, 20),
    "pink": (248, 138, 184),
    "black": (20, 20, 20),
}
RADII = {"small": (6, 7), "large": (12, 13)}  # least and most
_HOLLOW = ("ring", "square", "circle")  # what another shape can be inside
_OUTER = 16  # radius of a shape with another one inside
_GAP = 3  # pixels between shapes
_JITTER = 8  # of a shape's colour


def builtin_scenes(images: int = 3000, seed: int = 0, progress: bool = False) -> tuple[CaptionData, np.ndarray]:
    """Captioned scenes, 80 % for training and 10 % each for ``val`` and ``test``, no two of them with the same content.

    Args:
        images: How many, at least 10.
        seed: Other scenes for another seed.
        progress: Show a bar.

    Returns:
        The captions, whose features are the pictures and whose ids their rows, and the pictures ``(N, 64, 64, 3)``
        uint8.
    """
    if images < 10:
        raise ValueError(f"images must be at least 10, so that every split has one, got {images}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    pictures = np.empty((images, SIDE, SIDE, 3), np.uint8)
    splits: dict[str, list[CaptionedImage]] = {"train": [], "val": [], "test": []}
    with progress_bar(progress) as bar:
        scenes = bar.track(random_scenes(images, seed), description="draw scenes")
        for number, scene in enumerate(scenes):
            random = np.random.default_rng([seed, 1, number])
            pictures[number] = draw(scene, random)
            split = {8: "val", 9: "test"}.get(number % 10, "train")
            captions = [sentence.split() for sentence in describe(scene, random)]
            splits[split].append(CaptionedImage(number, f"scene {number}.png", split, captions))
    features = Features(pictures, {number: number for number in range(images)})
    vocabulary = caption_vocabulary(splits["train"], min_count=1, name="builtin scenes")
    return CaptionData("builtin scenes", splits, vocabulary, features), pictures


def random_scenes(images: int, seed: int) -> list[Scene]:
    """Scenes that differ in content, in a fixed order for a seed."""
    scenes: dict[tuple[object, ...], Scene] = {}
    for number in count():
        if len(scenes) == images:
            break
        scene = _random_scene(np.random.default_rng([seed, 0, number]))
        scenes.setdefault(scene.content, scene)
    return list(scenes.values())


def draw(scene: Scene, random: np.random.Generator) -> np.ndarray:
    """The picture ``(64, 64, 3)`` uint8 of a scene: smooth edges on light grey, with a little noise."""
    picture = random.normal(random.uniform(225, 250), 2.0, (SIDE, SIDE, 1)).repeat(3, 2)  # [y, x, rgb]
    y, x = np.mgrid[:SIDE, :SIDE].astype(float)
    for shape in sorted(scene.shapes, key=lambda shape: -shape.radius):  # an inner one over its outer one
        colour = COLOURS[shape.colour] + random.uniform(-_JITTER, _JITTER, 3)
        covered = np.clip(0.5 - _distance(shape.kind, x - shape.x, y - shape.y, shape.radius), 0, 1)[..., None]
        picture += covered * (colour - picture)
    rounded: np.ndarray = np.clip(picture.round(), 0, 255).astype(np.uint8)
    return rounded


def _random_scene(random: np.random.Generator) -> Scene:
    layout = choice(random, ("alone", "row", "row", "column", "column", "inside"))
    number = 1 if layout == "alone" else choice(random, (2, 2, 3))
    sizes = [choice(random, ("small", "large")) for _ in range(number)]
    alike = layout in ("row", "column") and random.random() < 0.25
    if number == 3:  # two large ones and a third have no room beside each other
        sizes = ["small"] * 3
        if not alike:
            sizes[int(random.integers(3))] = choice(random, ("small", "large"))
    if alike:
        sizes = sizes[:1] * number
    if layout == "inside":
        sizes = ["small", "large", "small"][:number]
    things = [_thing(random)] * number
    while not alike and (len(set(things)) < number or (layout == "inside" and not _fit(*things[:2]))):
        things = [_thing(random) for _ in range(number)]
    radii = [int(random.integers(*RADII[size], endpoint=True)) for size in sizes]
    if alike:
        radii = radii[:1] * number
    if layout == "inside":
        radii[:2] = [RADII["small"][0], _OUTER]
    spots = _spots(random, layout, radii)
    parts = zip(things, sizes, spots, radii, strict=True)
    return Scene(layout, tuple(Shape(*thing, size, *spot, radius) for thing, size, spot, radius in parts))


def _thing(random: np.random.Generator) -> tuple[str, str]:
    return choice(random, KINDS), choice(random, tuple(COLOURS))


def _fit(inner: tuple[str, str], outer: tuple[str, str]) -> bool:
    return outer[0] in _HOLLOW and inner[1] != outer[1]


def _spots(random: np.random.Generator, layout: str, radii: list[int]) -> list[tuple[int, int]]:
    """The centres of shapes of a layout."""
    if layout == "alone":
        x, y = (choice(random, (14, 32, 49)) + int(random.integers(2)) for _ in range(2))
        return [(x, y)]
    if layout == "inside":
        direction, flipped = choice(random, ("row", "column")), random.random() < 0.5
        others = radii[:0:-1] if flipped else radii[1:]
        spots = _line(random, direction, others)
        spots = spots[::-1] if flipped else spots
        x, y = spots[0]
        return [(x + int(random.integers(-1, 2)), y + int(random.integers(-1, 2))), *spots]
    return _line(random, layout, radii)


def _line(random: np.random.Generator, direction: str, radii: list[int]) -> list[tuple[int, int]]:
    """Centres of shapes one after another with gaps of random width, and nearly on a line."""
    free = SIDE - 2 - 2 * sum(radii) - _GAP * (len(radii) - 1)
    cuts = np.sort(random.integers(0, free, len(radii), endpoint=True))
    largest = max(radii)
    level = int(random.integers(largest + 3, SIDE - largest - 3))
    spots, start = [], 1
    for number, radius in enumerate(radii):
        along = start + int(cuts[number]) + radius
        across = level + int(random.integers(-2, 3))
        spots.append((along, across) if direction == "row" else (across, along))
        start += 2 * radius + _GAP
    return spots


def _distance(kind: str, u: np.ndarray, v: np.ndarray, radius: float) -> np.ndarray:
    """About how far pixels are outside a shape, negative inside; all shapes fit into a square of twice the radius.

    Args:
        kind: One of ``KINDS``.
        u: Pixels to the right of the centre ``(H, W)``.
        v: Pixels below the centre ``(H, W)``.
        radius: Of the shape.
    """
    result: np.ndarray
    if kind == "circle":
        result = np.hypot(u, v) - radius
    elif kind == "ring":
        result = abs(np.hypot(u, v) - 0.8 * radius) - 0.2 * radius
    elif kind == "square":
        result = np.maximum(abs(u), abs(v)) - 0.88 * radius
    elif kind == "diamond":
        result = (abs(u) + abs(v) - radius) / math.sqrt(2)
    elif kind == "cross":
        arm, long = 0.32 * radius, 0.95 * radius
        result = np.minimum(np.maximum(abs(u) - arm, abs(v) - long), np.maximum(abs(u) - long, abs(v) - arm))
    elif kind == "triangle":
        v = v - 0.2 * radius  # the middle of its height, not its centre of mass, is the centre
        angle, length = _folded(u, v, 3)
        result = length * np.cos(math.pi / 3 - angle) - 0.6 * radius
    else:  # a star: on the edge from a point, at angle 0, to a dent
        angle, length = _folded(u, v, 5)
        tip, dent = 1.05 * radius, 0.45 * radius
        edge = np.array([dent * math.cos(math.pi / 5) - tip, dent * math.sin(math.pi / 5)])
        along, aside = length * np.cos(angle) - tip, length * np.sin(angle)
        result = (along * edge[1] - aside * edge[0]) / math.hypot(*edge)
    return result


def _folded(u: np.ndarray, v: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Angle to the nearest of a shape's points, one of which is at the top, and distance from the centre."""
    part = 2 * math.pi / points
    angle = np.arctan2(u, -v)
    return abs((angle + part / 2) % part - part / 2), np.hypot(u, v)
