"""A Scene as lines of text that fit a terminal. Pure; what is written where and when is the
screen's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .scene import FREE, HELD, SICK, Gpu, Node, Row, Scene

_NARROWEST = 24  # columns of a node's box
_WIDEST = 44
_ROWS = 8  # pods and claims at most
_COLORS = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_STATES = {FREE: ("dim", "free"), HELD: ("green", "held"), SICK: ("red", "sick")}
_PHASES = {
    "Running": "green",
    "Succeeded": "green",
    "Pending": "yellow",
    "Terminating": "yellow",
    "Failed": "red",
}

Span = tuple[str, str]  # text and the name of its color, or none
Line = list[Span]


@dataclass(frozen=True, kw_only=True)
class Style:
    width: int = 80
    height: int = 24
    color: bool = True
    unicode: bool = True


def draw(scene: Scene, style: Style) -> list[str]:
    """Nodes side by side, then pods with their claims. No line is wider than the terminal, nor are
    they too many.
    """
    glyphs = _UNICODE if style.unicode else _ASCII
    lines = [*_boxes(scene.nodes, style.width, glyphs), *_table(scene.rows, glyphs)]
    room = max(3, style.height - 4)
    if len(lines) > room:
        lines = [*(_short(node, glyphs) for node in scene.nodes), *_table(scene.rows, glyphs)][
            :room
        ]
    return [paint(line, style) for line in lines]


def brief(scene: Scene, style: Style) -> list[str]:
    """A line a node, for where nothing is redrawn."""
    glyphs = _UNICODE if style.unicode else _ASCII
    return [paint(_short(node, glyphs), style) for node in scene.nodes]


def paint(line: Line, style: Style) -> str:
    """One line of the terminal, cut where it ends."""
    room, parts = style.width, []
    for text, color in line:
        part = cut(text, room, style.unicode)
        room -= len(part)
        parts.append(
            f"\x1b[{_COLORS[color]}m{part}\x1b[0m" if style.color and color and part else part
        )
    return "".join(parts).rstrip(" ")


def cut(text: str, width: int, unicode: bool = True) -> str:
    if len(text) <= width:
        return text
    mark = "…" if unicode else "~"
    return text[: max(0, width - 1)] + mark if width > 0 else ""


@dataclass(frozen=True)
class _Glyphs:
    free: str
    held: str
    sick: str
    corners: str  # of a box: upper left, upper right, lower left, lower right
    across: str
    down: str
    unicode: bool

    def of(self, gpu: Gpu) -> str:
        return {FREE: self.free, HELD: self.held, SICK: self.sick}[gpu.state]


_UNICODE = _Glyphs("○", "●", "✗", "╭╮╰╯", "─", "│", True)
_ASCII = _Glyphs("o", "*", "X", "++++", "-", "|", False)


def _boxes(nodes: Sequence[Node], width: int, glyphs: _Glyphs) -> list[Line]:
    """As many boxes in a row as there is room for."""
    if not nodes:
        return [[("no nodes yet", "dim")]]
    beside = max(1, min(len(nodes), (width + 1) // (_NARROWEST + 1)))
    wide = min(_WIDEST, (width + 1) // beside - 1)
    lines: list[Line] = []
    for start in range(0, len(nodes), beside):
        row = nodes[start : start + beside]
        high = max(len(node.gpus) for node in row)
        boxes = [_box(node, wide, high, glyphs) for node in row]
        for parts in zip(*boxes, strict=True):
            line: Line = []
            for part in parts:
                line += [(" ", ""), *part] if line else part
            lines.append(line)
    return lines


def _box(node: Node, width: int, high: int, glyphs: _Glyphs) -> list[Line]:
    left, right, lower_left, lower_right = tuple(glyphs.corners)
    inner = width - 4
    name = cut(node.name, inner - 2, glyphs.unicode)
    fill = glyphs.across * (width - 5 - len(name))
    lines: list[Line] = [
        [(f"{left}{glyphs.across} ", "dim"), (name, "bold"), (f" {fill}{right}", "dim")]
    ]

    def add(text: str, color: str = "") -> None:
        side = glyphs.down
        lines.append(
            [
                (f"{side} ", "dim"),
                (cut(text, inner, glyphs.unicode).ljust(inner), color),
                (f" {side}", "dim"),
            ]
        )

    add(node.product or "no GPUs published", "cyan" if node.product else "dim")
    for gpu in node.gpus:
        color, word = _STATES[gpu.state]
        add(f"{glyphs.of(gpu)} {gpu.name}", color)
        add(f"  {gpu.note or word}", color)
    for _ in range(2 * (high - len(node.gpus))):
        add("")
    plugin = cut(f" claimd {node.plugin} " if node.plugin else "", inner, glyphs.unicode)
    color = "dim" if node.plugin in ("", "running") else "yellow"
    fill = glyphs.across * (width - 3 - len(plugin))
    lines.append(
        [(f"{lower_left}{fill}", "dim"), (plugin, color), (f"{glyphs.across}{lower_right}", "dim")]
    )
    return lines


def _short(node: Node, glyphs: _Glyphs) -> Line:
    line: Line = [(f"{node.name:<10} ", "bold")]
    for gpu in node.gpus:
        color, word = _STATES[gpu.state]
        line += [(f"{glyphs.of(gpu)} {gpu.name} {gpu.note or word}  ", color)]
    return line if node.gpus else [*line, ("no GPUs published", "dim")]


def _table(rows: Sequence[Row], glyphs: _Glyphs) -> list[Line]:
    if not rows:
        return []
    shown = rows[: _ROWS if len(rows) <= _ROWS else _ROWS - 1]
    cells = [(row.pod or "-", row.phase or "-", row.node or "-", _claim(row)) for row in shown]
    titles = ("POD", "PHASE", "NODE", "CLAIM")
    widths = [min(26, max(len(row[at]) for row in (titles, *cells))) for at in range(3)]
    lines: list[Line] = [
        [(f"{title:<{width}}  ", "dim") for title, width in zip(titles, (*widths, 5), strict=True)]
    ]
    for pod, phase, node, claim in cells:
        line = [(pod, ""), (phase, _PHASES.get(phase, "")), (node, "")]
        lines.append(
            [
                *(
                    (f"{cut(text, width, glyphs.unicode):<{width}}  ", color)
                    for (text, color), width in zip(line, widths, strict=True)
                ),
                (claim, ""),
            ]
        )
    if len(rows) > len(shown):
        lines.append([(f"and {len(rows) - len(shown)} more", "dim")])
    return lines


def _claim(row: Row) -> str:
    if row.devices:
        return f"{row.claim}: {', '.join(row.devices)}"
    return f"{row.claim or '-'}{': ' if row.waits else ''}{row.waits}"
