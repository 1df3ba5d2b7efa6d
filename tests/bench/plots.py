"""Charts as SVG: values in, text out, with the standard library alone.

The same values make the same bytes. Colours follow the reader's light or dark scheme, and each line
also has a mark of its own, so that nobody has to tell it by its colour. What is drawn is decided
elsewhere.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

# Sizes in pixels: of a panel alone, of one that has a neighbour, and of what surrounds its lines.
ALONE, BESIDE = (780, 400), (440, 320)
LEFT, TOP, BOTTOM, EDGE = 54, 66, 46, 16
HEAD = 58  # above the panels: the title of all of them

LETTER = 7.4  # pixels that a letter of a label takes on average
LABEL_HEIGHT = 16
TICKS = 5  # about as many as this
CDF_POINTS = 120
CDF_LEVELS = (92, 84, 76, 68, 60, 50, 40, 30, 20, 10)  # where a line's label may stand, in per cent

# Okabe and Ito's colours, a little darker on light ground and lighter on dark ground.
STYLE = """\
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:currentColor}
svg{color:#1f2328}
.ground{fill:#fff;stroke:#d0d7de}.quiet{fill:#59636e}.name{font-weight:600}.title{font-size:17px;font-weight:600}
.grid{stroke:currentColor;opacity:.13}.axis{stroke:currentColor;opacity:.6}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.halo{stroke:#fff;stroke-width:4px;paint-order:stroke}
.c0{stroke:#0064ab}.m0{fill:#0064ab}.c1{stroke:#c04a00}.m1{fill:#c04a00}
.c2{stroke:#007a5a}.m2{fill:#007a5a}.c3{stroke:#93478b}.m3{fill:#93478b}
.c0{stroke-width:3}.lead{stroke-width:1.5;stroke-dasharray:1 5}.limit{stroke:currentColor;stroke-dasharray:5 4;opacity:.65}
@media (prefers-color-scheme:dark){svg{color:#e6edf3}.ground{fill:#0d1117;stroke:#3d444d}.quiet{fill:#9198a1}
.halo{stroke:#0d1117}.c0{stroke:#62b5f5}.m0{fill:#62b5f5}.c1{stroke:#f5a04c}.m1{fill:#f5a04c}
.c2{stroke:#3fcf9f}.m2{fill:#3fcf9f}.c3{stroke:#dc9fd3}.m3{fill:#dc9fd3}}"""

# A mark for each line, round its middle.
MARKS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.5-3.5h7v7h-7z",
    "M0-5l4.6 8h-9.2z",
    "M0-5l5 5l-5 5l-5-5z",
)

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What is measured along it. Without `ticks` it chooses round ones; with them it has exactly
    these, as far as they lie on it. An axis that is not logarithmic begins at 0.
    """

    title: str
    unit: str = ""
    log: bool = False
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points from left to right. A limit is drawn dashed and has no marks."""

    label: str
    points: tuple[Point, ...]
    is_limit: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One panel. Labels stand right of the lines' ends, or inside, beside the lines. Alone in a
    picture it needs no title of its own.
    """

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    labels_inside: bool = False
    has_marks: bool = True


def cdf(title: str, x: Axis, samples: Mapping[str, Sequence[float]]) -> Chart:
    """How many per cent of the samples are at most so large, for each of their names."""
    lines = []
    for label, values in samples.items():
        ordered = sorted(values)
        shares = [100 * (index + 1) / len(ordered) for index in range(len(ordered))]
        # The slowest hundredth is why one looks at it at all: there each sample has its point.
        keep = max(1, len(ordered) // CDF_POINTS)
        points = [
            point
            for index, point in enumerate(zip(ordered, shares, strict=True))
            if index % keep == 0 or point[1] >= 99 or index == len(ordered) - 1
        ]
        lines.append(Line(label=label, points=((ordered[0], 0.0), *points)))
    percent = Axis(title="of all, per cent", ticks=(0, 25, 50, 75, 99))
    return Chart(
        title=title, x=x, y=percent, lines=tuple(lines), labels_inside=True, has_marks=False
    )


def svg(charts: Sequence[Chart], *, title: str, description: str) -> str:
    """A picture of the charts, two in a row. The description is for who cannot see it."""
    width, height = ALONE if len(charts) == 1 else BESIDE
    columns = min(2, len(charts))
    rows = -(-len(charts) // columns)
    whole = (width * columns, HEAD + height * rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]} {whole[1]}" '
        f'width="{whole[0]}" height="{whole[1]}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x=".5" y=".5" width="{whole[0] - 1}" height="{whole[1] - 1}" rx="8"/>',
        _text(EDGE + 4, 34, title, "title"),
    ]
    for index, chart in enumerate(charts):
        across, down = index % columns * width, HEAD + index // columns * height
        parts.append(f'<g transform="translate({across} {down})">')
        parts += _Panel(chart, width, height - EDGE // 2).drawn()
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


# ---------------------------------------------------------------- scales


class _Scale:
    """From values to pixels along one axis."""

    def __init__(self, axis: Axis, values: Iterable[float], begin: float, end: float) -> None:
        there = [*values, *axis.ticks]
        self._axis, self._begin, self._end = axis, begin, end
        if axis.log:
            low, high = min(value for value in there if value > 0), max(there)
            self._low, self._high = low, high if high > low else low * 10
        else:
            self._low, self._high = min(0.0, *there), max(there) or 1.0
        self.ticks = tuple(axis.ticks) or self._chosen()
        if not axis.log:  # the last tick is the end, so that no line leaves the grid
            self._high = max(self._high, self.ticks[-1])

    def __call__(self, value: float) -> float:
        if self._axis.log:
            low, high = math.log(self._low), math.log(self._high)
            share = (math.log(max(value, self._low)) - low) / (high - low)
        else:
            share = (value - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def _chosen(self) -> tuple[float, ...]:
        if not self._axis.log:
            step = _round_step((self._high - self._low) / TICKS)
            return tuple(
                round(index * step, 10) for index in range(math.ceil(self._high / step - 1e-9) + 1)
            )
        decades = range(math.floor(math.log10(self._low)), math.ceil(math.log10(self._high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            steps_ = [step * 10.0**decade for decade in decades for step in steps]
            ticks = tuple(tick for tick in steps_ if self._low <= tick <= self._high)
            if len(ticks) <= 2 * TICKS:
                return ticks
        return ticks


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= least * 0.999)


def told(value: float) -> str:
    """A tick as one reads it: 0.25, 10, 5,000."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


# ---------------------------------------------------------------- a panel


class _Panel:
    def __init__(self, chart: Chart, width: float, height: float) -> None:
        self._chart = chart
        longest = max(len(line.label) for line in chart.lines)
        room = EDGE if chart.labels_inside else EDGE + 10 + longest * LETTER
        self._left, self._right = LEFT, width - room
        # A panel without a title of its own begins higher.
        self._head = 20 if chart.title else 0
        self._top, self._bottom = TOP - 20 + self._head, height - BOTTOM
        points = [point for line in chart.lines for point in line.points]
        self._x = _Scale(chart.x, [x for x, _ in points], self._left, self._right)
        self._y = _Scale(chart.y, [y for _, y in points], self._bottom, self._top)

    def drawn(self) -> list[str]:
        parts = [*self._frame()]

        # Ours is first in the list and last in the drawing: on top of the others.
        numbered = list(enumerate(self._chart.lines))
        places = [[(self._x(x), self._y(y)) for x, y in line.points] for line in self._chart.lines]
        for number, line in reversed(numbered):
            parts += self._line(number, line, places[number])

        put = _inside if self._chart.labels_inside else _at_the_end
        # A line that ends before others is led to its label.
        end = max(points[-1][0] for points in places)
        for (number, line), (*_, (x, y)) in zip(numbered, places, strict=True):
            if put is _at_the_end and x < end and not line.is_limit:
                path = f"M{_number(x)} {_number(y)}H{_number(self._right)}"
                parts.append(f'<path class="lead c{number % len(MARKS)}" d="{path}"/>')

        at = put(self._chart.lines, places, (self._left, self._top, self._right, self._bottom))
        for (number, line), (x, y, anchor) in zip(numbered, at, strict=True):
            look = "quiet" if line.is_limit else f"m{number % len(MARKS)} name"
            parts.append(_text(x, y + 4.5, line.label, f"{look} halo", anchor))
        return parts

    def _frame(self) -> Iterable[str]:
        chart, left, right, bottom = self._chart, self._left, self._right, self._bottom
        if chart.title:
            yield _text(EDGE + 4, 20, chart.title, "name")
        yield _text(EDGE + 4, 20 + self._head, _with_unit(chart.y), "quiet")
        for tick in self._y.ticks:
            at = _number(self._y(tick))
            yield f'<path class="grid" d="M{left} {at}H{_number(right)}"/>'
            yield _text(left - 8, self._y(tick) + 4.5, told(tick), "quiet", "end")
        yield f'<path class="axis" d="M{left} {_number(bottom)}H{_number(right)}"/>'
        for tick in self._x.ticks:
            at = self._x(tick)
            yield f'<path class="axis" d="M{_number(at)} {_number(bottom)}v4"/>'
            yield _text(at, bottom + 19, told(tick), "quiet", "middle")
        yield _text((left + right) / 2, bottom + 38, _with_unit(chart.x), "quiet", "middle")

    def _line(self, number: int, line: Line, places: Sequence[Point]) -> Iterable[str]:
        kind = number % len(MARKS)
        path = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in places)
        look = "limit" if line.is_limit else f"c{kind}"
        yield f'<path class="line {look}" d="{path}"/>'
        if not line.is_limit and self._chart.has_marks:
            for x, y in places:
                at = f"translate({_number(x)} {_number(y)})"
                yield f'<path class="m{kind}" transform="{at}" d="{MARKS[kind]}"/>'


Label = tuple[float, float, str]  # x, y, text-anchor
Area = tuple[float, float, float, float]  # left, top, right, bottom


def _at_the_end(
    lines: Sequence[Line], places: Sequence[Sequence[Point]], area: Area
) -> list[Label]:
    """Right of the last points, moved apart where they would cover each other."""
    order = sorted(range(len(lines)), key=lambda number: (places[number][-1][1], number))
    heights: dict[int, float] = {}
    lowest = -math.inf
    for number in order:
        lowest = heights[number] = max(places[number][-1][1], lowest + LABEL_HEIGHT)

    # What was pushed below the panel pushes the others up.
    highest = area[3] + LABEL_HEIGHT
    for number in reversed(order):
        highest = heights[number] = min(heights[number], highest - LABEL_HEIGHT)
    return [(area[2] + 10, heights[number], "start") for number in range(len(lines))]


def _inside(lines: Sequence[Line], places: Sequence[Sequence[Point]], area: Area) -> list[Label]:
    """Each beside its line, at the height and on the side where most room is left."""
    _, top, right, bottom = area
    labels: list[Label] = []
    boxes: list[Area] = []
    for number, line in enumerate(lines):
        size = len(line.label) * LETTER + 6
        best: tuple[float, Label, Area] | None = None
        for level in CDF_LEVELS:
            y = bottom - (bottom - top) * level / 100
            here = _across(places[number], y)
            for anchor, begin in (("start", here + 12), ("end", here - 12 - size)):
                box = (begin, y - LABEL_HEIGHT / 2, begin + size, y + LABEL_HEIGHT / 2)
                if (
                    begin < area[0]
                    or begin + size > right
                    or any(_meet(box, each) for each in boxes)
                ):
                    continue
                room = _room(box, places, number, area)
                label = (begin if anchor == "start" else begin + size, y, anchor)
                if best is None or room > best[0]:
                    best = (room, label, box)
        assert best, f"no room for the label {line.label!r}"
        labels.append(best[1])
        boxes.append(best[2])
    return labels


def _room(box: Area, places: Sequence[Sequence[Point]], own: int, area: Area) -> float:
    """Pixels until the next line but its own; below zero if one crosses it."""
    left, top, right, bottom = box
    room = 60.0  # more is not better
    for number, points in enumerate(places):
        crossings = [_across(points, y) for y in (top, (top + bottom) / 2, bottom)]
        low, high = min(crossings), max(crossings)
        if low <= right and high >= left:
            return -1.0 - (0 if number == own else min(right - low, high - left))
        if number != own:
            room = min(room, low - right if low > right else left - high)
    return room


def _across(points: Sequence[Point], y: float) -> float:
    """Where a line that rises from left to right has this height."""
    index = bisect.bisect_left([-height for _, height in points], -y)
    return points[min(index, len(points) - 1)][0]


def _meet(first: Area, other: Area) -> bool:
    return (
        first[0] < other[2] and other[0] < first[2] and first[1] < other[3] and other[1] < first[3]
    )


# ---------------------------------------------------------------- text


def _text(x: float, y: float, words: str, look: str, anchor: str = "start") -> str:
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{_number(x)}" y="{_number(y)}" class="{look}"{where}>{escape(words)}</text>'


def _with_unit(axis: Axis) -> str:
    return f"{axis.title}, {axis.unit}" if axis.unit else axis.title


def _number(value: float) -> str:
    """A tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")
