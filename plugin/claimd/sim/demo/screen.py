"""The terminal: the text scrolls up, and the picture below it is redrawn in place.

If the output cannot do that (no terminal, TERM=dumb, --plain), only the text is printed, line by
line.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from . import picture
from .picture import Line, Style
from .scene import Scene

_MARGIN = 2
_WIDEST_TEXT = 100
_NO_TERMINAL = (100_000, 24)  # so wide that no line is cut
_TO_ASCII = str.maketrans({"✓": "+", "…": "...", "\N{MULTIPLICATION SIGN}": "x"})
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """The capabilities of the output."""

    live: bool  # whether the picture is redrawn
    color: bool
    unicode: bool
    size: tuple[int, int] | None = None  # None: the current size

    def style(self) -> Style:
        width, height = self.size or shutil.get_terminal_size()
        return Style(width=width, height=height, color=self.color, unicode=self.unicode)


def probe(stream: TextIO, environment: Mapping[str, str], *, plain: bool = False) -> Terminal:
    """Returns the capabilities of the stream."""
    controllable = stream.isatty() and environment.get("TERM", "dumb") != "dumb"
    encoding = (stream.encoding or "").lower().replace("-", "")
    return Terminal(
        live=controllable and not plain,
        color=controllable and not environment.get("NO_COLOR"),
        unicode=encoding == "utf8",
        size=None if stream.isatty() else _NO_TERMINAL,
    )


class Screen:
    """Prints the text of the story, and draws the picture below it."""

    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        self._stream, self._terminal = stream, terminal
        self._scene: Scene | None = None
        self._drawn_lines = 0  # lines of the picture above the cursor

    @property
    def live(self) -> bool:
        return self._terminal.live

    def show(self, scene: Scene) -> None:
        """Replaces the scene of the picture."""
        if scene != self._scene:
            self._scene = scene
            if self.live:
                self._write([])

    def line(self, *spans: tuple[str, str]) -> None:
        """Prints one line, cut at the terminal's width."""
        self._write([picture.paint(list(spans), self._terminal.style())])

    def text(self, text: str, color: str = "", indent: int = _MARGIN) -> None:
        """Prints a folded paragraph."""
        style = self._terminal.style()
        width = max(20, min(style.width, _WIDEST_TEXT) - indent)
        folded: list[str] = []
        for part in text.strip().split("\n"):
            folded += textwrap.wrap(part, width) or [""]
        self._paint([[(" " * indent + line, color)] for line in folded])

    def block(self, lines: Sequence[str], color: str = "", indent: int = 2 * _MARGIN) -> None:
        """Prints lines unchanged; the rest of a long line continues below with a deeper indent."""
        width = max(40, self._terminal.style().width) - indent
        folded: list[str] = []
        for line in lines:
            if len(line) <= width:
                folded.append(line)
                continue
            own_indent = len(line) - len(line.lstrip())
            further = " " * (own_indent + 2 * _MARGIN)
            folded += textwrap.wrap(line, width, subsequent_indent=further)
        self._paint([[(" " * indent + line, color)] for line in folded])

    def brief(self) -> None:
        """Prints a summary of the scene if there is no picture."""
        if not self.live and self._scene is not None:
            width, _ = _NO_TERMINAL
            style = Style(width=width, color=False, unicode=self._terminal.unicode)
            self.block(["", *picture.brief(self._scene, style)], "dim", _MARGIN)

    def close(self) -> None:
        """Leaves the picture as it is, with the cursor below it."""
        if self.live and self._drawn_lines:
            self._write_text(_SHOW_CURSOR)
        self._drawn_lines = 0

    def _paint(self, lines: Sequence[Line]) -> None:
        style = self._terminal.style()
        self._write([picture.paint(line, style) for line in lines])

    def _write(self, lines: Sequence[str]) -> None:
        """Prints lines above the picture in a single write, so that it does not flicker."""
        if not self.live:
            self._write_text("".join(f"{line}\n" for line in lines))
            return

        drawn: list[str] = []
        if self._scene is not None:
            drawn = ["", *picture.draw(self._scene, self._terminal.style())]
        up = f"\x1b[{self._drawn_lines}F" if self._drawn_lines else ""
        body = "".join(f"{line}{_CLEAR_LINE}\n" for line in (*lines, *drawn))
        self._write_text(f"{_HIDE_CURSOR}{up}{body}{_CLEAR_BELOW}{_SHOW_CURSOR}")
        self._drawn_lines = len(drawn)

    def _write_text(self, text: str) -> None:
        if not self._terminal.unicode:
            text = text.translate(_TO_ASCII).encode("ascii", "replace").decode()
        self._stream.write(text)
        self._stream.flush()


def open_screen(stream: TextIO, *, plain: bool) -> Screen:
    return Screen(stream, probe(stream, os.environ, plain=plain))
