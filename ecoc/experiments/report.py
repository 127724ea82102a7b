"""All results as one HTML page, as Markdown tables, and as the table in the README.

>>> write_report(Path("results"), Path("report.html"), Path("docs/results"))
>>> update_readme(Path("README.md"), Path("results"))
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ecoc.codes.vectors import progress_bar
from ecoc.data.pictures import pictures_by_id
from ecoc.experiments.charts import charts
from ecoc.experiments.groups import FULL, Group, Runs, groups
from ecoc.experiments.results import Result, read_results
from ecoc.experiments.rows import read_study
from ecoc.experiments.sentences import shown
from ecoc.experiments.tables import Table, headline_table, table
from ecoc.gallery import picture_tag
from ecoc.training.checkpoint import written_whole

MARKS = ("<!-- experiments.report -->", "<!-- /experiments.report -->")
_STUDIES = {
    "table1": "Table 1: language models",
    "bands": "Frequent and rare words",
    "table2": "Table 2: captions",
    "figure2": "Figure 2: the length of codes",
    "ablation": "What makes a code good",
    "flips": "Does error correction correct?",
}
_COMMANDS = {"bands": "table1", "flips": "ablation"}  # studies that another one brings along
_INTRO = (
    "Models that predict a word as an error-correcting codeword (rows with ECOC) in place of a softmax over all words "
    "(SM), next to those softmaxes and their approximations: the tables and the figure of <i>Error-Correcting Neural "
    "Sequence Prediction</i>, run again, and what we added. All rows of a table have the same LSTM. The budget "
    "<i>small</i> is a few epochs on two CPU cores, <i>paper</i> is the paper's 40. A lower perplexity is better, "
    "and a higher BLEU, ROUGE-L, METEOR or CIDEr."
)
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>ecoc: results</title>
<style>
:root { color-scheme: light dark; --page: #f4f4f1; --card: #fff; --well: #e9e9e4; --line: #dcdcd6; --text: #1c1c1a;
  --quiet: #62625c; --c1: #1c1c1a; --c2: #0072b2; --c3: #c04a00; --c4: #00805c; --c5: #b0498b; --c6: #a87400;
  --c7: #5b4bc4; --c8: #7a5a45; }
@media (prefers-color-scheme: dark) { :root { --page: #151516; --card: #202022; --well: #19191b; --line: #38383c;
  --text: #ececea; --quiet: #a3a3a0; --c1: #f4f4f1; --c2: #56b4e9; --c3: #f28e4b; --c4: #2fc99a; --c5: #e391c0;
  --c6: #e6b83c; --c7: #a79bf2; --c8: #c4a58f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 2rem clamp(1rem, 2.5vw, 2rem) 3rem; background: var(--page);
  color: var(--text); font: 1rem/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3, h4, p, ul, figure { margin: 0; padding: 0; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { margin-top: 2.5rem; font-size: 1.3rem; }
h3 { margin-top: 1.2rem; font-size: 1.1rem; }
h4 { font-size: 1rem; }
a { color: inherit; }
nav ul, .keys { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; }
nav { margin-top: 1rem; }
.note, figcaption, .notes, .keys, details, .said { color: var(--quiet); font-size: .875rem; }
.note, figcaption, .notes { max-width: 50rem; }
.note { margin-top: .4rem; }
.intro { max-width: 50rem; margin-top: .5rem; }
figure, article, details { margin-top: 1rem; padding: 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; break-inside: avoid; min-width: 0; }
figcaption { margin-top: .7rem; }
.notes { margin-top: .5rem; padding-left: 1.1rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 0 1.25rem;
  align-items: start; }
svg { display: block; width: 100%; max-width: 38rem; height: auto; margin: .5rem 0; }
.wide { overflow-x: auto; background: linear-gradient(to left, var(--card) 40%, transparent) right / 3rem 100% no-repeat
  local, linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat; } /* a shade: there is more */
table { border-collapse: collapse; font-size: .8125rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .3rem .45rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { font-weight: 400; }
thead th { vertical-align: bottom; white-space: normal; color: var(--quiet); }
thead span { white-space: nowrap; }
th:first-child { position: sticky; left: 0; padding-left: 0; background: var(--card); text-align: left; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: 0 1.25rem; }
.cards img { display: block; width: 100%; height: auto; aspect-ratio: 4 / 3; object-fit: contain;
  background: var(--well); }
dl { margin: .5rem 0; }
dt { color: var(--quiet); font-size: .8rem; }
dd { margin: 0 0 .3rem; }
.said ul, .made { padding-left: 1.1rem; }
.made li { margin-top: .4rem; }
summary { cursor: pointer; }
code { font-size: .8125rem; }
@media (max-width: 30rem) { figure, article, details { padding: .7rem; } th:first-child { min-width: 7.5rem;
  max-width: 8.5rem; white-space: normal; } }
</style>
</head>
<body>
<h1>ecoc: results</h1>
"""


def write_report(
    results: Path, out: Path, markdown: Path | None = None, images: Path | None = None, progress: bool = False
) -> None:
    """Write the page, and a Markdown file for each study that has results. Files appear only when they are complete.

    Args:
        results: Folder of results.
        out: The page, whose folder is made if missing.
        markdown: Folder of the Markdown files; none are written without it.
        images: Folder of pictures, to show beside their captions.
        progress: Show a bar.

    Raises:
        ValueError: There are no results, one is damaged, `out` is a folder, there are no pictures in `images`, or
            matplotlib or Pillow is missing.
    """
    if out.is_dir():
        raise ValueError(f"{out}: is a folder; give a file, such as {out / 'report.html'}")
    found = read_results(results)
    if not found:
        raise ValueError(f"{results} has no results: run `ecoc reproduce table1` first, or give --results")
    pictures = pictures_by_id(images) if images else {}
    with progress_bar(progress) as bar:
        studies = bar.track(list(_STUDIES), description="report")
        sections = [section for study in studies for section in _section(found, study, pictures)]
    _write(out, "".join([_HEAD, _contents(found), *sections, *_made(found), "</body>\n</html>\n"]))
    for study in _STUDIES if markdown else ():
        texts = [
            f"## {_safe(one.title)}\n\n{_markdown(one)}\n" for one in (table(*part) for part in _parts(found, study))
        ]
        if texts and markdown:
            _write(markdown / f"{study}.md", "\n".join([f"# {_STUDIES[study]}\n", *texts]))


def headline(results: Path) -> str:
    """Table 1 on PTB in Markdown, as the README has it."""
    found = [group for group in groups(read_results(results), "table1") if group.corpus == "ptb"]
    if not found:
        raise ValueError(f"{results} has no row of Table 1 on ptb: run `ecoc reproduce table1 --corpora ptb` first")
    return _markdown(headline_table(found[0]))


def update_readme(readme: Path, results: Path) -> None:
    """Replace what stands between the marks in the README by :func:`headline`."""
    text = readme.read_text(encoding="utf-8")
    before, first, rest = text.partition(MARKS[0])
    _, second, after = rest.partition(MARKS[1])
    if not first or not second:
        raise ValueError(f"{readme} has no place for the table: add the lines {MARKS[0]} and {MARKS[1]}")
    _write(readme, f"{before}{first}\n{headline(results)}\n{second}{after}")


def _parts(results: Sequence[Result], study: str) -> list[tuple[Group, Runs | None]]:
    """A study's groups, each with the full softmax of the same corpus and budget: its own, or Table 1's."""
    found = []
    for group in groups(results, study):
        peers = [group, *groups(results, "table1")]
        same = [one for one in peers if (one.corpus, one.budget) == (group.corpus, group.budget)]
        found.append((group, next((row for one in same if (row := one.row(FULL)) is not None), None)))
    return found


def _section(results: Sequence[Result], study: str, pictures: dict[str, Path]) -> Iterator[str]:
    """A study's tables and charts, or how to get them."""
    yield f'<section id="{study}">\n<h2>{_STUDIES[study]}</h2>\n'
    parts = _parts(results, study)
    if not parts:
        command = f"ecoc reproduce {_COMMANDS.get(study, study)}"
        yield f'<p class="note">No results yet: <code>{command}</code> makes them.</p>\n'
    for number, part in enumerate(parts):
        yield _figure(table(*part), _STUDIES[study])
        yield "" if study in _COMMANDS else _rows_explained(part[0])
        corpus = part[0].corpus
        drawn = [chart.html(f"{study}-{number}-{i}", corpus) for i, chart in enumerate(charts(*part))]
        yield f'<div class="charts">\n{"".join(drawn)}</div>\n' if drawn else ""
        yield from _captions(part[0], pictures)
    yield "</section>\n"


def _rows_explained(group: Group) -> str:
    """What each row is, as its config says."""
    about = {row.name: row.about for row in read_study(group.study).rows}
    lines = "".join(
        f"<dt>{escape(row.name)}</dt><dd>{escape(about[row.name])}</dd>\n" for row in group.rows if row.name in about
    )
    return f"<details>\n<summary>What the rows are</summary>\n<dl>\n{lines}</dl>\n</details>\n" if lines else ""


def _figure(content: Table, study: str) -> str:
    """A table that scrolls sideways where it is too wide, its caption, and notes on rows."""
    whole = [re.sub(r"\w+-\w+", r"<span>\g<0></span>", escape(one)) for one in content.columns]  # no break in BLEU-1
    head = "".join(f'<th scope="col">{title}</th>' for title in whole)
    body = ""
    for i, (name, *cells) in enumerate(content.rows):
        bold = [f"<b>{escape(cell)}</b>" if (i, j) in content.best else escape(cell) for j, cell in enumerate(cells, 1)]
        body += f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in bold)}</tr>\n'
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in content.notes)
    label = escape(f"{study}, {content.title}")
    return (
        f"<h3>{escape(content.title)}</h3>\n<figure>\n"
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}">\n'
        f"<table>\n<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n{body}</tbody>\n"
        f"</table>\n</div>\n<figcaption>{escape(content.caption)}</figcaption>\n"
        + (f'<ul class="notes">\n{notes}</ul>\n' if notes else "")
        + "</figure>\n"
    )


def _markdown(content: Table) -> str:
    """Table, caption and notes."""
    lines = [[_safe(title) for title in content.columns], ["---", *["---:"] * (len(content.columns) - 1)]]
    for i, row in enumerate(content.rows):
        lines.append([f"**{_safe(cell)}**" if (i, j) in content.best else _safe(cell) for j, cell in enumerate(row)])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{_safe(content.caption)}"
    return "\n".join([text, *[""][: len(content.notes)], *(f"- {_safe(note)}" for note in content.notes)])


def _safe(text: str) -> str:
    """For Markdown: a name is no mark-up."""
    return re.sub(r"([|\\`*_\[\]])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def _captions(group: Group, pictures: dict[str, Path]) -> Iterator[str]:
    """What each row says of the same images, a card an image, with its picture if there is one."""
    said: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for row in group.rows:
        for one in row.first("extra.captions") or ():
            said.setdefault(str(one["image"]), []).append((row.name, one))
    if said:
        texts = [one["caption"] for rows in said.values() for _, one in rows]
        yield f"<h3>{len(said)} images, and what each row says</h3>\n"
        yield f'<p class="note">Of {len(texts)} captions {len(set(texts))} are different.</p>\n<div class="cards">\n'
    for image, rows in said.items():
        lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(one['caption'])}</dd>\n" for name, one in rows)
        references = [*rows[0][1].get("references", ())]
        people = "".join(f"<li>{escape(text)}</li>\n" for text in references)
        yield "<article>\n"
        yield picture_tag(pictures[image], next(iter(references), "")) if image in pictures else ""
        yield f'\n<dl>\n{lines}</dl>\n<div class="said">people said\n<ul>\n{people}</ul>\nimage {escape(image)}</div>\n'
        yield "</article>\n"
    yield "</div>\n" if said else ""


def _contents(results: Sequence[Result]) -> str:
    links = {**_STUDIES, "made": "How this was made"}
    lines = "".join(f'<li><a href="#{name}">{title}</a></li>\n' for name, title in links.items())
    rows = len({(one.study, one.corpus, one.row) for one in results})
    return (
        f'<p class="intro">{_INTRO}</p>\n<p class="note">{rows} rows from {len(results)} files of results.</p>\n'
        f"<nav>\n<ul>\n{lines}</ul>\n</nav>\n"
    )


def _made(results: Sequence[Result]) -> Iterator[str]:
    """What was run: code, versions, conditions, and the command of every row."""
    facts = {
        "commit of ecoc": {commit for one in results for commit in (one.commit, one.evaluated)},
        "versions": {f"{name} {version}" for one in results for name, version in one.versions.items()},
        "outside files": {f"{name} {digest}" for one in results for name, digest in one.data.items()},
        "budget": {one.budget for one in results},
        "seed": {str(one.seed) for one in results},
        "threads": {f"{one.cost['threads']:g}" for one in results if "threads" in one.cost},
    }
    yield '<section id="made">\n<h2>How this was made</h2>\n<figure>\n<dl>\n'
    for name, values in facts.items():
        yield f"<dt>{name}</dt><dd>{escape(', '.join(sorted(filter(None, values))) or 'unknown')}</dd>\n"
    yield (
        "</dl>\n<figcaption>Compare CPU seconds within a table and a seed: other seeds may have run elsewhere. In "
        "commands, DATA, VECTORS, CAPTIONS, FEATURES and PROJECTION stand for your files, as given to "
        "<code>ecoc reproduce</code>."
        "</figcaption>\n</figure>\n"
    )
    for study, title in _STUDIES.items():
        own = [one for one in results if one.study == study]
        lines = "".join(f"<li>{_run(one)}</li>\n" for one in own)
        if own:
            yield f'<details>\n<summary>Commands of {title}</summary>\n<ul class="made">\n{lines}</ul>\n</details>\n'
    yield "</section>\n"


def _run(result: Result) -> str:
    text = (
        f"{escape(result.row)} on {escape(result.corpus)}, {escape(result.budget)}, seed {escape(str(result.seed))}: "
    )
    text += f"<code>{escape(result.command)}</code>"
    if result.tuning:
        tried = ", ".join(f"{rate}: {shown(perplexity)}" for rate, perplexity in result.tuning.items())
        whose = f" of {escape(result.tuned)}" if result.tuned else ""
        text += f" Validation perplexity{whose} after one epoch, by learning rate: {escape(tried)}."
    return text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "replace"))
