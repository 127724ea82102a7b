"""The report says what the results say: in tables, charts, captions and the README."""

import json
import math
import os
import random
import re
import sys
import time
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ecoc.experiments.charts import charts
from ecoc.experiments.drawing import place
from ecoc.experiments.groups import groups
from ecoc.experiments.report import MARKS, headline, update_readme, write_report
from ecoc.experiments.results import Result
from ecoc.experiments.tables import headline_table, listed, table

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[2]
HOSTILE = """<script>alert("1")</script> & <b a='"'> | `x` [y](z)"""
PEERS = ("Rand-Sample-SM", "Uni-Sample-SM", "Rand-Hierarchical-SM", "Uni-Hierarchical-SM", "Adaptive-SM", "NCE")
COCO = ("Full-SM", "SS-SM", "Soft-SS-SM", "SS-Hierarchical-SM", "SS-ECOC", "CLVMS-ECOC", "DLVMS-ECOC", "Mine-ECOC")
VOID = {"meta", "img", "path", "use"}


# --- results as they could be


def language(row, perplexity, *, seconds=1000.0, epochs=4, decoder=1000, **others):
    """A language model whose validation perplexity falls to 1.05 times that of the test."""
    head = "ecoc" if "ECOC" in row else "softmax"
    values = {"study": "table1", "corpus": "ptb", "budget": "small", "seed": 1, "options": {"head": head, "lr": 0.004}}
    curve = [
        {
            "epoch": e,
            "valid_perplexity": {"normalised": 1.05 * perplexity * (epochs / e)},
            "cpu_seconds": seconds * e / epochs,
        }
        for e in range(1, epochs + 1)
    ]
    sizes = {"decoder_parameters": decoder, "parameters": decoder + 6_000_000, "bytes": 4 * decoder + 24_000_000}
    values |= {"command": "ecoc train --corpus ptb", "commit": "0123456789ab", "versions": {"python": "3.11.2"}}
    values |= {"sizes": sizes, "curve": curve, "tuning": {"0.002": 2 * perplexity, "0.004": 1.9 * perplexity}}
    values |= {"cost": {"cpu_seconds": seconds, "peak_memory_bytes": 5e8, "epochs": epochs, "threads": 1}}
    values |= {
        "valid": {"perplexity": {"normalised": 1.05 * perplexity}},
        "test": {"perplexity": {"normalised": perplexity}},
    }
    return Result(row=row, **values | others)


def spans(row, test, **others):
    modes = {"normalised": test, "span-mass": test, "paper": 1.5 * test}
    return language(row, test, test={"perplexity": modes}, note="spans of codewords", **others)


def skipped(row, reason="too slow", **others):
    cost = {"cpu_seconds_per_epoch": 54321.4}
    return language(row, 1.0, skipped=reason, cost=cost, sizes={}, test={}, valid={}, curve=[], **others)


def captions(row, bleu, said="a man on a horse", **others):
    scores = {f"bleu{n}": bleu / n for n in range(1, 5)} | {"rouge_l": 0.48, "meteor": 0.2, "cider": 3 * bleu - 1}
    paper = {f"bleu{n}": 72 / n for n in range(1, 5)} | {"rouge_l": 50.28, "meteor": 52.7}
    shown = [{"image": 7 + i, "caption": f"{said} {i}", "references": [f"people {i}"]} for i in range(10)]
    values = {"study": "table2", "corpus": "coco", "test": scores, "paper": paper, "extra": {"captions": shown}}
    return language(row, 12.0, **values | {"curve": []} | others)


def coded(study, codebook, bits, test, **options):
    options = {"head": "ecoc", "codebook": codebook, "bits": bits} | options
    name = "-".join(str(value) for value in options.values())
    return language(name, test, study=study, decoder=401 * bits, options=options | {"lr": 0.004})


def flips(row, accuracy, recovered=(1, 0.9, 0.5, 0.1), distance=3, **options):
    extra = {
        "flips": [0.0, 0.01, 0.05, 0.2],
        "accuracy": accuracy,
        "recovered": [*recovered],
        "minimum_distance": distance,
    }
    return Result("flips", row, "ptb", 1, "small", options=options, extra=extra)


def plausible():
    """About 120 results of all studies."""
    draw = random.Random(1)
    found = []
    for corpus, base, words in (("ptb", 100, 10_000), ("wikitext-2", 140, 33_278), ("wikitext-103", 60, 267_735)):
        here = {"corpus": corpus, "paper": {"valid": 0.8 * base, "test": 0.75 * base}}
        full = here | {"seconds": 0.3 * words, "decoder": 401 * words}
        found += [language("Full-SM", base + draw.random(), seed=seed, **full) for seed in (1, 2, 3)]
        for row in PEERS[: 5 if corpus == "wikitext-103" else 6]:
            cost = {"seconds": full["seconds"] * draw.uniform(0.3, 0.9), "decoder": draw.randint(40, 401) * words}
            found.append(language(row, base * draw.uniform(1, 1.3), **here, **cost))
        for row in ("Random-ECOC", "Uni-ECOC", "Embedding-ECOC"):
            found.append(spans(row, base * draw.uniform(2, 5), seconds=0.06 * words, decoder=16_040, **here))
        for bits in range(128, 1152, 128):
            cost = {"seconds": full["seconds"] * draw.uniform(0.4, 0.6), "decoder": 401 * bits}
            found.append(language(f"Mine-ECOC-{bits}", base * draw.uniform(0.85, 1.1), corpus=corpus, **cost))
    found.append(skipped("NCE", corpus="wikitext-103"))
    found += [captions(row, draw.uniform(0.5, 0.7)) for row in COCO]
    for codebook, worst in (("random", 900), ("span-unigram", 700), ("semantic", 500)):
        found += [coded("figure2", codebook, bits, 90 + worst / bits**0.7) for bits in (14, 20, 40, 100, 300, 1000)]
    for codebook in ("random", "bch", "semantic", "hadamard"):
        for bits in (128, 512):
            tests = {objective: 90 + draw.random() * 9000 / bits for objective in ("likelihood", "bits")}
            found += [coded("ablation", codebook, bits, test, objective=one) for one, test in tests.items()]
    found += [coded("ablation", "span-unigram", 40, 300 / n, objective="span-mass", mixture=n) for n in (1, 2, 4)]
    extra = flips("", [0.24, 0.23, 0.2, 0.1]).extra
    return [replace(one, extra=extra) if one.study == "ablation" else one for one in found]


def saved(tmp_path, *results):
    for number, result in enumerate(results):
        path = tmp_path / "results" / result.study / result.corpus / f"{number:03}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(result)))
    return tmp_path / "results"


class Page(HTMLParser):
    """Tags with attributes and the text inside each, in the page's order; fails on a tag closed out of turn."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.open = text, [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.open.append(self.tags[-1])

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, text):
        for _, _, inside in self.open:
            inside.append(text)

    def texts(self, tag, **attributes):
        found = [(values, inside) for name, values, inside in self.tags if name == tag]
        return ["".join(inside).strip() for values, inside in found if attributes.items() <= values.items()]

    def values(self, attribute):
        return [values[attribute] for _, values, _ in self.tags if attribute in values]


def page_of(tmp_path, *results):
    write_report(saved(tmp_path, *results), tmp_path / "page.html", tmp_path / "markdown")
    return Page((tmp_path / "page.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The page and the Markdown of all studies, and the CPU seconds they took."""
    tmp_path = tmp_path_factory.mktemp("whole")
    start = time.process_time()
    page = page_of(tmp_path, *plausible())
    return page, tmp_path, time.process_time() - start


def table_of(*results):
    """The table of results of one group."""
    (group,) = groups(results, results[0].study)
    return table(group, group.row("Full-SM"))


def column(found, name):
    return [row[found.columns.index(name)] for row in found.rows]


def bold(found):
    return {(found.rows[i][0], found.columns[j]) for i, j in found.best}


def charts_of(*results, full=None):
    (group,) = groups(results, results[0].study)
    return charts(group, groups([full], "table1")[0].rows[0] if full else group.row("Full-SM"))


# --- tables


def test_the_papers_rows_come_in_its_order_and_then_ours_from_the_best_down():
    rows = [language(row, 90.0 + i) for i, row in enumerate(("NCE", "Mine-B", "Uni-ECOC", "Full-SM", "Mine-A"))]
    found = table_of(*rows, skipped("Mine-0"), language("Mine-C", 50.0))
    names = ["Full-SM", "NCE", "Uni-ECOC", "Mine-C", "Mine-B", "Mine-A", "Mine-0 (not run)"]
    assert column(found, "row") == names


def test_a_cell_has_the_mean_over_seeds_with_its_spread_and_the_best_of_a_column_is_bold():
    paper = {"valid": 86.19, "test": 79.24}
    full = [language("Full-SM", test, seed=seed, paper=paper, decoder=4000) for seed, test in ((1, 99), (2, 101))]
    found = table_of(*full, language("NCE", 110.0, paper={"valid": 96.79, "test": 89.3}), language("Mine-ECOC", 90.126))
    assert column(found, "test") == ["100.00 ± 1.41", "110.00", "90.13"]
    assert column(found, "valid") == ["105.00 ± 1.48", "115.50", "94.63"]
    assert column(found, "paper's test") == ["79.24", "89.30", ""] and column(found, "seeds") == ["2", "1", "1"]
    assert column(found, "test - paper's †") == ["+20.76", "+20.70", ""]
    assert column(found, "decoder parameters") == ["4,000", "1,000", "1,000"]
    assert column(found, "MB on disk") == ["24.0"] * 3 and column(found, "peak MB") == ["500"] * 3
    assert column(found, "learning rate") == ["0.004"] * 3 and column(found, "epochs") == ["4"] * 3
    assert {pair for pair in bold(found) if pair[1] in ("valid", "test", "MB on disk", "decoder parameters")} == {
        ("Mine-ECOC", "valid"),
        ("Mine-ECOC", "test"),
        ("NCE", "decoder parameters"),
        ("Mine-ECOC", "decoder parameters"),
    }
    assert not [pair for pair in bold(found) if "paper's" in pair[1]]  # of the paper's rows some may be missing here
    assert "± is the standard deviation over seeds." in found.caption


def test_seeds_that_chose_different_learning_rates_show_both():
    rows = [language("Full-SM", 100.0, seed=seed, options={"lr": rate}) for seed, rate in ((1, 0.004), (2, 0.002))]
    assert column(table_of(*rows), "learning rate") == ["0.002, 0.004"]


def test_without_a_second_seed_there_is_no_spread():
    found = table_of(language("Full-SM", 100.0))
    assert column(found, "test") == ["100.00"] and "seeds" not in found.columns and "±" not in found.caption
    assert not found.best and "Bold" not in found.caption


def test_only_the_papers_budget_compares_with_the_paper():
    small = table_of(language("Full-SM", 100.0, paper={"test": 79.24}))
    assert "test - paper's †" in small.columns and "† The paper's values do not compare" in small.caption
    assert "here are fewer epochs" in small.caption and "at most 4 epochs" in small.caption
    paper = table_of(language("Full-SM", 80.0, paper={"test": 79.24}, budget="paper"))
    assert column(paper, "test - paper's") == ["+0.76"] and "compare" not in paper.caption


def test_other_modes_are_shown_where_a_row_has_them():
    found = table_of(language("Full-SM", 100.0), spans("Uni-ECOC", 200.0))
    assert column(found, "test (paper)") == ["", "300.00"] and column(found, "test (span-mass)") == ["", "200.00"]
    found = table_of(*(replace(row, paper={"test": 80.0}) for row in (language("NCE", 90.0), spans("Uni-ECOC", 200.0))))
    assert column(found, "test - paper's †") == ["+10.00", "+220.00"] and "in that one" in found.caption
    assert "test (paper)" not in table_of(language("Full-SM", 100.0)).columns


def test_a_row_that_was_not_run_has_its_reason_and_seconds_once():
    assert table_of(skipped("NCE")).notes == ["NCE: not run: too slow; 54,321 CPU seconds an epoch"]
    reason = "54,321 CPU seconds an epoch, measured over 9 steps"
    assert table_of(skipped("NCE", reason)).notes == [f"NCE: not run: {reason}"]
    run = table_of(skipped("NCE", seed=1), language("NCE", 100.0, seed=2))
    assert column(run, "row") == ["NCE"] and not run.notes


def test_the_same_note_is_said_once():
    rows = [spans(name, 200.0) for name in ("Random-ECOC", "Uni-ECOC")]
    assert table_of(*rows).notes == ["Random-ECOC and Uni-ECOC: spans of codewords"]


def test_the_caption_counts_who_loses_against_the_full_softmax():
    rows = [language(*one) for one in (("NCE", 110.0), ("Uni-ECOC", 105.0), ("Mine-ECOC", 95.0), ("Tied-SM", 90.0))]
    assert (
        "2 of 4 rows are above Full-SM (100.00) in test perplexity, which is worse; of 2 with error-correcting codes "
        "1: Uni-ECOC. Lowest: Tied-SM, 90.00." in table_of(language("Full-SM", 100.0), *rows).caption
    )
    assert (
        "1 of 4 rows is above Full-SM (106.00) in test perplexity, which is worse; of 2 with error-correcting codes 0. "
        "Lowest: Tied-SM" in table_of(language("Full-SM", 106.0), *rows).caption
    )
    nobody = "Full-SM was not run here, so no test perplexity is compared with it. Lowest: Tied-SM, 90.00."
    assert nobody in table_of(*rows).caption and nobody in table_of(skipped("Full-SM"), *rows).caption


def test_budgets_and_corpora_are_kept_apart():
    rows = [language("Full-SM", 100.0), language("Full-SM", 80.0, budget="tiny"), language("NCE", 81.0, budget="tiny")]
    rows += [language("A", 1.0, corpus="other"), language("Full-SM", 150.0, corpus="wikitext-2")]
    found = groups(rows, "table1")
    names = [("ptb", "tiny"), ("ptb", "small"), ("wikitext-2", "small"), ("other", "small")]  # tiny has more rows
    assert [(one.corpus, one.budget) for one in found] == names
    assert column(table(found[1], None), "test") == ["100.00"]


def test_a_perplexity_beyond_reading_is_a_power_of_ten_and_not_drawn():
    rows = [language("Full-SM", 100.0), language("NCE", math.exp(700)), language("Uni-ECOC", math.nan)]
    assert column(table_of(*rows), "test") == ["100.00", "1.0e+304", ""]
    cost, curves = charts_of(*rows)
    assert [line.name for line in cost.lines] == [line.name for line in curves.lines] == ["Full-SM"]
    assert "Not drawn, above 300: NCE (1.0e+304)." in cost.caption
    assert "Not drawn, above 315: NCE (1.1e+304)." in curves.caption


def test_table_2_is_in_percent_and_says_what_does_not_compare():
    rows = [captions("DLVMS-ECOC", 0.5), captions("Full-SM", 0.6), captions("SS-SM", 0.55)]
    found = table_of(*rows)
    assert column(found, "row") == ["Full-SM", "SS-SM", "DLVMS-ECOC"]
    assert column(found, "BLEU-1") == ["60.00", "55.00", "50.00"] and column(found, "CIDEr") == ["0.80", "0.65", "0.50"]
    assert column(found, "METEOR") == ["20.00"] * 3 and column(found, "paper's METEOR †") == ["52.70 (-32.70)"] * 3
    assert "2 of 2 rows are below Full-SM (0.80) in CIDEr" in found.caption and "codes 1: DLVMS-ECOC" in found.caption
    assert "† not comparable: fewer epochs here." in found.caption
    some = [replace(row, test=row.test | {"images": 4407}) for row in rows]
    assert "† not comparable: fewer epochs here and 4,407 of 5,000 test images." in table_of(*some).caption
    long = [replace(row, budget="paper") for row in some]
    assert "† not comparable: 4,407 of 5,000 test images." in table_of(*long).caption
    assert "paper's METEOR" in table_of(*(replace(row, budget="paper") for row in rows)).columns
    assert "The paper's METEOR is 2.6 times that of METEOR 1.5 here, its BLEU-4 1.3 times." in found.caption
    without = [replace(row, test={name: value for name, value in row.test.items() if name != "meteor"}) for row in rows]
    assert "METEOR" not in table_of(*without).columns and "1.5" not in table_of(*without).caption


def test_the_ablation_says_which_choice_is_best_with_all_else_equal():
    rows = [coded("ablation", kind, bits, test) for kind, bits, test in (("bch", 128, 120), ("semantic", 128, 110))]
    rows += [coded("ablation", "semantic", 512, 100), coded("ablation", "semantic", 512, 105, objective="bits")]
    rows += [coded("ablation", "semantic", 512, 99, predictor_layers=2)]
    caption = table_of(*rows).caption
    assert "Best codebook, all else equal: semantic (1 of 1)." in caption
    assert "One learning rate for all, 0.004, which may suit some better." in caption
    assert "Best bits, all else equal: 512 (1 of 1)." in caption and "mixture" not in caption
    assert "Best objective, all else equal: default (1 of 1)." in caption
    assert "Best predictor layers, all else equal: 2 (1 of 1)." in caption
    rows[2] = coded("ablation", "semantic", 512, 106)
    assert "Best objective, all else equal: bits (1 of 1)." in table_of(*rows).caption


def test_codes_of_other_vectors_are_other_codes():
    rows = [coded("ablation", "semantic", 512, 100, vectors=name) for name in ("contexts", "glove")]
    found, (chart,) = table_of(*rows), charts_of(*rows)
    said = "Best codebook, all else equal: semantic contexts (1 of 1) and semantic glove (1 of 1)."  # as good
    assert said in found.caption
    assert sorted(line.name for line in chart.lines) == ["semantic contexts", "semantic glove"]


def test_a_full_softmax_with_more_epochs_is_called_unfair():
    row = coded("figure2", "random", 40, 200)
    (group,), full = groups([row], "figure2"), language("Full-SM", 100.0, epochs=6)
    runs = groups([full], "table1")[0].rows[0]
    said = "Full-SM had 6 epochs, others 4: no fair comparison."
    assert said in table(group, runs).caption and said in charts(group, runs)[0].caption
    equal = groups([language("Full-SM", 100.0)], "table1")[0].rows[0]
    assert "fair" not in table(group, equal).caption + charts(group, equal)[0].caption
    rows = [full, language("NCE", 90.0, epochs=6), language("Uni-ECOC", 80.0, epochs=2)]
    assert "Full-SM had 6 epochs, others 2 and 6: no fair comparison." in table_of(*rows).caption


def test_flips_are_a_column_each():
    bch = flips("BCH", [0.25, 0.24, 0.2, 0.1], [1, 1, 0.99, 0.2], 121, bits=511)
    found = table_of(bch, flips("one-hot", [0.25, 0.1, 0, 0], [1, 0.5, 0.1, 0], 2, bits=512))
    assert found.columns[3:7] == ["right, 0%", "right, 1%", "right, 5%", "right, 20%"]
    assert found.rows[0][:7] == ["BCH", "511", "121", "25.0%", "24.0%", "20.0%", "10.0%"]
    assert column(found, "survive, 5%") == ["99.0%", "10.0%"]
    assert ("BCH", "right, 20%") in bold(found) and ("BCH", "right, 0%") not in bold(found)


def test_flips_may_come_with_the_ablation(tmp_path):
    extra = flips("", [0.25, 0.24, 0.2, 0.1]).extra
    page = page_of(tmp_path, replace(coded("ablation", "bch", 511, 100.0), extra=extra))
    assert "right, 20%" in page.texts("th") and "test" in page.texts("th")
    assert {"Right words of the model", "Codewords that survive"} <= set(page.texts("h4"))


def test_long_lists_end_with_a_number():
    assert [listed([]), listed(["a"]), listed(["a", "b", "c"])] == ["", "a", "a, b and c"]
    assert listed([*"abcdefgh"]) == "a, b, c, d, e, f and 2 more"


# --- captions of charts


def test_the_cost_chart_names_who_is_beaten():
    rows = [language("Full-SM", 100.0, seconds=3000), language("Mine-ECOC", 95.0, seconds=1500)]
    rows += [language("NCE", 99.0, seconds=1000), language("Uni-ECOC", 200.0, seconds=1200)]
    caption = charts_of(*rows)[0].caption
    assert "Beaten in both by none of these: NCE and Mine-ECOC." in caption
    assert "Full-SM is beaten in both by NCE and Mine-ECOC." in caption
    assert "Error-correcting codes that another row beats in both: Uni-ECOC." in caption
    caption = charts_of(language("Full-SM", 90.0, seconds=3000), *rows[1:])[0].caption
    assert "none of these: Full-SM, NCE and Mine-ECOC." in caption and "Full-SM is beaten" not in caption
    assert "beats" not in charts_of(rows[2], language("Uni-ECOC", 99.0, seconds=1200))[0].caption  # as good in one


def test_the_curves_say_when_others_reach_the_full_softmax():
    rows = [language("Full-SM", 100.0, seconds=3000), language("Mine-ECOC", 95.0, seconds=1500)]
    caption = charts_of(*rows, language("Uni-ECOC", 200.0))[1].caption
    assert "Full-SM ends at 105.00 after 3,000 CPU seconds; others get there after a share of these: " in caption
    assert "Mine-ECOC (50%). Error-correcting codes that never do: Uni-ECOC." in caption
    assert "no other row gets there." in charts_of(rows[0], language("Uni-ECOC", 200.0))[1].caption


def test_at_most_eight_curves_have_colours_and_the_full_softmax_is_one():
    rows = [language("Full-SM", 500.0), *(language(f"Mine-{i}", 100.0 + i) for i in range(12))]
    looks = {line.name: line.look for line in charts_of(*rows)[1].lines}
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
    assert "fatal" not in charts_of(flips("none", [0.3, 0.12, 0, 0], bits=100))[0].caption


# --- drawings


def test_labels_find_places_off_each_other_and_near_their_points():
    points = np.random.default_rng(1).normal((200, 150), 12, (30, 2))
    boxes = place([(point, "12") for point in points], points)
    for i, a in enumerate(boxes):
        assert math.dist(points[i], ((a[0] + a[2]) / 2, (a[1] + a[3]) / 2)) < 90
        assert not [b for b in boxes[:i] if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


def test_a_lines_key_stands_at_its_end():
    chart = charts_of(flips("BCH", [1, 1, 1, 1]), flips("none", [1, 0, 0, 0]))[0]
    drawn = ElementTree.fromstring(re.search("<svg.*</svg>", chart.html("x"), re.S)[0])
    texts = {text.text: (float(text.get("x")), float(text.get("y"))) for text in drawn.iter("text")}
    assert math.dist(texts["a"], (370, 45)) < 30 and math.dist(texts["b"], (370, 250)) < 30


def test_drawings_are_xml_with_ids_of_their_own_and_the_pages_colours(whole):
    page = whole[0]
    drawings = re.findall("<svg.*?</svg>", page.text, re.S)
    assert len(drawings) == 10
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


# --- the page


def test_the_page_has_all_studies_with_a_caption_under_each_figure(whole):
    page = whole[0]
    headings = ["Table 1: language models", "Table 2: captions", "Figure 2: the length of codes"]
    headings += ["What makes a code good", "Does error correction correct?", "How this was made"]
    assert page.texts("h2") == page.texts("a") == headings
    assert [link[1:] for link in page.values("href") if link in {f"#{one}" for one in page.values("id")}][:6] == [
        *("table1", "table2", "figure2", "ablation", "flips", "made"),
    ]
    assert len(page.texts("figure")) == len(page.texts("figcaption")) == 7 + 10 + 1 and all(page.texts("figcaption"))
    assert "NCE: not run: too slow; 54,321 CPU seconds an epoch" in page.texts("li")
    assert len(page.texts("table")) == 7 and len(page.texts("div", **{"class": "wide"})) == 7
    assert whole[2] < 10


def test_ten_images_have_what_each_row_and_what_people_said(whole):
    page = whole[0]
    assert len(page.texts("article")) == 10 and not page.values("src")
    assert "Of 80 captions 10 are different." in page.texts("p")
    assert all(row in page.texts("article")[3] for row in (*COCO, "a man on a horse 3", "people 3", "image 10"))


def test_images_that_have_a_picture_are_shown_with_it(tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "pictures").mkdir()
    for name in ("COCO_val2014_000000000009.png", "000000000012.png", "other.png"):
        image.new("RGB", (300, 200), "red").save(tmp_path / "pictures" / name)
    results = saved(tmp_path, captions("Full-SM", 0.6))
    write_report(results, tmp_path / "page.html", images=tmp_path / "pictures")
    page = Page((tmp_path / "page.html").read_text("utf-8"))
    cards = re.findall(r"<article>.*?</article>", page.text, re.DOTALL)
    assert ["data:image/" in card for card in cards] == [i in (2, 5) for i in range(10)]
    with pytest.raises(ValueError, match="nowhere"):
        write_report(results, tmp_path / "page.html", images=tmp_path / "nowhere")


def test_how_it_was_made_has_facts_and_every_command(whole):
    page = whole[0]
    facts = dict(zip(page.texts("dt")[-6:], page.texts("dd")[-6:], strict=True))
    assert facts == {
        "commit of ecoc": "0123456789ab",
        "versions": "python 3.11.2",
        "outside files": "unknown",
        "budget": "small",
        "seed": "1, 2, 3",
        "threads": "1",
    }
    assert page.texts("summary")[0] == "Commands of Table 1: language models"
    (line,) = [text for text in page.texts("li") if text.startswith("Full-SM on ptb, small, seed 2: ")]
    assert "ecoc train --corpus ptb" in line and "by learning rate: 0.002: 2" in line


def test_a_study_without_results_is_one_line_with_the_command(tmp_path):
    page = page_of(tmp_path, language("Full-SM", 100.0))
    for study in ("table2", "figure2", "ablation"):
        assert f"No results yet: ecoc reproduce {study} makes them." in page.texts("p")
    assert page.texts("p").count("No results yet: ecoc reproduce ablation makes them.") == 2  # and flips
    assert os.listdir(tmp_path / "markdown") == ["table1.md"]


def test_figure_2_has_the_full_softmax_of_the_same_corpus_and_budget(tmp_path):
    code = coded("figure2", "random", 40, 200.0)
    rows = [code, language("Full-SM", 90.0, budget="paper"), replace(code, corpus="wikitext-2")]
    page = page_of(tmp_path, *rows, language("Full-SM", 100.0, corpus="wikitext-2"))
    table, chart, other_table, other_chart = page.texts("figcaption")[-5:-1]  # the last is that of how it was made
    assert "Full-SM was not run here" in table and "Full-SM" not in chart
    assert "1 of 1 rows is above Full-SM (100.00)" in other_table and "Full-SM has 100.00" in other_chart


def test_markdown_has_a_file_a_study(whole):
    files = sorted((whole[1] / "markdown").iterdir())
    assert [file.name for file in files] == ["ablation.md", "figure2.md", "flips.md", "table1.md", "table2.md"]
    for file in files:
        rows = [line.count(" | ") for line in file.read_text("utf-8").splitlines() if line.startswith("|")]
        assert len(rows) > 3 and min(rows) > 3
    text = files[3].read_text("utf-8")
    assert text.count("## ") == 3 and "| **" in text and "\n\n- NCE: not run: too slow" in text


def test_hostile_names_are_shown_and_never_obeyed(tmp_path):
    bad = {"note": HOSTILE, "commit": HOSTILE, "command": HOSTILE, "budget": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    modes = {"normalised": 100.0, HOSTILE: 100.0}
    rows = [language(HOSTILE, 100.0, corpus="x", tuning={HOSTILE: 1.0}, test={"perplexity": modes}, **bad)]
    said = [{"image": HOSTILE, "caption": HOSTILE, "references": [HOSTILE]}]
    rows += [captions(HOSTILE, 0.5, extra={"captions": said}, **bad), skipped("NCE", HOSTILE, **bad)]
    rows += [coded("ablation", HOSTILE, 40, 100.0), flips(HOSTILE, [1, 1, 1, 1])]
    page = page_of(tmp_path, *rows)
    assert not {"script", "img"} & {tag for tag, *_ in page.tags} and not page.values("a")
    assert page.texts("th", scope="row").count(HOSTILE) == 3 and HOSTILE in page.texts("code")
    assert HOSTILE in page.texts("dd") and any(HOSTILE in text for text in page.texts("figcaption"))
    markdown = "".join(file.read_text("utf-8") for file in (tmp_path / "markdown").iterdir())
    assert "<script" not in markdown and "](" not in markdown.replace(r"\](", "") and r"\|" in markdown


def test_nothing_is_fetched_and_nothing_runs(whole):
    page = whole[0]
    assert not re.search(r"https?:|url\((?!#)|@import", page.text)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, *_ in page.tags}
    assert not [name for _, values, _ in page.tags for name in values if name.startswith("on") or name == "srcset"]
    assert all(link.startswith("#") for link in page.values("href"))
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page.values("content")
    style = page.texts("style")[0]
    assert style.count("{") == style.count("}") and "prefers-color-scheme: dark" in style


def test_the_same_results_give_the_same_bytes(tmp_path):
    rows = [language("Full-SM", 100.0), language("Mine-ECOC", 95.0), flips("BCH", [1, 1, 1, 1])]
    first = page_of(tmp_path / "a", *rows).text
    assert page_of(tmp_path / "b", *rows).text == first


# --- the README


def test_the_readme_and_markdown_are_in_step_with_the_results(tmp_path):
    results = ROOT / "results"
    shown = (ROOT / "README.md").read_text(encoding="utf-8").partition(MARKS[0])[2].partition(MARKS[1])[0]
    assert shown == f"\n{headline(results)}\n"  # else: ecoc report --readme README.md
    write_report(results, tmp_path / "page.html", tmp_path)
    for path in tmp_path.glob("*.md"):
        assert path.read_text(encoding="utf-8") == (results / path.name).read_text(encoding="utf-8")


def test_the_headline_is_table_1_on_ptb(tmp_path):
    paper = {"paper": {"test": 79.24}, "decoder": 4_010_000, "seconds": 3000}
    rows = [language("Full-SM", test, seed=seed, **paper) for seed, test in ((1, 99.0), (2, 101.0))]
    found = saved(tmp_path, *rows, language("Mine-ECOC", 90.0, seconds=1500), language("NCE", 9.0, corpus="wikitext-2"))
    lines = headline(found).splitlines()
    assert lines[0] == (
        "| row | test perplexity | paper's | decoder parameters | all parameters | MB on disk | "
        "CPU seconds, Full-SM = 1 | seeds |"
    )
    assert lines[2] == "| Full-SM | 100.00 ± 1.41 | 79.24 | 4,010,000 | 10,010,000 | 40.0 | 1.00 | 2 |"
    assert lines[3] == "| Mine-ECOC | **90.00** |  | **1,000** | **6,001,000** | **24.0** | **0.50** | 1 |"
    assert len(lines) == 6 and "0 of 1 rows are above Full-SM (100.00)" in lines[5]


def test_without_the_full_softmax_cpu_seconds_are_left_out():
    (group,) = groups([language("Mine-ECOC", 90.0)], "table1")
    assert headline_table(group).columns[-1] == "MB on disk"


def test_the_readmes_table_is_replaced_and_nothing_else(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# a\n\n{MARKS[0]}\nold\n{MARKS[1]}\n\nb é\n", encoding="utf-8")
    found = saved(tmp_path, language("Full-SM", 100.0))
    update_readme(readme, found)
    text = readme.read_text(encoding="utf-8")
    assert text == f"# a\n\n{MARKS[0]}\n{headline(found)}\n{MARKS[1]}\n\nb é\n"
    update_readme(readme, found)
    assert readme.read_text(encoding="utf-8") == text
    saved(tmp_path, language("Full-SM", 101.0))
    update_readme(readme, found)
    assert "101.00" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["# a\n", f"{MARKS[0]}\n", f"{MARKS[1]}\n{MARKS[0]}\n"])
def test_a_readme_without_marks_is_left_alone(tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(
        ValueError, match=r"README.md has no place for the table: add the lines <!-- experiments.report"
    ):
        update_readme(tmp_path / "README.md", saved(tmp_path, language("Full-SM", 100.0)))
    assert (tmp_path / "README.md").read_text() == text


# --- mistakes


def test_mistakes_are_told_in_one_line_with_the_way_out(tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    with pytest.raises(ValueError, match="is no folder: run `ecoc reproduce table1` first"):
        write_report(tmp_path / "none", out)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no results: run `ecoc reproduce table1` first, or give --results"):
        write_report(tmp_path / "empty", out)
    with pytest.raises(
        ValueError, match="has no row of Table 1 on ptb: run `ecoc reproduce table1 --corpora ptb` first"
    ):
        headline(tmp_path / "empty")
    found = saved(tmp_path, language("Full-SM", 100.0))
    with pytest.raises(ValueError, match=r"is a folder; give a file, such as .*report\.html"):
        write_report(found, tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r'^charts need matplotlib: pip install "ecoc\[report\]"$'):
        write_report(found, out)
    (found / "table1" / "ptb" / "000.json").write_text("{")
    with pytest.raises(ValueError, match=r"000\.json is no result, or damaged .*: delete it and run the row again"):
        write_report(found, out)
    assert not out.exists()


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    page_of(tmp_path, flips("BCH", [1, 1, 1, 1]))
    before = (tmp_path / "page.html").read_bytes()
    monkeypatch.setattr("ecoc.training.checkpoint.os.fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        page_of(tmp_path, flips("BCH", [1, 1, 1, 0]))
    assert (tmp_path / "page.html").read_bytes() == before and not list(tmp_path.glob("*.tmp*"))
