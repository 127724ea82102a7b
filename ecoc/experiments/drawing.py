"""Charts as SVG for a page: text stays text, colours are the page's, labels keep off each other."""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import Any

import numpy as np

_SIZE, _FONT = (400, 310), 12  # small, so that text can still be read when the chart is as wide as a phone
_FRAME = (46, 44, 338, 238)  # left, bottom, width, height of the axes; half a number fits right of it
_MARKS = {"s": "■", "o": "●", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
LOOKS = [(f"c{number}", mark) for number, mark in enumerate(_MARKS, start=1)]  # the first is the full softmax's
_INKS = {name: f"#fe00{number:02x}" for number, name in enumerate(["text", "quiet", "line", *(c for c, _ in LOOKS)])}


@dataclass(frozen=True)
class Line:
    """Points that belong together, their colour and mark; `labels` stand at points, `level` goes on to both sides."""

    name: str
    points: Sequence[tuple[float, float]]
    look: tuple[str, str] = ("quiet", "o")
    labels: Sequence[str] = ()
    level: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines, what their axes mean, and what is seen."""

    title: str
    lines: Sequence[Line]
    x: str
    y: str
    caption: str
    log_x: bool = False
    percent: bool = False

    def html(self, name: str, corpus: str = "") -> str:
        """A figure with legend and caption; `name` keeps its ids apart from those of other charts."""
        keys = "".join(
            f'<li><span style="color:var(--{line.look[0]})">{_MARKS[line.look[1]]}</span> <b>{key}</b> '
            f"{escape(line.name)}</li>\n"
            for key, line in zip(_keys(self.lines), self.lines, strict=True)
        )
        label = ", ".join(filter(None, [self.title, corpus]))
        parts = [f"<h4>{escape(self.title)}</h4>", _svg(self, name, label), f'<ul class="keys">\n{keys}</ul>']
        return "\n".join(["<figure>", *parts, f"<figcaption>{escape(self.caption)}</figcaption>", "</figure>\n"])


def place(labels: Sequence[tuple[Any, str]], taken: np.ndarray) -> list[tuple[float, float, float, float]]:
    """Where labels go: a box (left, bottom, right, top) each, near its place, off the others and inside the frame.

    Args:
        labels: Place (x, y) in the drawing's units, and text.
        taken: Places ``(n, 2)`` of lines and marks, which labels avoid if they can.
    """
    left, bottom, width, height = _FRAME
    boxes: list[tuple[float, float, float, float]] = []
    for (x, y), text in labels:
        half, tall = 0.31 * _FONT * len(text) + 1, 0.5 * _FONT
        choices = list[tuple[float, int, tuple[float, float, float, float]]]()
        for distance in (5, 10, 18, 28, 40, 54, 70):
            for angle in np.linspace(0, 2 * math.pi, 16, endpoint=False):
                a, b = x + (half + distance) * math.cos(angle), y + (tall + distance) * math.sin(angle)
                box = (a - half, b - tall, a + half, b + tall)
                hit = sum(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in boxes)
                out = box[0] < left or box[2] > left + width or box[1] < bottom or box[3] > bottom + height
                covered = int(((taken > box[:2]) & (taken < box[2:])).all(1).sum())
                choices.append((1000 * (hit + out) + 20 * covered + distance, len(choices), box))
        boxes.append(min(choices)[2])
    return boxes


def _svg(chart: Chart, name: str, label: str) -> str:
    try:
        matplotlib = import_module("matplotlib")
        new_figure = import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise ValueError('charts need matplotlib: pip install "ecoc[report]"') from error
    settings = {"svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False, "font.size": _FONT}
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _INKS["text"])
    settings |= dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), _INKS["line"])
    with matplotlib.rc_context(settings):
        figure = new_figure([side / 72 for side in _SIZE], dpi=72)
        axes = figure.add_axes([part / _SIZE[i % 2] for i, part in enumerate(_FRAME)])
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        _draw(axes, chart)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _inlined(file.getvalue(), name, label)


def _draw(axes: Any, chart: Chart) -> None:
    """Lines and marks, then labels where there is room."""
    for line in chart.lines:
        ink, mark = line.look
        width, size, alpha, order = (1, 3, 0.5, 2) if ink == "quiet" else (1.7, 5, 1, 3)
        look = {"linewidth": width, "markersize": size, "alpha": alpha, "zorder": order}
        every = max(1, len(line.points) // 8)
        axes.plot(*zip(*line.points, strict=True), color=_INKS[ink], marker=mark, markevery=every, **look)
        if line.level:
            axes.axhline(line.points[0][1], color=_INKS[ink], linewidth=1, dashes=(4, 3))
    _scale(axes, chart)
    ways = [_way(axes, line) for line in chart.lines]
    taken, keys, bits = np.concatenate([way for _, way in ways]), [], []
    for number, (key, line) in enumerate(zip(_keys(chart.lines), chart.lines, strict=True)):
        places = ways[number][0]
        others = np.concatenate([[[-_FRAME[2]] * 2], *(way for other, (_, way) in enumerate(ways) if other != number)])
        gaps = np.linalg.norm(places[:, None] - others, axis=2).min(1).clip(max=2 * _FONT)
        keys.append((places[len(gaps) - 1 - gaps[::-1].argmax()], key))  # at the last place that is free
        bits += [pair for pair in zip(places, line.labels, strict=False) if pair[1]]
    units = {"xycoords": "figure pixels", "textcoords": "figure pixels", "ha": "center", "va": "center"}
    boxes = place(keys + bits, taken)
    for number, ((anchor, text), box) in enumerate(zip(keys + bits, boxes, strict=True)):
        middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        thread = {"arrowstyle": "-", "color": _INKS["quiet"], "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        style = {"color": _INKS["quiet"]}
        if number < len(keys):
            style = {"color": _INKS[chart.lines[number].look[0]], "weight": "bold"}
        far = math.dist(anchor, middle) > 2 * _FONT
        axes.annotate(text, anchor, middle, arrowprops=thread if far else None, **units, **style)


def _way(axes: Any, line: Line) -> tuple[np.ndarray, np.ndarray]:
    """A line's points ``(n, 2)`` in the drawing's units, and places along all that is drawn of it."""
    # a level without a point of its own starts at the right
    places = axes.transData.transform([(axes.get_xlim()[1] if math.isnan(x) else x, y) for x, y in line.points])
    way = [places + shift for shift in ([0, 0], [3, 0], [-3, 0], [0, 3], [0, -3])]
    way.append((places[:-1] + np.linspace(0, 1, 24)[:, None, None] * np.diff(places, axis=0)).reshape(-1, 2))
    if line.level:
        way += [places + np.array([shift, 0]) for shift in range(-_SIZE[0], _SIZE[0], 8)]
    return places, np.concatenate(way)


def _scale(axes: Any, chart: Chart) -> None:
    """Frame, ticks and names of the axes; logarithms where perplexities are far apart."""
    ticker = import_module("matplotlib.ticker")
    numbers = ticker.FuncFormatter(lambda value, _: f"{value:.0%}" if chart.percent else _short(value))
    xs, ys = ([point[i] for line in chart.lines for point in line.points if not math.isnan(point[i])] for i in (0, 1))
    log_y = not chart.percent and max(ys) > 3 * min(ys)
    axes.set(xscale="log" if chart.log_x else "linear", yscale="log" if log_y else "linear")
    for axis, values, log in ((axes.xaxis, xs, chart.log_x), (axes.yaxis, ys, log_y)):
        if log:
            ratio = max(values) / min(values)
            digits = [1] if ratio > 200 else [1, 2, 5] if ratio > 20 else [1, 2, 3, 5, 7]
            axis.set_major_locator(ticker.LogLocator(subs=digits))
            axis.set_minor_formatter(ticker.FuncFormatter(lambda *_: ""))
        else:
            axis.set_major_locator(ticker.MaxNLocator(5))
        axis.set_major_formatter(numbers)
    axes.margins(0.06, 0.08)
    axes.autoscale_view()  # now: labels are placed by it
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_xlabel(chart.x)
    axes.set_title(chart.y, loc="left", size=_FONT)


def _inlined(svg: str, name: str, label: str) -> str:
    """What a page needs of the drawing, with ids of its own and the page's colours."""
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.S)
    tag = f'<svg viewBox="0 0 {_SIZE[0]} {_SIZE[1]}" role="img" aria-label="{escape(label)}">'
    svg = tag + svg[svg.index(">") + 1 :]
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg).replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    for ink, colour in _INKS.items():
        svg = svg.replace(colour, f"var(--{ink})")
    return svg.strip()


def look_of(number: int) -> tuple[str, str]:
    """Colour and mark of a chart's line; 0 is the full softmax's, and those that are too many are quiet."""
    return LOOKS[number] if number < len(LOOKS) else Line.look


def _keys(lines: Sequence[Line]) -> list[str]:
    """A letter for each line; digits are all over a chart already."""
    return [f"{chr(ord('a') + number % 26)}{number // 26 or ''}" for number in range(len(lines))]


def _short(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 1e4 else f"{value:,.6g}"
