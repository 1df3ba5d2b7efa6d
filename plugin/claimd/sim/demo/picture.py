"""Draws a Scene as lines of text that fit a terminal, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claimd.common import plain_text

from .scene import FREE, HELD, SICK, Gpu, Node, Row, Scene

_NARROWEST_BOX, _WIDEST_BOX = 24, 44  # columns of a node's box
_WIDEST_COLUMN = 26  # of the table
_MOST_ROWS = 8  # of the table
_COLORS = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_STATES = {FREE: ("dim", "free"), HELD: ("green", "held"), SICK: ("red", "sick")}
_PHASES = {
    "Running": "green",
    "Succeeded": "green",
    "Pending": "yellow",
    "Terminating": "yellow",
    "Failed": "red",
}

Span = tuple[str, str]  # text and the name of its color, or empty
Line = list[Span]


@dataclass(frozen=True, kw_only=True)
class Style:
    width: int = 80
    height: int = 24
    color: bool = True
    unicode: bool = True


def draw(scene: Scene, style: Style) -> list[str]:
    """Draws nodes side by side, then pods with their claims.

    The lines fit the terminal's width and height; if the boxes do not fit, each node is one line.
    """
    glyphs = _UNICODE if style.unicode else _ASCII
    table = _table(scene.rows, glyphs)
    lines = [*_boxes(scene.nodes, style.width, glyphs), *table]
    room = max(3, style.height - 4)
    if len(lines) > room:
        lines = [*(_node_line(node, glyphs) for node in scene.nodes), *table]
    return [paint(line, style) for line in lines[:room]]


def brief(scene: Scene, style: Style) -> list[str]:
    """Draws one line per node, for output without redrawing."""
    glyphs = _UNICODE if style.unicode else _ASCII
    return [paint(_node_line(node, glyphs), style) for node in scene.nodes]


def paint(line: Line, style: Style) -> str:
    """Colors one line, and cuts it at the terminal's width.

    The texts may come from objects of the cluster. Only the colors may control the terminal.
    """
    room = style.width
    parts = []
    for text, color in line:
        part = truncate(plain_text.plain_line(text), room, style.unicode)
        room -= len(part)
        if style.color and color and part:
            part = f"\x1b[{_COLORS[color]}m{part}\x1b[0m"
        parts.append(part)
    return "".join(parts).rstrip(" ")


def truncate(text: str, width: int, unicode: bool = True) -> str:
    if len(text) <= width:
        return text
    if width <= 0:
        return ""
    return text[: width - 1] + ("…" if unicode else "~")


@dataclass(frozen=True)
class _Glyphs:
    free: str
    held: str
    sick: str
    corners: str  # corners of a box: upper left, upper right, lower left, lower right
    across: str
    down: str
    unicode: bool

    def symbol_of(self, gpu: Gpu) -> str:
        return {FREE: self.free, HELD: self.held, SICK: self.sick}[gpu.state]


_UNICODE = _Glyphs("○", "●", "✗", "╭╮╰╯", "─", "│", True)
_ASCII = _Glyphs("o", "*", "X", "++++", "-", "|", False)


# ---------------------------------------------------------------- nodes


def _boxes(nodes: Sequence[Node], width: int, glyphs: _Glyphs) -> list[Line]:
    """Draws as many boxes per row as fit."""
    if not nodes:
        return [[("no nodes yet", "dim")]]

    # One column lies between two boxes.
    per_row = max(1, min(len(nodes), (width + 1) // (_NARROWEST_BOX + 1)))
    box_width = min(_WIDEST_BOX, (width + 1) // per_row - 1)
    lines: list[Line] = []
    for start in range(0, len(nodes), per_row):
        row = nodes[start : start + per_row]
        gpu_count = max(len(node.gpus) for node in row)
        boxes = [_box(node, box_width, gpu_count, glyphs) for node in row]
        for parts in zip(*boxes, strict=True):
            line: Line = [*parts[0]]
            for part in parts[1:]:
                line += [(" ", ""), *part]
            lines.append(line)
    return lines


def _box(node: Node, width: int, gpu_count: int, glyphs: _Glyphs) -> list[Line]:
    """Draws a node with space for `gpu_count` GPUs, so that all boxes of a row have one height."""
    inner = width - 4
    content: list[Span] = [(node.product, "cyan") if node.product else ("no GPUs published", "dim")]
    for gpu in node.gpus:
        color, word = _STATES[gpu.state]
        content.append((f"{glyphs.symbol_of(gpu)} {gpu.name}", color))
        content.append((f"  {gpu.note or word}", color))
    content += [("", "")] * (2 * (gpu_count - len(node.gpus)))

    lines = [_box_top(node, width, glyphs)]
    for text, color in content:
        padded = truncate(text, inner, glyphs.unicode).ljust(inner)
        lines.append([(f"{glyphs.down} ", "dim"), (padded, color), (f" {glyphs.down}", "dim")])
    lines.append(_box_bottom(node, width, glyphs))
    return lines


def _box_top(node: Node, width: int, glyphs: _Glyphs) -> Line:
    left, right, _, _ = tuple(glyphs.corners)
    name = truncate(node.name, width - 6, glyphs.unicode)
    fill = glyphs.across * (width - 5 - len(name))
    return [(f"{left}{glyphs.across} ", "dim"), (name, "bold"), (f" {fill}{right}", "dim")]


def _box_bottom(node: Node, width: int, glyphs: _Glyphs) -> Line:
    """Draws the bottom line with the plugin's state."""
    _, _, left, right = tuple(glyphs.corners)
    plugin = f" claimd {node.plugin} " if node.plugin else ""
    plugin = truncate(plugin, width - 4, glyphs.unicode)
    color = "dim" if node.plugin in ("", "running") else "yellow"
    fill = glyphs.across * (width - 3 - len(plugin))
    return [(f"{left}{fill}", "dim"), (plugin, color), (f"{glyphs.across}{right}", "dim")]


def _node_line(node: Node, glyphs: _Glyphs) -> Line:
    line: Line = [(f"{node.name:<10} ", "bold")]
    if not node.gpus:
        return [*line, ("no GPUs published", "dim")]
    for gpu in node.gpus:
        color, word = _STATES[gpu.state]
        line.append((f"{glyphs.symbol_of(gpu)} {gpu.name} {gpu.note or word}  ", color))
    return line


# ---------------------------------------------------------------- pods and claims


def _table(rows: Sequence[Row], glyphs: _Glyphs) -> list[Line]:
    """Draws columns of the needed width; the last one extends to the end of the line."""
    if not rows:
        return []
    shown = rows
    if len(rows) > _MOST_ROWS:
        shown = rows[: _MOST_ROWS - 1]  # the last line counts the rest

    titles = ("POD", "PHASE", "NODE", "CLAIM")
    cells = [(row.pod or "-", row.phase or "-", row.node or "-", _claim(row)) for row in shown]
    widths = []
    for column in range(3):
        longest = max(len(row[column]) for row in (titles, *cells))
        widths.append(min(_WIDEST_COLUMN, longest))

    head: Line = []
    for title, width in zip(titles, (*widths, len(titles[-1])), strict=True):
        head.append((f"{title:<{width}}  ", "dim"))
    lines = [head]
    for *columns, claim in cells:
        colors = ("", _PHASES.get(columns[1], ""), "")
        line: Line = []
        for text, width, color in zip(columns, widths, colors, strict=True):
            line.append((f"{truncate(text, width, glyphs.unicode):<{width}}  ", color))
        lines.append([*line, (claim, "")])
    if len(rows) > len(shown):
        lines.append([(f"and {len(rows) - len(shown)} more", "dim")])
    return lines


def _claim(row: Row) -> str:
    """Returns the devices of the row's claim, or why its pod waits."""
    if row.devices:
        return f"{row.claim}: {', '.join(row.devices)}"
    if row.waits_for:
        return f"{row.claim or '-'}: {row.waits_for}"
    return row.claim or "-"
