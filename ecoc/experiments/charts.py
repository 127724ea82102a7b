"""Charts of results: which points and lines, and captions computed from them."""

import math

from ecoc.experiments.drawing import LOOKS, Chart, Line, look_of
from ecoc.experiments.groups import FULL, TEST, TIMED, Group, Runs
from ecoc.experiments.sentences import listed, shown, unequal

_FORMS = {"mixture": "x{}", "predictor_layers": "{} layers"}  # of what makes a code, in its name
_DIVERGED = 1e6  # perplexity: worse than guessing among the words of any corpus here
# times the perplexity of the full softmax, or the lowest: rows beyond would press all others together
_SPAN, _NEAR = 3, 1.5  # of curves, which start high, and of points
_AXES = (  # of points: what is on the axis, its path, of which seed, its unit, how a row with less of it is called
    ("CPU seconds", "cost.cpu_seconds", TIMED, 1.0, "cheaper"),
    ("MB on disk", "sizes.bytes", None, 1e-6, "smaller"),
)


def charts(group: Group, full: Runs | None) -> list[Chart]:
    """The charts of a group that have something to show; `full` as for its table."""
    if group.study == "table1":
        found = [_points(group, *axis) for axis in _AXES] + [_curves(group)]
    elif group.study == "table2":
        found = [_curves(group)]
    elif group.study == "figure2":
        found = [_codes(group, full, "sizes.decoder_parameters", "decoder parameters")]
    elif group.study == "ablation":
        found = [_codes(group, full, "options.bits", "bits")]
    else:
        keys = {"accuracy": "Right words of the model", "recovered": "Codewords that survive"}
        found = [_flips(group, *one) for one in keys.items()] if group.study == "flips" else []
    return [chart for chart in found if chart.lines]


def _points(group: Group, what: str, path: str, seed: int | None, unit: float, less: str) -> Chart:
    """A point a row; its caption names the rows that no other beats, and the codes that another does."""
    found = {row.name: (unit * (row.mean(path, seed) or 0.0), row.mean(TEST) or math.inf) for row in group.rows}
    limit = _limit({name: y for name, (_, y) in found.items()}, _NEAR)
    points = {name: (x, y) for name, (x, y) in found.items() if x and y <= limit and y < math.inf}
    coded = {row.name for row in group.rows if row.coded}
    kinds = {name: 0 if name == FULL else 1 if name in coded else 2 for name in points}
    lines = [Line(name, [point], look_of(kinds[name])) for name, point in points.items()]

    def beaten_by(name: str) -> list[str]:
        x, y = points[name]
        return [other for other, (a, b) in points.items() if a < x and b < y]

    front, lost = ([name for name in points if bool(beaten_by(name)) is is_beaten] for is_beaten in (False, True))
    caption = f"Down and left is better. No row is both {less} and better than {'any of ' * (len(front) > 1)}"
    caption += f"{listed(front)}."
    if FULL in lost:
        caption += f" {FULL} is beaten in both by {listed(beaten_by(FULL))}."
    if codes := [name for name in lost if name in coded]:
        caption += f" Error-correcting codes that another row beats in both: {listed(codes)}."
    caption += _undrawn({name: y for name, (_, y) in found.items() if limit < y < math.inf}, limit)
    others = [row.name for row in group.rows if row.values(path) and not row.values(path, seed)]
    if others := [name for name in others if found[name][1] <= limit]:
        caption += f" Not drawn, run with another seed alone: {listed(others)}."
    return Chart(f"Perplexity and {what}", lines, what, "test perplexity", caption)


def _curves(group: Group) -> Chart:
    """A line a row; those that get lowest have colours."""
    found = {}
    for row in group.rows:
        records = [record for run in row.results if run.seed == TIMED for record in run.curve]
        pairs = [(one["cpu_seconds"], one["valid_perplexity"].get("normalised", math.inf)) for one in records]
        if pairs := [(x, y) for x, y in pairs if y < math.inf]:
            found[row.name] = pairs
    lowest = {name: min(y for _, y in pairs) for name, pairs in found.items()}
    limit = _limit(lowest, _SPAN)
    curves = {name: points for name, pairs in found.items() if (points := [one for one in pairs if one[1] <= limit])}
    ranked = sorted(curves, key=lambda name: (name != FULL, lowest[name]))
    first = 0 if FULL in curves else 1
    lines = [Line(name, points, look_of(first + ranked.index(name))) for name, points in curves.items()]
    caption = f"Validation at the end of each epoch, of seed {TIMED}."
    if any(line.look == Line.look for line in lines):
        caption += " The rows that get lowest have colours."
    if FULL in curves:
        seconds, level = min(curves[FULL], key=lambda point: point[1])
        times = {name: next((x for x, y in curves[name] if y <= level), None) for name in ranked if name != FULL}
        early = [f"{name} ({time / seconds:.0%})" for name, time in times.items() if time is not None]
        never = [row.name for row in group.rows if row.coded and row.name in found and times.get(row.name) is None]
        caption += f" {FULL} gets to {shown(level)} after {seconds:,.0f} CPU seconds; "
        caption += f"others get there after a share of these: {listed(early)}." if early else "no other row gets there."
        if never:
            caption += f" Error-correcting codes that never do: {listed(never)}."
    caption += _undrawn({name: lowest[name] for name in found if name not in curves}, limit)
    return Chart("Training curves", lines, "CPU seconds", "validation perplexity", caption)


def _codes(group: Group, full: Runs | None, path: str, x_label: str) -> Chart:
    """A line a kind of code, from short to long."""
    kinds: dict[str, list[tuple[float, float, str]]] = {}
    for row in group.rows:
        x, perplexity = row.mean(path), row.mean(TEST)
        if x and row.bits and perplexity and perplexity < _DIVERGED:
            code = {key: value for key, value in group.code(row).items() if value is not None and key != "bits"}
            name = "/".join(_FORMS.get(key, "{}").format(value) for key, value in code.items())
            kinds.setdefault(name, []).append((x, perplexity, f"{row.bits:.0f}"))
    lines, ends, labelled = list[Line](), [], set[tuple[float, str]]()
    for name, points in sorted(kinds.items(), key=lambda kind: min(y for _, y, _ in kind[1])):
        points.sort()
        labels = [bits * ((x, bits) not in labelled and path != "options.bits") for x, _, bits in points]
        labelled |= {(x, bits) for x, _, bits in points}
        lines.append(Line(name, [(x, y) for x, y, _ in points], look_of(len(lines) + 1), labels))
        (_, first, short), (_, last, long) = points[0], points[-1]
        rest = f" to {shown(last)} with {long}" if len(points) > 1 else ""
        ends.append(f"{name} {shown(first)} with {short} bits{rest}")
    caption = f"Shortest and longest code of each kind: {listed(ends)}."
    if lines and full and (level := full.mean(TEST)) and level < _DIVERGED:
        caption += f" {FULL} has {shown(level)}"
        if size := full.mean("sizes.decoder_parameters"):
            caption += f" with {size:,.0f} decoder parameters"
        under = [f"{name} with {bits} bits" for name, points in kinds.items() for _, y, bits in points if y <= level]
        caption += f"; as low: {listed(under)}. " if under else "; no code here gets as low. "
        caption += unequal(group, full)
        lines.insert(0, Line(FULL, [(full.mean(path) or math.nan, level)], LOOKS[0], level=True))
    caption += _undrawn({row.name: y for row in group.rows if (y := row.mean(TEST) or 0.0) >= _DIVERGED}, _DIVERGED)
    return Chart(f"Perplexity and {x_label}", lines, x_label, "test perplexity", caption, log_x=True)


def _limit(perplexities: dict[str, float], span: float) -> float:
    lowest = min(perplexities.values(), default=0.0)
    full = perplexities.get(FULL, lowest)
    return span * (full if full < _DIVERGED else lowest)


def _undrawn(rows: dict[str, float], limit: float) -> str:
    values = [f"{name} ({shown(value)})" for name, value in rows.items()]
    return f" Not drawn, above {limit:,.0f}: {listed(values)}." if values else ""


def _flips(group: Group, key: str, title: str) -> Chart:
    """A line a code; its caption compares with codewords that no flip has hit."""
    curves, lost = {}, []
    for row in group.rows:
        means = [(share, row.mean(f"extra.{key}.{i}")) for i, share in enumerate(row.first("extra.flips") or ())]
        points = [(share, mean) for share, mean in means if mean is not None]
        if len(points) > 1:
            curves[row.name] = points
            share, kept = next((one for one in points if one[0] > 0), points[-1])
            lost += [row.name] * bool(row.bits and kept <= points[0][1] * (1 - share) ** row.bits)
    if not curves:
        return Chart(title, [], "", "", "")
    ranked = sorted(curves, key=lambda name: -curves[name][-1][1])
    same: dict[tuple[float, ...], list[str]] = {}  # as far as can be seen
    for name in ranked:
        same.setdefault(tuple(round(y, 3) for _, y in curves[name]), []).append(name)
    lines = [
        Line(listed(names), curves[names[0]], look_of(number)) for number, names in enumerate(same.values(), start=1)
    ]
    ends = {name: f"{name} {curves[name][0][1]:.1%} to {curves[name][-1][1]:.1%}" for name in ranked}
    half = {name: max(x for x, y in points if 2 * y >= points[0][1]) for name, points in curves.items()}
    best, worst = ([name for name in ranked if half[name] == one] for one in (max(half.values()), min(half.values())))
    caption = f"From no flips to {curves[ranked[0]][-1][0]:.0%} of the bits: {listed([*ends.values()])}. "
    caption += "Half of what is right without flips is kept up to "
    caption += f"{half[best[0]]:.0%} at best ({listed(best)})"
    caption += f", {half[worst[0]]:.0%} at worst ({listed(worst)})." if best != worst else "."
    if lost:
        caption += f" No better than if a single flip were fatal: {listed(lost)}."
    return Chart(title, lines, "bits flipped", "share of words", caption, percent=True)
