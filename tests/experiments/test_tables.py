"""Tables and their captions say what the results say."""

import math
from dataclasses import replace

import pytest

from ecoc.experiments.charts import charts
from ecoc.experiments.groups import groups
from ecoc.experiments.sentences import listed
from ecoc.experiments.tables import headline_table, table
from tests.experiments.made import (
    bold,
    captions,
    charts_of,
    coded,
    column,
    flips,
    language,
    page_of,
    skipped,
    spans,
    table_of,
)

pytest.importorskip("matplotlib")


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
    assert bold(found) == {("Mine-ECOC", "valid"), ("Mine-ECOC", "test")}  # most rows have the smallest decoder
    found = table_of(*full, language("NCE", 110.0), language("Uni-Sample-SM", 110.0, decoder=9), language("A", 90.0))
    assert {pair for pair in bold(found) if pair[1] == "decoder parameters"} == {
        ("Uni-Sample-SM", "decoder parameters")
    }
    found = table_of(*full, *(language(name, 99.0, decoder=9) for name in "AB"), language("C", 90.0, decoder=10))
    assert {pair[0] for pair in bold(found) if pair[1] == "decoder parameters"} == {"A", "B"}
    assert not [pair for pair in bold(found) if "paper's" in pair[1]]  # of the paper's rows some may be missing here
    text = "± is the standard deviation over seeds{}: differences of less than about twice that may be chance{}."
    rough = ", and of two seeds it is itself a rough guess"
    assert text.format(", which rows of one seed have none of", rough) in found.caption
    assert text.format("", rough) in table_of(*full, skipped("NCE")).caption
    assert text.format("", "") in table_of(*full, language("Full-SM", 100.0, seed=3)).caption


def test_all_seeds_count_but_for_cpu_seconds():
    """Those are compared within the first seed, as others may have been run on another machine."""
    seeds = ((1, 97.0, 3000.0), (2, 100.0, 1500.0), (3, 103.0, 1400.0))
    full = [language("Full-SM", test, seed=seed, seconds=seconds) for seed, test, seconds in seeds]
    found = table_of(*full, language("Uni-ECOC", 90.0, seconds=600.0), language("NCE", 80.0, seed=2, seconds=1.0))
    assert column(found, "test") == ["100.00 ± 3.00", "80.00", "90.00"] and column(found, "seeds") == ["3", "1", "1"]
    assert column(found, "CPU seconds") == ["3,000", "", "600"]
    assert "CPU seconds are of seed 1 alone, as others may have run elsewhere." in found.caption
    other = table_of(language("Full-SM", 100.0), language("NCE", 80.0, seed=2)).caption
    assert "One seed: small differences may be chance. CPU seconds are of seed 1 alone" in other and "±" not in other
    assert "alone" not in table_of(language("Full-SM", 100.0)).caption
    (group,) = groups([*full, language("Uni-ECOC", 100.0, seconds=600.0)], "table1")
    assert column(headline_table(group), "CPU seconds, Full-SM = 1") == ["1.00", "0.20"]
    assert "0 of 1 rows are above Full-SM (100.00)" in headline_table(group).caption  # as good is not worse


def test_captions_say_which_epoch_was_best_and_where_validation_costs_much():
    rows = [language("Full-SM", 100.0), language("NCE", 90.0), language("Uni-ECOC", 95.0)]
    rows[1].curve[-1]["valid_perplexity"] = {"normalised": 1000.0}
    rows[2].cost["validation_cpu_seconds"] = 300.0
    caption = table_of(*rows).caption
    assert "the epoch with the best validation perplexity of 4 (the last but for NCE). One seed" in caption
    assert "without the making of a code; validation takes 30% for Uni-ECOC." in caption
    plain = table_of(rows[0]).caption
    assert "best validation perplexity of 4. One seed" in plain and "without the making of a code." in plain


def test_seeds_that_chose_different_learning_rates_show_both():
    rows = [language("Full-SM", 100.0, seed=seed, options={"lr": rate}) for seed, rate in ((1, 0.004), (2, 0.002))]
    assert column(table_of(*rows), "learning rate") == ["0.002, 0.004"]


def test_without_a_second_seed_there_is_no_spread():
    found = table_of(language("Full-SM", 100.0))
    assert column(found, "test") == ["100.00"] and "seeds" not in found.columns and "±" not in found.caption
    assert "One seed: small differences may be chance." in found.caption
    assert not found.best and "Bold" not in found.caption


def test_only_the_papers_budget_compares_with_the_paper():
    small = table_of(language("Full-SM", 100.0, paper={"test": 79.24}))
    assert "test - paper's †" in small.columns and "† The paper's values do not compare" in small.caption
    assert "here are fewer epochs" in small.caption and "perplexity of 4. One seed" in small.caption
    mixed = table_of(language("Full-SM", 100.0), language("NCE", 90.0, epochs=3))
    assert "perplexity of at most 4. One seed" in mixed.caption
    paper = table_of(language("Full-SM", 80.0, paper={"test": 79.24}, budget="paper"))
    assert column(paper, "test - paper's") == ["+0.76"] and "compare" not in paper.caption


def test_frequent_and_rare_words_are_compared_with_the_full_softmax():
    def by_band(frequent, rare):
        bands = {"1-100": {"tokens": 9, "perplexity": frequent}, "101-500": {"tokens": 3, "perplexity": rare}}
        return {"perplexity": {"normalised": 100.0}, "perplexity_by_band": bands}

    scores = {"Full-SM": (15.0, 900.0), "NCE": (14.0, 800.0), "Mine-ECOC": (16.0, 700.0), "Other-ECOC": (15.0, 950.0)}
    rows = [language(name, 100.0, test=by_band(*values), note="said in Table 1") for name, values in scores.items()]
    (group,) = groups([*rows, skipped("Slow-SM"), replace(rows[0], study="ablation")], "bands")
    found = table(group, group.row("Full-SM"))
    assert found.columns == ["row", "words 1-100", "words 101-500"] and not found.notes
    assert column(found, "words 101-500") == ["900.00", "800.00", "700.00", "950.00"]
    assert bold(found) == {("NCE", "words 1-100")}  # among 500 words one guesses better than 700
    assert "To guess among all words alike is a perplexity of 500;" in found.caption
    assert "Rows better than Full-SM: 1 of 3 for words 1-100 and 2 of 3 for words 101-500." in found.caption
    assert "better" not in table(group, None).caption


def test_other_modes_are_shown_where_a_row_has_them():
    found = table_of(language("Full-SM", 100.0), spans("Uni-ECOC", 200.0))
    assert column(found, "test (paper)") == ["", "300.00"] and column(found, "test (span-mass)") == ["", "200.00"]
    found = table_of(*(replace(row, paper={"test": 80.0}) for row in (language("NCE", 90.0), spans("Uni-ECOC", 200.0))))
    assert column(found, "test - paper's †") == ["+10.00", "+220.00"] and "in that one" in found.caption
    assert "test (paper)" not in table_of(language("Full-SM", 100.0)).columns


def test_the_headline_says_what_the_papers_mode_gives_and_how_long_codes_are():
    rows = [language("Full-SM", 100.0), replace(spans("Uni-ECOC", 200.0), options={"head": "ecoc", "bits": 40})]
    (group,) = groups(rows, "table1")
    found = headline_table(group)
    assert "In the paper's own mode, the best codeword alone: Uni-ECOC 300.00." in found.caption
    assert column(found, "bits") == column(table_of(*rows), "bits") == ["", "40"]
    assert "mode" not in headline_table(groups(rows[:1], "table1")[0]).caption


def test_a_row_that_was_not_run_has_its_reason():
    assert table_of(skipped("NCE")).notes == ["NCE: not run: 54,321 CPU seconds an epoch"]
    run = table_of(skipped("NCE", seed=1), language("NCE", 100.0, seed=2))
    assert column(run, "row") == ["NCE"] and not run.notes


def test_learning_rates_of_another_corpus_are_told():
    rows = [language("Full-SM", 100.0, corpus="wikitext-2", tuned="Full-SM on ptb")]
    assert "Learning rates are those that ptb chose." in table_of(*rows).caption
    assert "Learning rates" not in table_of(replace(rows[0], tuned="Full-SM on wikitext-2")).caption


def test_the_same_note_is_said_once():
    rows = [spans(name, 200.0) for name in ("Random-ECOC", "Uni-ECOC")]
    assert table_of(*rows).notes == ["Random-ECOC and Uni-ECOC: spans of codewords"]


def test_the_caption_counts_who_loses_against_the_full_softmax():
    rows = [language(*one) for one in (("NCE", 110.0), ("Uni-ECOC", 105.0), ("Mine-ECOC", 95.0), ("Tied-SM", 90.0))]
    assert (
        "2 of 4 rows are above Full-SM (100.00) in test perplexity, which is worse; of 2 with error-correcting codes "
        "1: Uni-ECOC. The best row without a code is Tied-SM (90.00); 2 of 2 with one are worse. "
        "Lowest: Tied-SM, 90.00." in table_of(language("Full-SM", 100.0), *rows).caption
    )
    assert (
        "1 of 4 rows is above Full-SM (106.00) in test perplexity, which is worse; of 2 with error-correcting codes 0. "
        "The best row without a code is Tied-SM" in table_of(language("Full-SM", 106.0), *rows).caption
    )
    assert "best row" not in table_of(language("Full-SM", 80.0), *rows).caption  # Full-SM is that itself
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
    cost, _, curves = charts_of(*rows)
    assert [line.name for line in cost.lines] == [line.name for line in curves.lines] == ["Full-SM"]
    assert "Not drawn, above 150: NCE (1.0e+304)." in cost.caption
    assert "Not drawn, above 315: NCE (1.1e+304)." in curves.caption


def test_table_2_is_in_percent_and_says_what_does_not_compare():
    rows = [captions("DLVMS-ECOC", 0.5), captions("Full-SM", 0.6), captions("SS-SM", 0.55)]
    found = table_of(*rows)
    assert column(found, "row") == ["Full-SM", "SS-SM", "DLVMS-ECOC"]
    assert column(found, "BLEU-1") == ["60.00", "55.00", "50.00"]
    assert column(found, "CIDEr") == ["0.800", "0.650", "0.500"]
    seeds = table_of(captions("SS-SM", 0.55), captions("SS-SM", 0.57, seed=2))
    assert column(seeds, "BLEU-1") == ["56.00 ± 1.41"]
    assert column(found, "perplexity") == ["12.00"] * 3 and column(found, "epochs") == ["4"] * 3
    assert column(found, "METEOR") == ["20.00"] * 3 and column(found, "paper's METEOR †") == ["52.70 (-32.70)"] * 3
    assert "2 of 2 rows are below Full-SM (0.800) in CIDEr" in found.caption and "codes 1: DLVMS-ECOC" in found.caption
    assert "† not comparable: fewer epochs here." in found.caption
    some = [replace(row, test=row.test | {"images": 4407}) for row in rows]
    assert "† not comparable: fewer epochs here and 4,407 of 5,000 test images." in table_of(*some).caption
    some = [replace(row, curve=[{"step": 629} | one for one in row.curve]) for row in some]
    some = [replace(row, options=row.options | {"batch": 100}) for row in some]
    long = [replace(row, budget="paper") for row in some]
    said = "† not comparable: about 62,900 of 567,000 captions to train with and 4,407 of 5,000 test images."
    assert said in table_of(*long).caption
    assert "paper's METEOR" in table_of(*(replace(row, budget="paper") for row in rows)).columns
    assert "The paper's METEOR is 2.6 times that of METEOR 1.5 here, its BLEU-4 1.3 times." in found.caption
    without = [replace(row, test={name: value for name, value in row.test.items() if name != "meteor"}) for row in rows]
    assert "METEOR" not in table_of(*without).columns and "1.5" not in table_of(*without).caption


def test_the_ablation_says_which_choice_is_best_with_all_else_equal():
    rows = [coded("ablation", kind, bits, test) for kind, bits, test in (("bch", 128, 120), ("semantic", 128, 110))]
    rows += [coded("ablation", "semantic", 512, 100), coded("ablation", "semantic", 512, 105, objective="bits")]
    rows += [coded("ablation", "semantic", 512, 99, predictor_layers=2)]
    caption = table_of(*rows).caption
    assert "Best codebook of bch and semantic, all else equal: semantic (1 of 1). Best" in caption
    assert "One learning rate for all, 0.004, which may suit some better." in caption
    assert "Best bits of 128 and 512, all else equal: 512 (1 of 1)." in caption and "mixture" not in caption
    assert "Best objective of bits and likelihood, all else equal: likelihood (1 of 1)." in caption
    assert "Best predictor layers of 1 and 2, all else equal: 2 (1 of 1)." in caption
    rows[2] = coded("ablation", "semantic", 512, 106)
    assert "all else equal: bits (1 of 1)." in table_of(*rows).caption
    assert column(table_of(*rows), "objective") == ["likelihood", "likelihood", "likelihood", "likelihood", "bits"]


def test_a_code_that_differs_in_two_ways_wins_nothing():
    rows = [coded("figure2", kind, 40, test) for kind, test in (("random", 300), ("semantic", 200))]
    rows.append(coded("figure2", "span-unigram", 40, 50, objective="span-mass"))
    caption = table_of(language("Full-SM", 100.0, study="figure2", options={"head": "softmax"}), *rows).caption
    assert "Best codebook of random and semantic, all else equal: semantic (1 of 1)." in caption
    assert "Not compared so, as more than that is different: span-unigram." in caption
    assert (
        "Perplexity normalised over all words, after the epoch with the best validation perplexity of 4. One seed"
        in caption
    )
    rows.append(coded("figure2", "span-embedding", 40, 60, objective="span-mass"))
    caption = table_of(*rows).caption  # orders of spans differ in widths as well
    assert "Not compared so, as more than that is different: span-embedding and span-unigram." in caption
    rows = [coded("figure2", "semantic", 40, 200), coded("figure2", "random", 40, 300, objective="likelihood")]
    assert "Best codebook of random and semantic" in table_of(*rows).caption  # the same objective, said or not


def test_codes_of_other_vectors_are_other_codes():
    rows = [coded("ablation", "semantic", 512, 100, vectors=name) for name in ("contexts", "glove")]
    found, (chart,) = table_of(*rows), charts_of(*rows)
    said = "all else equal: semantic contexts (1 of 1) and semantic glove (1 of 1)."  # as good
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
    assert listed([*"abcdefghijklmn"]) == "a, b, c, d, e, f, g, h, i, j, k, l and 2 more"
