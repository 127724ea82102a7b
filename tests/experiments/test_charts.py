"""Charts and their captions say what the results say."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from ecoc.experiments.drawing import place
from tests.experiments.made import (
    captions,
    charts_of,
    coded,
    flips,
    language,
)

pytest.importorskip("matplotlib")


def test_the_cost_chart_names_who_is_beaten():
    rows = [language("Full-SM", 100.0, seconds=3000), language("Mine-ECOC", 95.0, seconds=1500)]
    rows += [language("NCE", 99.0, seconds=1000), language("Uni-ECOC", 140.0, seconds=1200)]
    chart = charts_of(*rows, language("Random-ECOC", 160.0))[0]
    assert (chart.x, chart.y) == ("CPU seconds", "test perplexity")
    assert {line.name: line.points for line in chart.lines}["Mine-ECOC"] == [(1500, 95)]
    assert chart.caption.endswith("Not drawn, above 150: Random-ECOC (160.00).")
    caption = chart.caption
    assert "No row is both cheaper and better than any of NCE and Mine-ECOC." in caption
    assert "Full-SM is beaten in both by NCE and Mine-ECOC." in caption
    assert "Error-correcting codes that another row beats in both: Uni-ECOC." in caption
    caption = charts_of(language("Full-SM", 90.0, seconds=3000), *rows[1:])[0].caption
    assert "better than any of Full-SM, NCE and Mine-ECOC." in caption and "Full-SM is beaten" not in caption
    assert "beats" not in charts_of(rows[2], language("Uni-ECOC", 99.0, seconds=1200))[0].caption  # as good in one


def test_times_of_another_seed_are_not_drawn():
    rows = [language("Full-SM", 100.0, seconds=3000), language("Full-SM", 102.0, seconds=10, seed=2)]
    rows += [language("NCE", 99.0, seconds=20, seed=2), language("Uni-ECOC", 98.0, seconds=1000)]
    cost, size, curves = charts_of(*rows)
    assert {line.name: line.points for line in cost.lines} == {"Full-SM": [(3000, 101)], "Uni-ECOC": [(1000, 98)]}
    assert cost.caption.endswith("Not drawn, run with another seed alone: NCE.")
    assert "better than Uni-ECOC." in cost.caption
    assert {line.name for line in size.lines} == {"Full-SM", "NCE", "Uni-ECOC"} and "another seed" not in size.caption
    assert {line.name: line.points[-1][0] for line in curves.lines} == {"Full-SM": 3000, "Uni-ECOC": 1000}


def test_the_size_chart_has_all_that_is_on_disk():
    rows = [language("Full-SM", 100.0, decoder=4_000_000), language("Mine-ECOC", 105.0, decoder=200_000)]
    chart = charts_of(*rows, language("Uni-ECOC", 106.0, decoder=300_000))[1]
    assert (chart.x, chart.y) == ("MB on disk", "test perplexity")
    points = {line.name: line.points[0] for line in chart.lines}
    assert points["Full-SM"] == pytest.approx((40.0, 100.0)) and points["Mine-ECOC"] == pytest.approx((24.8, 105.0))
    assert "No row is both smaller and better than any of Full-SM and Mine-ECOC." in chart.caption
    assert "Error-correcting codes that another row beats in both: Uni-ECOC." in chart.caption


def test_the_curves_say_when_others_reach_the_full_softmax():
    rows = [language("Full-SM", 100.0, seconds=3000), language("Mine-ECOC", 95.0, seconds=1500)]
    caption = charts_of(*rows, language("Uni-ECOC", 200.0))[2].caption
    assert "Full-SM gets to 105.00 after 3,000 CPU seconds; others get there after a share of these: " in caption
    assert "Mine-ECOC (50%). Error-correcting codes that never do: Uni-ECOC." in caption
    assert "no other row gets there." in charts_of(rows[0], language("Uni-ECOC", 200.0))[2].caption
    worse = {"epoch": 5, "valid_perplexity": {"normalised": 120.0}, "cpu_seconds": 3750.0}
    overfitted = replace(rows[0], curve=[*rows[0].curve, worse])  # its best epoch is what others are held against
    assert charts_of(overfitted, rows[1])[2].caption == charts_of(*rows)[2].caption
    (captioners,) = charts_of(captions("Full-SM", 0.6), captions("SS-ECOC", 0.5))
    assert "others get there after a share of these: SS-ECOC (100%)." in captioners.caption


def test_a_diverged_full_softmax_is_not_drawn_and_hides_no_other():
    rows = [language("Full-SM", 2e6), language("Mine-ECOC", 100.0), language("Uni-ECOC", 160.0)]
    cost, size, curves = charts_of(*rows, language("Random-ECOC", 2000.0))
    assert [line.name for line in cost.lines] == [line.name for line in size.lines] == ["Mine-ECOC"]
    assert "Not drawn, above 150: Full-SM (2,000,000.00), " in cost.caption and "Full-SM is beaten" not in cost.caption
    assert {line.name for line in curves.lines} == {"Mine-ECOC", "Uni-ECOC"} and "gets to" not in curves.caption


def test_at_most_eight_curves_have_colours_and_the_full_softmax_is_one():
    rows = [language("Full-SM", 500.0), *(language(f"Mine-{i}", 100.0 + i) for i in range(12))]
    looks = {line.name: line.look for line in charts_of(*rows)[2].lines}
    coloured = [name for name, look in looks.items() if look[0] != "quiet"]
    assert coloured == ["Full-SM", *(f"Mine-{i}" for i in range(7))] and looks["Full-SM"] == ("c1", "s")
    assert len({looks[name] for name in coloured}) == 8


def test_figure_2_has_a_line_a_code_and_says_which_reach_the_full_softmax():
    rows = [coded("figure2", "random", bits, test) for bits, test in ((1000, 98), (40, 200))]
    rows += [coded("figure2", "semantic", bits, test) for bits, test in ((40, 150), (1000, 95), (100, 101))]
    (chart,) = charts_of(*rows, full=language("Full-SM", 100.0, decoder=4_010_000))
    assert [line.name for line in chart.lines] == ["Full-SM", "semantic", "random"] and chart.log_x
    assert chart.lines[0].points == [(4_010_000, 100)] and chart.lines[0].level
    assert chart.lines[1].points == [(16_040, 150), (40_100, 101), (401_000, 95)]
    assert chart.lines[1].labels == ["40", "100", "1000"] and chart.lines[2].labels == ["", ""]  # the same places
    assert "semantic 150.00 with 40 bits to 95.00 with 1000 and random 200.00" in chart.caption
    assert "100.00 with 4,010,000 decoder parameters; as low: random with 1000 bits and sem" in chart.caption
    (chart,) = charts_of(*rows, full=language("Full-SM", 90.0))
    assert "Full-SM has 90.00 with 1,000 decoder parameters; no code here gets as low." in chart.caption
    assert [line.name for line in charts_of(*rows)[0].lines] == ["semantic", "random"]


def test_flips_are_compared_with_codewords_that_were_not_hit():
    rows = [flips("none", [0.3, 0.1, 0, 0], bits=100), flips("BCH", [0.25, 0.24, 0.2, 0.05], bits=511)]
    right, survive = charts_of(*rows)
    assert [line.name for line in right.lines] == ["BCH", "none"] and right.percent
    assert "From no flips to 20% of the bits: BCH 25.0% to 5.0% and none 30.0% to 0.0%." in right.caption
    assert "Half of what is right without flips is kept up to 5% at best (BCH), 0% at worst (none)." in right.caption
    assert "No better than if a single flip were fatal: none." in right.caption  # 0.99 ** 100 is 0.37
    assert survive.lines[0].points[1] == (0.01, 0.9) and "fatal" not in survive.caption
    equal = charts_of(flips("a", [0.3, 0.2, 0.1, 0.0]), flips("b", [0.4, 0.3, 0.1, 0.0]))[0].caption
    assert "kept up to 1% at best (a and b)." in equal
    assert "fatal" not in charts_of(flips("none", [0.3, 0.12, 0, 0], bits=100))[0].caption
    assert [line.name for line in survive.lines] == ["BCH and none"]  # one line, as they are the same


# --- drawings


def test_labels_find_places_off_each_other_and_near_their_points():
    points = np.random.default_rng(1).normal((200, 150), 12, (30, 2))
    boxes = place([(point, "12") for point in points], points)
    for i, a in enumerate(boxes):
        assert math.dist(points[i], ((a[0] + a[2]) / 2, (a[1] + a[3]) / 2)) < 90
        assert not [b for b in boxes[:i] if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


def test_labels_keep_off_lines():
    line = np.array([(x, 150.0) for x in range(50, 380)])
    (box,) = place([((200, 150), "12")], line)
    assert not ((line > box[:2]) & (line < box[2:])).all(1).any()


def test_perplexities_far_apart_are_drawn_as_logarithms():
    rows = [coded("figure2", "random", bits, test) for bits, test in ((10, 1000), (100, 100), (1000, 10))]
    chart = charts_of(*rows)[0]
    drawn = ElementTree.fromstring(re.search("<svg.*</svg>", chart.html("x"), re.S)[0])
    ticks = {text.text: float(text.get("y")) for text in drawn.iter("text") if float(text.get("x")) < 46}
    assert ticks["100"] == pytest.approx((ticks["10"] + ticks["1,000"]) / 2, abs=1)


def test_a_lines_key_stands_at_its_end():
    chart = charts_of(flips("BCH", [1, 1, 1, 1]), flips("none", [1, 0, 0, 0]))[0]
    drawn = ElementTree.fromstring(re.search("<svg.*</svg>", chart.html("x"), re.S)[0])
    texts = {text.text: (float(text.get("x")), float(text.get("y"))) for text in drawn.iter("text")}
    assert math.dist(texts["a"], (370, 45)) < 30 and math.dist(texts["b"], (370, 250)) < 30


def test_drawings_are_xml_with_ids_of_their_own_and_the_pages_colours(whole):
    page = whole[0]
    drawings = re.findall("<svg.*?</svg>", page.text, re.S)
    assert len(drawings) == 14
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        ids = {one.get("id") for one in root.iter() if one.get("id")}
        links = {one.get("href")[1:] for one in root.iter("use")} | set(re.findall(r"url\(#([^)]+)\)", drawing))
        assert ids and links == ids and root.get("viewBox") and root.get("role") == "img" and root.get("aria-label")
        assert {"test perplexity", "validation perplexity", "share of words"} & {
            text.text for text in root.iter("text")
        }
    assert len(page.values("id")) == len(set(page.values("id")))
    joined = "".join(drawings)
    assert not re.search(r"#[0-9a-f]{6}\b|font-family|xmlns|metadata|<style", joined)
    style = page.texts("style")[0]
    for ink in set(re.findall(r"var\((--\w+)\)", page.text)):
        assert style.count(f"{ink}:") == 2  # for light and dark
