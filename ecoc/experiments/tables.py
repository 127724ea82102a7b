"""Tables of results: means over seeds, and differences from the paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from ecoc.experiments.groups import DEFAULTS, FACTORS, FULL, TEST, TIMED, VALID, Group, Runs
from ecoc.experiments.sentences import (
    against,
    better_by_band,
    conditions,
    effect,
    listed,
    not_comparable,
    seeds,
    shown,
    times,
)

_CAPTION_SCORES = {f"bleu{n}": f"BLEU-{n}" for n in range(1, 5)} | {"rouge_l": "ROUGE-L", "meteor": "METEOR"}
_PAPER_MODE = "test.perplexity.paper"


@dataclass(frozen=True)
class Column:
    """Which number of a row is shown, and how; a mean over seeds.

    Attributes:
        title, path, form, scale: What it is, where it is found, how it is written, times what.
        best: ``min`` or ``max``, if one wins.
        spread: Whether the deviation over seeds is shown.
        each: Whether all values are shown instead of a mean.
        rather: Path of what is shown instead where a row has it.
        minus: Path of what is taken away.
        beside: Path of a share whose difference from this percentage is shown behind it.
        default: What is shown for a code that has nothing there.
        seed: Whose value alone is shown; by default all count.
    """

    title: str
    path: str
    form: str = ",.2f"
    best: Callable[..., Any] | None = None
    spread: bool = False
    scale: float = 1.0
    each: bool = False
    rather: str = ""
    minus: str = ""
    beside: str = ""
    default: str = ""
    seed: int | None = None

    def cell(self, row: Runs) -> str:
        """The number as text; a word as it is."""
        word = row.first(self.path)
        values = (self.rather and row.values(self.rather)) or row.values(self.path, self.seed)
        taken = row.mean(self.minus) if self.minus else 0.0
        if not values or taken is None:
            return word if isinstance(word, str) else self.default if row.coded else ""
        if self.each:
            return ", ".join(shown(value, self.form) for value in sorted(set(values)))
        text = shown(self.scale * (fmean(values) - taken), self.form)
        if self.beside and (ours := row.mean(self.beside)) is not None:
            text += f" ({100 * ours - fmean(values):+.2f})"
        if self.spread and len(values) > 1:
            text += f" ± {shown(self.scale * stdev(values), self.form)}"
        return text


@dataclass(frozen=True)
class Table:
    """Texts as they are read; `best` has the places (row, column) of winners, `notes` what to know of single rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: set[tuple[int, int]]
    caption: str
    notes: Sequence[str]


def table(group: Group, full: Runs | None) -> Table:
    """The table of a group; `full` is the full softmax on the same corpus within the same budget, if it was run."""
    builders = {"table1": _table1, "table2": _table2, "flips": _flips, "bands": _bands}
    return builders.get(group.study, _codes)(group, full)


def headline_table(group: Group) -> Table:
    """What the README shows of Table 1."""
    full = group.row(FULL)
    columns = [Column("test perplexity", TEST, best=min, spread=True), Column("paper's", "paper.test")]
    columns += [_BITS, _DECODER, _PARAMETERS, _DISK]
    if full and (seconds := full.mean("cost.cpu_seconds", TIMED)):
        columns.append(replace(_SECONDS, title=f"CPU seconds, {FULL} = 1", form=",.2f", scale=1 / seconds))
    return _table(group, columns, conditions(group), _in_modes(group), against(group, full, TEST, "test perplexity"))


_PERPLEXITIES = (Column("valid", VALID, best=min, spread=True), Column("test", TEST, best=min, spread=True))
_BITS = Column("bits", "options.bits", ",.0f")
_DECODER = Column("decoder parameters", "sizes.decoder_parameters", ",.0f", min)
_PARAMETERS = Column("all parameters", "sizes.parameters", ",.0f", min)
_DISK = Column("MB on disk", "sizes.bytes", ",.1f", min, scale=1e-6)
_SECONDS = Column("CPU seconds", "cost.cpu_seconds", ",.0f", seed=TIMED)  # too noisy for a winner
_COSTS = (
    *(_DECODER, _PARAMETERS, _DISK, _SECONDS),
    Column("peak MB", "cost.peak_memory_bytes", ",.0f", min, scale=1e-6),
    Column("epochs", "cost.epochs", ",.0f"),
    Column("learning rate", "options.lr", "g", each=True),
)


def _table1(group: Group, full: Runs | None) -> Table:
    modes = dict.fromkeys(mode for row in group.rows for mode in row.first("test.perplexity") or ())
    mark = "" if group.budget == "paper" else " †"
    columns = [
        *_PERPLEXITIES,
        Column("paper's valid", "paper.valid"),
        Column("paper's test", "paper.test"),
        Column(f"test - paper's{mark}", TEST, "+,.2f", rather=_PAPER_MODE, minus="paper.test"),
    ]
    for mode in modes:
        if mode != "normalised":
            columns.append(Column(f"test ({mode})", f"test.perplexity.{mode}", best=min, spread=True))
    columns += (_BITS, *_COSTS)
    text = "Rows with the mode paper are compared with the paper in that one." if "paper" in modes else ""
    return _table(group, columns, conditions(group, mark), text, against(group, full, TEST, "test perplexity"))


def _in_modes(group: Group) -> str:
    """Values in the paper's way of counting, for rows that the paper counts so."""
    values = [f"{row.name} {shown(value)}" for row in group.rows if (value := row.mean(_PAPER_MODE)) is not None]
    return f"In the paper's own mode, the best codeword alone: {listed(values)}." if values else ""


def _table2(group: Group, full: Runs | None) -> Table:
    fewer = not_comparable(group)
    mark = " †" if fewer else ""
    columns = [
        *[Column(name, f"test.{key}", best=max, spread=True, scale=100) for key, name in _CAPTION_SCORES.items()],
        Column("CIDEr", "test.cider", ",.3f", max, spread=True),
        *[
            Column(f"paper's {name}{mark}", f"paper.{key}", beside=f"test.{key}")
            for key, name in _CAPTION_SCORES.items()
        ],
        Column("perplexity", TEST, best=min, spread=True),
        *_COSTS,
    ]
    text = "BLEU, ROUGE-L and METEOR are times 100, perplexity is normalised. In brackets: ours - the paper's."
    if fewer:
        text += f" † not comparable: {listed(fewer)}."
    meteor, bleu = (times(group.rows, f"paper.{key}", f"test.{key}") for key in ("meteor", "bleu4"))
    if meteor and bleu:
        text += f" The paper's METEOR is {meteor:.1f} times that of METEOR 1.5 here, its BLEU-4 {bleu:.1f} times."
    order = against(group, full, "test.cider", "CIDEr", lower=False, form=",.3f")
    return _table(group, columns, order, seeds(group), text)


def _codes(group: Group, full: Runs | None) -> Table:
    """Figure 2 and the ablation: what the code is, what it gives, what it costs."""
    columns = [*_PERPLEXITIES]
    for name in FACTORS:
        path = f"options.{name}"
        default = DEFAULTS.get(name, "") if any(row.first(path) for row in group.rows) else ""
        columns.append(Column(name.replace("_", " "), path, ",.0f", default=default))
    columns += [_DECODER, _SECONDS]
    effects = [effect(group, name) for name in FACTORS if name != "vectors"]
    rates = {rate for row in group.rows for rate in row.values("options.lr")}
    one = f"One learning rate for all, {rates.pop():g}, which may suit some better." if len(rates) == 1 else ""
    order = against(group, full, TEST, "test perplexity")
    return _table(group, columns, conditions(group), order, *effects, one)


def _bands(group: Group, full: Runs | None) -> Table:
    """Test perplexity of frequent words and of rare ones."""
    bands = list(dict.fromkeys(band for row in group.rows for band in row.first("test.perplexity_by_band") or ()))
    paths = {band: f"test.perplexity_by_band.{band}.perplexity" for band in bands}
    columns = [Column(f"words {band}", path, best=min, spread=True) for band, path in paths.items()]
    words = float(bands[-1].rpartition("-")[2])
    text = (
        "Test perplexity (normalised) of words by their rank in the training text, 1 the most frequent. To guess among "
        f"all words alike is a perplexity of {words:,.0f}; what is above that is worse, and never bold."
    )
    found = _table(group, columns, text, better_by_band(group, full, paths), seeds(group))
    means = [[row.mean(path) or 0.0 for path in paths.values()] for row in group.rows]
    best = {(i, j) for i, j in found.best if means[i][j - 1] < words}
    return replace(found, best=best, notes=())  # notes stand beside Table 1


def _flips(group: Group, _: Runs | None) -> Table:
    shares = group.rows[0].first("extra.flips")
    columns = [_BITS, Column("minimum distance", "extra.minimum_distance", ",.0f", max)]
    for key, title in (("accuracy", "right"), ("recovered", "survive")):
        for i, share in enumerate(shares):
            columns.append(Column(f"{title}, {share:.0%}", f"extra.{key}.{i}", ".1%", max, spread=True))
    tokens = min((count for row in group.rows for count in row.values("extra.tokens")), default=0.0)
    text = (
        f"By share of bits flipped: how many of {tokens:,.0f} words are right, and how many codewords survive by "
        "themselves. A word of a model is read from its flipped bits: of spans, the word that owns them; of other "
        "codewords, the most probable one, by how sure each bit is and how frequent words are."
    )
    return _table(group, columns, text, seeds(group))


def _table(group: Group, columns: Sequence[Column], *sentences: str) -> Table:
    """Cells of all columns that have any, the best of each, notes of rows."""
    columns = [column for column in columns if any(column.cell(row) for row in group.rows)]
    rows = [[f"{row.name} (not run)" if row.skipped else row.name] for row in group.rows]
    best = set()
    for j, column in enumerate(columns, start=1):
        for line, row in zip(rows, group.rows, strict=True):
            line.append(column.cell(row))
        means = {i: mean for i, row in enumerate(group.rows) if (mean := row.mean(column.path)) is not None}
        texts = {i: shown(column.scale * mean, column.form) for i, mean in means.items()}
        if column.best and texts:
            winner = texts[column.best(means, key=means.__getitem__)]
            winners = {(i, j) for i, text in texts.items() if text == winner}
            best |= winners if 2 * len(winners) <= len(texts) else set()  # what most rows reach is no win
    titles = ["row", *(column.title for column in columns)]
    if any(len(row.results) > 1 for row in group.rows):
        titles.append("seeds")
        for line, row in zip(rows, group.rows, strict=True):
            line.append("" if row.skipped else str(len(row.results)))
    notes: dict[str, list[str]] = {}
    for row in group.rows:
        for note in filter(None, (f"not run: {row.skipped}" if row.skipped else "", row.results[0].note)):
            notes.setdefault(note, []).append(row.name)
    caption = " ".join(filter(None, [*sentences, "Bold is best." if best else ""]))
    said = [f"{listed(names)}: {note}" for note, names in notes.items()]
    return Table(f"{group.corpus}, budget {group.budget}", titles, rows, best, caption, said)
