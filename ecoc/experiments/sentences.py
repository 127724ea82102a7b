"""Sentences under tables and charts, computed from the numbers: who wins, who loses, and what does not compare."""

from collections.abc import Sequence
from statistics import fmean

from ecoc.experiments.groups import DEFAULTS, FULL, TEST, TIMED, Group, Runs
from ecoc.experiments.results import Result

_NAMED = 12  # rows that a sentence names
_IMAGES, _CAPTIONS = 5_000, 567_000  # of Karpathy's splits of MSCOCO: test images, captions to train with


def conditions(group: Group, mark: str = "") -> str:
    """What perplexity it is, of which epoch and from how many seeds, and whether the paper's compare, if any."""
    most = max((epochs for row in group.rows for epochs in row.values("cost.epochs")), default=0.0)
    least = min((epochs for row in group.rows for epochs in row.values("cost.epochs")), default=0.0)
    text = "Perplexity normalised over all words, after the epoch with the best validation perplexity of "
    text += f"{'at most ' * (least < most)}{most:.0f}"
    if early := [row.name for row in group.rows if any(_best_before_the_last(run) for run in row.results)]:
        text += f" (the last but for {listed(early)})"
    text += f". {seeds(group)} CPU seconds are with validation and without the making of a code"
    if slow := [f"{share:.0%} for {row.name}" for row in group.rows if (share := _share_of_validation(row)) > 0.2]:
        text += f"; validation takes {listed(slow)}"
    text += "."
    tuned = {run.tuned.rpartition(" on ")[2] for row in group.rows for run in row.results if run.tuned}
    if elsewhere := sorted(tuned - {group.corpus}):
        text += f" Learning rates are those that {listed(elsewhere)} chose."
    if group.budget != "paper" and any(row.first("paper.test") for row in group.rows):
        text += f"{mark} The paper's values do not compare: it trained until near convergence, here are fewer epochs."
    return text


def seeds(group: Group) -> str:
    """Whether a small difference means something."""
    counts = {len(row.results) for row in group.rows if not row.skipped}
    if counts <= {1}:
        text = "One seed: small differences may be chance."
    else:
        single = ", which rows of one seed have none of" if 1 in counts else ""
        text = (
            f"± is the standard deviation over seeds{single}: differences of less than about twice that may be chance"
        )
        text += ", and of two seeds it is itself a rough guess." if 2 in counts else "."
    timed = group.study not in ("bands", "flips")
    if timed and any(run.seed != TIMED for row in group.rows for run in row.results):
        text += f" CPU seconds are of seed {TIMED} alone, as others may have run elsewhere."
    return text


def _best_before_the_last(run: Result) -> bool:
    values = [one["valid_perplexity"].get("normalised", 0.0) for one in run.curve]
    return bool(values) and min(values) < values[-1]


def _share_of_validation(row: Runs) -> float:
    whole, validation = (row.mean(f"cost.{name}", TIMED) for name in ("cpu_seconds", "validation_cpu_seconds"))
    return validation / whole if whole and validation else 0.0


def against(group: Group, full: Runs | None, path: str, what: str, lower: bool = True, form: str = ",.2f") -> str:
    """How many rows lose against the full softmax, how many codes against the best of all others, and which is best."""
    values = {row.name: value for row in group.rows if (value := row.mean(path)) is not None}
    if not values:
        return f"No row has a {what}."
    best_of = min if lower else max
    best = best_of(values, key=values.__getitem__)
    top = f"{'Lowest' if lower else 'Highest'}: {best}, {shown(values[best], form)}."
    limit = full.mean(path) if full else None
    if limit is None:
        return f"{FULL} was not run here, so no {what} is compared with it. {top}"

    def loses(name: str, limit: float) -> bool:
        return values[name] > limit if lower else values[name] < limit

    others = [row for row in group.rows if row.name in values and row.name != FULL]
    worse = [row for row in others if loses(row.name, limit)]
    coded, lost = [row.name for row in others if row.coded], [row.name for row in worse if row.coded]
    if not others:
        return top
    verb, side = "is" if len(worse) == 1 else "are", "above" if lower else "below"
    text = f"{len(worse)} of {len(others)} rows {verb} {side} {FULL} ({shown(limit, form)}) in {what}, which is worse"
    if coded and len(coded) < len(others):
        text += f"; of {len(coded)} with error-correcting codes {len(lost)}"
    text += f"{': ' if lost else ''}{listed(lost)}. "
    plain = {row.name: values[row.name] for row in others if not row.coded}
    if coded and plain and loses(FULL, limit := plain[peer := best_of(plain, key=plain.__getitem__)]):
        lost = [name for name in coded if loses(name, limit)]
        text += f"The best row without a code is {peer} ({shown(limit, form)}); {len(lost)} of {len(coded)} with one "
        text += f"{'is' if len(lost) == 1 else 'are'} worse. "
    return f"{text}{unequal(group, full)}{top}"


def better_by_band(group: Group, full: Runs | None, paths: dict[str, str]) -> str:
    """How many rows beat the full softmax on frequent words and on rare ones, by path of each band."""
    counts = []
    for band, path in paths.items():
        limit = full.mean(path) if full else None
        values = [value for row in group.rows if row.name != FULL and (value := row.mean(path)) is not None]
        if limit is not None and values:
            counts.append(f"{sum(value < limit for value in values)} of {len(values)} for words {band}")
    return f"Rows better than {FULL}: {listed(counts)}." if counts else ""


def unequal(group: Group, full: Runs | None) -> str:
    """Whether the full softmax was trained for as long as all other rows."""
    own = full.mean("cost.epochs") if full else None
    others = {epochs for row in group.rows if row.name != FULL for epochs in row.values("cost.epochs")}
    if own is None or others <= {own}:
        return ""
    return (
        f"{FULL} had {own:.0f} epochs, others {listed([f'{one:.0f}' for one in sorted(others)])}: no fair comparison. "
    )


def not_comparable(group: Group) -> list[str]:
    """Why captions here do not compare with the paper's."""
    images = min((count for row in group.rows for count in row.values("test.images")), default=0.0)
    steps, batch = group.rows[0].mean("curve.0.step") or 0.0, group.rows[0].mean("options.batch") or 0.0
    reasons = ["fewer epochs here"] * (group.budget != "paper")
    if 0 < steps * batch < 0.99 * _CAPTIONS:
        reasons.append(f"about {steps * batch:,.0f} of {_CAPTIONS:,} captions to train with")
    return reasons + [f"{images:,.0f} of {_IMAGES:,} test images"] * (0 < images < _IMAGES)


def times(rows: Sequence[Runs], theirs: str, ours: str) -> float | None:
    """How many times ours the paper's percentages are, on average."""
    pairs = [(row.mean(theirs), row.mean(ours)) for row in rows]
    found = [high / (100 * low) for high, low in pairs if high and low]
    return fmean(found) if found else None


def effect(group: Group, name: str) -> str:
    """How often each choice is best where all others are equal, and which were never compared so."""
    cases: dict[tuple[str, ...], dict[str, float]] = {}
    for row in group.rows:
        code = {key: str(value or DEFAULTS.get(key)) for key, value in group.code(row).items()}
        choice = code.pop(name)
        if choice.startswith("span-"):  # its order brings widths of its own along
            code[choice] = choice
        if row.coded and (value := row.mean(TEST)) is not None:
            cases.setdefault(tuple(code.values()), {})[choice] = value
    compared: dict[tuple[str, ...], list[dict[str, float]]] = {}  # by what was there to choose from
    for case in cases.values():
        if len(case) > 1:
            compared.setdefault(tuple(_sorted(set(case))), []).append(case)
    sentences = []
    for choices, same in compared.items():
        winners = [choice for case in same for choice, value in case.items() if value == min(case.values())]
        counts = sorted({(-winners.count(choice), choice) for choice in winners})
        parts = [f"{choice} ({-count} of {len(same)})" for count, choice in counts]
        sentences.append(f"Best {name.replace('_', ' ')} of {listed(choices)}, all else equal: {listed(parts)}.")
    left = {choice for case in cases.values() for choice in case} - {one for choices in compared for one in choices}
    if name == "codebook" and compared and left:
        sentences.append(f"Not compared so, as more than that is different: {listed(_sorted(left))}.")
    return " ".join(sentences)


def shown(value: float, form: str = ",.2f") -> str:
    """A number as it is read; what is too long for that, as a power of ten."""
    return format(value, form) if abs(value) < 1e10 else f"{value:.1e}"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``; a long list ends with how many more there are."""
    if len(names) > _NAMED:
        names = [*names[:_NAMED], f"{len(names) - _NAMED} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _sorted(choices: set[str]) -> list[str]:
    return sorted(choices, key=lambda one: (float(one) if one.isdigit() else 0.0, one))
