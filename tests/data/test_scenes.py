"""The built-in captioned images: every sentence checked against the scene and against the pixels."""

import re
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from ecoc.data.caption_batches import CaptionBatches
from ecoc.data.scenes import COLOURS, KINDS, Scene, Shape, builtin_scenes, draw, random_scenes

IMAGES = 600


@pytest.fixture(scope="module")
def made():
    return builtin_scenes(IMAGES, seed=5)


@pytest.fixture(scope="module")
def scenes():
    return random_scenes(IMAGES, seed=5)


@pytest.fixture(scope="module")
def sentences(made):
    """The five sentences of each scene, in order."""
    images = {image.id: image for split in made[0].images.values() for image in split}
    return [[" ".join(caption) for caption in images[number].captions] for number in range(IMAGES)]


# --- is a sentence true? What follows knows nothing of how sentences are made.

SIZES = {"small": "small", "little": "small", "large": "large", "big": "large"}
NAME = re.compile(
    rf"(?:\b(an|a|the|two|three) )?(?:({'|'.join(SIZES)}) )?\b({'|'.join(COLOURS)}) ({'|'.join(KINDS)})(s|es)?\b"
)
EDGES = {
    "to the left of": lambda one, two: one.x + one.radius <= two.x - two.radius,
    "above": lambda one, two: one.y + one.radius <= two.y - two.radius,
    "to the right of": lambda one, two: two.x + two.radius <= one.x - one.radius,
    "below": lambda one, two: two.y + two.radius <= one.y - one.radius,
    "in": lambda one, two: max(abs(one.x - two.x), abs(one.y - two.y)) + one.radius < 0.62 * two.radius,
}
SAME = {"left of": "to the left of", "right of": "to the right of", "over": "above", "under": "below"}
EDGES |= {other: EDGES[name] for other, name in SAME.items()} | dict.fromkeys(("inside", "within"), EDGES["in"])
RELATION = "|".join(sorted(EDGES, key=len, reverse=True))
THIRDS = {"left": ("x", 0), "right": ("x", 2), "top": ("y", 0), "bottom": ("y", 2)}


def shapes_named(match, scene):
    """The shapes that a name can mean."""
    _, size, colour, kind, _ = match.groups()
    return [
        shape
        for shape in scene.shapes
        if (shape.colour, shape.kind) == (colour, kind) and (size is None or SIZES[size] == shape.size)
    ]


def in_order(shapes, axis):
    return all(getattr(two, axis) - getattr(one, axis) >= one.radius + two.radius for one, two in pairwise(shapes))


def at_place(shape, words):
    """Whether words such as "in the top left corner" say where a shape is."""
    said = dict(THIRDS[word] for word in words.split() if word in THIRDS)
    return all(int(getattr(shape, axis) / 64 * 3) == said.get(axis, 1) for axis in "xy")


def is_true(sentence, scene):
    """Whether a sentence is true of a scene; AssertionError if it cannot be understood."""
    matches = list(NAME.finditer(sentence))
    assert matches, sentence
    for match in matches:
        article, plural = match[1], match[5] is not None
        assert plural == (article in ("two", "three")), sentence
        assert article != "a" or match[0].split()[1][0] not in "aeiou", sentence
        assert article != "an" or match[0].split()[1][0] in "aeiou", sentence
        wanted = {"two": 2, "three": 3}.get(article)
        if len(shapes_named(match, scene)) != (wanted or len(shapes_named(match, scene))):
            return False
    letters = iter("ABC")
    rest = NAME.sub(lambda match: next(letters), sentence)
    rest = re.sub(r"^(there is|there are|a picture of|the only shape is) ", "", rest)
    return any(holds(rest, shapes, scene) for shapes in product(*(shapes_named(match, scene) for match in matches)))


def holds(rest, shapes, scene):
    """Whether the words around the names A, B and C are true of these shapes."""
    named = dict(zip("ABC", shapes, strict=False))
    number = len(scene.shapes)
    axis = "x" if " row" in rest or "left to right" in rest or re.search("side|next", rest) else "y"
    if rest in ("A", "A and nothing else"):
        return number == 1 or len(set(map(kind_of, scene.shapes))) == 1
    if rest in ("A and B", "A and B with C inside"):
        return number == len(shapes) and ("inside" not in rest or EDGES["in"](named["C"], named["B"]))
    if match := re.fullmatch(
        r"A (?:is )?((?:in|at|on) the [a-z ]+?)(?: of the picture)?|((?:in|at|on) the .*) is A", rest
    ):
        return number == 1 and at_place(named["A"], match[1] or match[2])
    if rest == "A of the same size":
        return len({shape.radius for shape in scene.shapes}) == 1
    if re.fullmatch(r"A (in a (row|column)|side by side|next to each other|one (above|below) the other)", rest):
        return in_order(sorted(scene.shapes, key=lambda shape: getattr(shape, axis)), axis)
    if re.fullmatch(r"a (row|column) of A", rest):
        return in_order(sorted(scene.shapes, key=lambda shape: getattr(shape, axis)), axis)
    if re.fullmatch(r"three shapes in a (row|column) with A in the middle", rest):
        ordered = sorted(scene.shapes, key=lambda shape: getattr(shape, axis))
        return number == 3 and in_order(ordered, axis) and ordered[1] == named["A"]
    if re.fullmatch(r"A B and C from (left to right|top to bottom)", rest):
        return number == 3 and in_order(shapes, axis)
    if rest == "A between B and C":
        return any(in_order((named["B"], named["A"], named["C"]), axis) for axis in "xy")
    if match := re.fullmatch(rf"A ({RELATION}) another one", rest):
        return any(EDGES[match[1]](named["A"], other) for other in scene.shapes)
    return holds_between(rest, named)


def kind_of(shape):
    return shape.kind, shape.colour, shape.size


def holds_between(rest, named):
    """Relations between named shapes."""
    rest = re.sub(r"A around B|A contains B|A with B inside", "B inside A", rest)
    rest = re.sub(r"B with C inside", "B and C inside B", rest)
    rest = rest.replace(" is ", " ")
    if match := re.fullmatch(rf"A ({RELATION}) B and C inside B", rest):
        return EDGES[match[1]](named["A"], named["B"]) and EDGES["in"](named["C"], named["B"])
    if match := re.fullmatch(r"A (inside|within|in) B and C", rest):
        return EDGES["in"](named["A"], named["B"])
    if match := re.fullmatch(rf"A ({RELATION}) B and C", rest):
        return all(EDGES[match[1]](named["A"], named[other]) for other in "BC")
    if match := re.fullmatch(rf"A (inside|within|in) B ({RELATION}) C", rest):
        return EDGES["in"](named["A"], named["B"]) and EDGES[match[2]](named["B"], named["C"])
    match = re.fullmatch(rf"([AB]) ({RELATION}) ([AB])", rest)
    assert match, f"not understood: {rest}"
    return EDGES[match[2]](named[match[1]], named[match[3]])


def test_every_sentence_is_true_of_its_scene(scenes, sentences):
    for scene, own in zip(scenes, sentences, strict=True):
        assert all(is_true(sentence, scene) for sentence in own), (scene, own)


def test_most_sentences_are_false_of_other_scenes(scenes, sentences):
    """Else the test above would show nothing."""
    verdicts = [
        is_true(one, scene) for scene, own in zip(scenes, sentences[1:] + sentences[:1], strict=True) for one in own
    ]
    assert sum(verdicts) / len(verdicts) < 0.01


@pytest.mark.parametrize("mirrored", ["x", "y"])
def test_relations_turn_false_in_a_mirror(scenes, sentences, mirrored):
    words = {"x": r"\b(left|right)\b", "y": r"\b(above|over|below|under|top|bottom)\b"}[mirrored]
    tried = 0
    for scene, own in zip(scenes, sentences, strict=True):
        turned = [Shape(**{**vars(shape), mirrored: 63 - getattr(shape, mirrored)}) for shape in scene.shapes]
        for sentence in own:
            if re.search(words, sentence) and "other" not in sentence:  # "one above the other" holds in a mirror too
                assert not is_true(sentence, Scene(scene.layout, tuple(turned))), sentence
                tried += 1
    assert tried > 300


# --- pixels


def colours_of(picture):
    """The name of each pixel's colour; "" on the background and at smooth edges."""
    palette = np.array(list(COLOURS.values()))
    near = abs(picture[:, :, None].astype(int) - palette).max(-1) <= 9  # [y, x, colour]
    return np.array([*COLOURS, ""])[np.where(near.any(-1), near.argmax(-1), len(COLOURS))]


def test_the_colours_named_and_no_others_are_in_the_picture(made, scenes, sentences):
    for picture, scene, own in zip(made[1], scenes, sentences, strict=True):
        seen = Counter(colours_of(picture).flatten().tolist())
        said = {word for sentence in own for word in sentence.split() if word in COLOURS}
        assert all(seen[colour] >= 20 for colour in said), (own, seen)
        assert {colour for colour in COLOURS if seen[colour] >= 20} == {shape.colour for shape in scene.shapes}


def test_left_right_above_and_below_can_be_seen_in_the_pixels(made, scenes, sentences):
    checked = 0
    pattern = re.compile(rf"{NAME.pattern} (?:is )?({RELATION}) {NAME.pattern}")
    for picture, scene, own in zip(made[1], scenes, sentences, strict=True):
        names, different = colours_of(picture), len({shape.colour for shape in scene.shapes}) == len(scene.shapes)
        for match in filter(None, map(pattern.fullmatch, own)):
            relation = SAME.get(match[6], match[6])
            if different and relation not in ("in", "inside", "within"):
                (y1, x1), (y2, x2) = (np.argwhere(names == match[group]).mean(0) for group in (3, 9))
                across, down = x2 - x1, y2 - y1
                assert {"to the left of": across, "to the right of": -across, "above": down, "below": -down}[
                    relation
                ] > 9
                checked += 1
    assert checked > 200


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_stay_within_their_radius_and_sizes_can_be_told(kind):
    areas = []
    for size, radius in (("small", 6), ("small", 7), ("large", 12), ("large", 13)):
        scene = Scene("alone", (Shape(kind, "black", size, 30, 33, radius),))
        dark = np.argwhere(draw(scene, np.random.default_rng(0)).mean(-1) < 120) - [33, 30]
        assert abs(dark).max() <= radius + 0.5 and abs(dark).max() >= 0.8 * radius
        assert dark[:, 1].mean() == pytest.approx(0, abs=0.1)
        areas.append(len(dark))
    assert areas == sorted(areas) and areas[2] > 2.5 * areas[1]


def test_kinds_look_different():
    drawn = [
        draw(Scene("alone", (Shape(kind, "blue", "large", 32, 32, 13),)), np.random.default_rng(0)) for kind in KINDS
    ]
    for one, two in ((one, two) for place, one in enumerate(drawn) for two in drawn[:place]):
        assert (abs(one.astype(int) - two).max(-1) > 60).sum() > 40


# --- the set


def test_shapes_are_whole_and_apart(scenes):
    for scene in scenes:
        for shape in scene.shapes:
            assert shape.radius <= min(shape.x, shape.y) and max(shape.x, shape.y) + shape.radius <= 63
        for place, one in enumerate(scene.shapes):
            for two in scene.shapes[:place]:
                apart = max(abs(one.x - two.x), abs(one.y - two.y)) >= one.radius + two.radius + 2
                assert apart or (scene.layout == "inside" and EDGES["in"](two, one))


def test_every_layout_kind_colour_and_number_occurs(scenes):
    assert {scene.layout for scene in scenes} == {"alone", "row", "column", "inside"}
    assert {len(scene.shapes) for scene in scenes} == {1, 2, 3}
    assert {shape.kind for scene in scenes for shape in scene.shapes} == set(KINDS)
    assert {shape.colour for scene in scenes for shape in scene.shapes} == set(COLOURS)
    alike = [scene for scene in scenes if len(scene.shapes) > 1 and len(set(map(kind_of, scene.shapes))) == 1]
    assert 0.05 * IMAGES < len(alike) < 0.4 * IMAGES


def test_five_different_sentences_in_varied_wording(sentences):
    assert all(len(set(own)) == len(own) == 5 for own in sentences)
    wordings = {NAME.sub("X", sentence) for own in sentences for sentence in own}
    assert len(wordings) > 80
    lengths = [len(sentence.split()) for own in sentences for sentence in own]
    assert min(lengths) >= 3 and max(lengths) <= 20


def test_splits_share_no_scene(made, scenes):
    data, pictures = made
    assert [len(data.images[split]) for split in ("train", "val", "test")] == [480, 60, 60]
    contents = {split: {scenes[image.id].content for image in images} for split, images in data.images.items()}
    assert sum(map(len, contents.values())) == IMAGES == len(set().union(*contents.values()))
    assert len(np.unique(pictures.reshape(IMAGES, -1), axis=0)) == IMAGES


def test_contents_tell_scenes_apart_by_what_can_be_said():
    inner, outer = Shape("star", "red", "small", 20, 30, 6), Shape("ring", "blue", "large", 20, 31, 16)

    def beside(x, y):
        return Scene("inside", (inner, outer, Shape("cross", "green", "small", x, y, 6)))

    assert beside(50, 29).content == beside(52, 33).content
    assert len({beside(50, 30).content, beside(19, 58).content, beside(21, 5).content}) == 3
    assert beside(19, 58).content == beside(21, 58).content


def test_the_same_seed_gives_the_same_set_and_a_larger_one_begins_with_a_smaller(made, scenes):
    data, pictures = builtin_scenes(40, seed=5)
    assert np.array_equal(pictures, made[1][:40])
    assert data.images["val"] == made[0].images["val"][:4]
    assert random_scenes(40, seed=5) == scenes[:40]
    assert not {scene.content for scene in random_scenes(40, seed=6)} & {scene.content for scene in scenes[:40]}


def test_the_set_is_ready_for_training(made, capsys):
    data, pictures = made
    assert pictures.shape == (IMAGES, 64, 64, 3) and pictures.dtype == np.uint8
    known = set(data.vocabulary.words)
    assert all(word in known for image in data.images["test"] for caption in image.captions for word in caption)
    batch = next(CaptionBatches(data, 16).starting_at(0))
    assert (
        batch.features.shape == (16, 64, 64, 3) and 0 <= float(batch.features.min()) <= float(batch.features.max()) <= 1
    )
    assert torch.equal((batch.features * 255).round().byte(), torch.from_numpy(pictures[batch.rows.numpy()]))
    builtin_scenes(10, progress=True)
    shown = capsys.readouterr()
    assert not shown.out and "draw scenes" in shown.err


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="images must be at least 10"):
        builtin_scenes(9)
    with pytest.raises(ValueError, match="seed must be 0 or more"):
        builtin_scenes(10, seed=-1)
