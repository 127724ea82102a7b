"""The page, the Markdown and the README say what the results say."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ecoc.experiments.groups import groups
from ecoc.experiments.report import MARKS, headline, update_readme, write_report
from ecoc.experiments.results import read_results
from ecoc.experiments.tables import headline_table
from tests.experiments.made import (
    COCO,
    HOSTILE,
    Page,
    captions,
    coded,
    flips,
    language,
    page_of,
    saved,
    skipped,
)

pytest.importorskip("matplotlib")


ROOT = Path(__file__).parents[2]


def test_the_page_has_all_studies_with_a_caption_under_each_figure(whole):
    page = whole[0]
    headings = ["Table 1: language models", "Frequent and rare words", "Table 2: captions"]
    headings += ["Figure 2: the length of codes"]
    headings += ["What makes a code good", "Does error correction correct?", "How this was made"]
    assert page.texts("h2") == page.texts("a") == headings
    assert [link[1:] for link in page.values("href") if link in {f"#{one}" for one in page.values("id")}][:7] == [
        *("table1", "bands", "table2", "figure2", "ablation", "flips", "made"),
    ]
    assert len(page.texts("figure")) == len(page.texts("figcaption")) == 7 + 14 + 1 and all(page.texts("figcaption"))
    assert "NCE: not run: 54,321 CPU seconds an epoch" in page.texts("li")
    assert len(page.texts("table")) == 7 and len(page.texts("div", **{"class": "wide"})) == 7
    assert "<span>BLEU-1</span>" in page.text and "thead span { white-space: nowrap; }" in page.text
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
    assert 'alt="people 2"' in cards[2]
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
    assert "Commands of Table 1: language models" in page.texts("summary")
    (line,) = [text for text in page.texts("li") if text.startswith("Full-SM on ptb, small, seed 2: ")]
    assert "ecoc train --corpus ptb" in line and "by learning rate: 0.002: 2" in line


def test_a_stranger_is_told_what_rows_are(whole):
    page = whole[0]
    said = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert said["Adaptive-SM"].startswith("Adaptive softmax: frequent") and "cross entropy" in said["Uni-ECOC"]
    assert "error-correcting codeword" in page.texts("p")[0] and "Mine-ECOC-128" not in said
    labels, corpora = page.values("aria-label"), ["ptb", "wikitext-2", "wikitext-103"]
    tables = [label for label in labels if label.startswith("Table 1")]
    assert tables == [f"Table 1: language models, {name}, budget small" for name in corpora]
    drawn = [label for label in labels if label.startswith("Training curves")]
    assert drawn == [f"Training curves, {name}" for name in [*corpora, "coco"]]


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
    assert text.count("## ") == 3 and "| **" in text and "\n\n- NCE: not run: 54,321" in text


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
    explained = Page((tmp_path / "page.html").read_text("utf-8")).texts("summary").count("What the rows are")
    own = [tmp_path / f"{study}.md" for study in ("table1", "table2", "figure2", "ablation")]  # others bring them along
    assert explained == sum(path.read_text("utf-8").count("\n## ") for path in own)


def test_what_the_readme_and_docs_say_of_the_results_is_in_them():
    tables = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "results").glob("*.md"))
    tuning = (f"{value:.2f}" for one in read_results(ROOT / "results") for value in one.tuning.values())
    known = {*re.findall(r"[\d,]+\.\d+", tables), *tuning}
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition(MARKS[1])[2].partition("\n## ")[0]
    elsewhere = {"140.70", "97.82", "172.32"}  # of a file in the history and of a command, both named there
    for text, more in ((readme, set()), ((ROOT / "docs/experiments.md").read_text(encoding="utf-8"), elsewhere)):
        numbers = set(re.findall(r"[\d,]+\.\d{2,}", text))
        assert len(numbers) > 20 and not numbers - known - more and more <= numbers


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
    assert lines[3] == "| Mine-ECOC | **90.00** |  | **1,000** | **6,001,000** | **24.0** | 0.50 | 1 |"
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
