"""The terminal: what is told goes up and stays, and below it the picture is drawn anew in its
place.

Where that cannot be (no terminal, TERM=dumb, --plain), only what is told is printed, line by line.
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
_WIDEST = 100  # of what is told
_ENDLESS = (100_000, 24)
_PLAIN = str.maketrans({"✓": "+", "…": "...", "\N{MULTIPLICATION SIGN}": "x"})


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a terminal wants it; `size` of None: as large as it is at the time."""

    live: bool
    color: bool
    unicode: bool
    size: tuple[int, int] | None = None

    def style(self) -> Style:
        width, height = self.size or shutil.get_terminal_size()
        return Style(width=width, height=height, color=self.color, unicode=self.unicode)


def look(stream: TextIO, environment: Mapping[str, str], *, plain: bool = False) -> Look:
    terminal = stream.isatty() and environment.get("TERM", "dumb") != "dumb"
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    color = terminal and not environment.get("NO_COLOR")
    # What is no terminal has no edge at which lines should be cut.
    return Look(
        live=terminal and not plain,
        color=color,
        unicode=unicode,
        size=None if stream.isatty() else _ENDLESS,
    )


class Screen:
    def __init__(self, stream: TextIO, look_: Look) -> None:
        self._stream, self._look = stream, look_
        self._scene: Scene | None = None
        self._drawn = 0  # lines of the picture that stand below the cursor's line of before

    @property
    def live(self) -> bool:
        return self._look.live

    def show(self, scene: Scene) -> None:
        """The picture is of this from now on."""
        if scene != self._scene:
            self._scene = scene
            if self.live:
                self._write([])

    def line(self, *spans: tuple[str, str]) -> None:
        """One line, cut where the terminal ends."""
        self._write([picture.paint(list(spans), self._look.style())])

    def text(self, text: str, color: str = "", indent: int = _MARGIN) -> None:
        """A paragraph, folded."""
        style = self._look.style()
        width = max(20, min(style.width, _WIDEST) - indent)
        folded = [
            line
            for part in text.strip().split("\n")
            for line in (textwrap.wrap(part, width) or [""])
        ]
        self._paint([[(" " * indent + line, color)] for line in folded])

    def block(self, lines: Sequence[str], color: str = "", indent: int = 2 * _MARGIN) -> None:
        """Lines as they are; what is too long goes on below, further to the right."""
        width = max(40, self._look.style().width) - indent
        folded = []
        for line in lines:
            within = " " * (len(line) - len(line.lstrip()) + 2 * _MARGIN)
            folded += (
                textwrap.wrap(line, width, subsequent_indent=within)
                if len(line) > width
                else [line]
            )
        self._paint([[(" " * indent + line, color)] for line in folded])

    def brief(self) -> None:
        """The state of things where there is no picture."""
        if not self.live and self._scene is not None:
            lines = picture.brief(
                self._scene, Style(width=_ENDLESS[0], color=False, unicode=self._look.unicode)
            )
            self.block(["", *lines], "dim", _MARGIN)

    def close(self) -> None:
        """The picture stays as it is, and the cursor is where the next prompt belongs."""
        if self.live and self._drawn:
            self._put("\x1b[?25h")
        self._drawn = 0

    def _paint(self, lines: Sequence[Line]) -> None:
        style = self._look.style()
        self._write([picture.paint(line, style) for line in lines])

    def _write(self, lines: Sequence[str]) -> None:
        """Lines above the picture, in one write, so that it does not flicker."""
        if not self.live:
            self._put("".join(f"{line}\n" for line in lines))
            return
        drawn = picture.draw(self._scene, self._look.style()) if self._scene is not None else []
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        below = ["", *drawn] if drawn else []
        ended = "".join(f"{line}\x1b[K\n" for line in (*lines, *below))
        self._put(f"\x1b[?25l{up}{ended}\x1b[J\x1b[?25h")
        self._drawn = len(below)

    def _put(self, text: str) -> None:
        if not self._look.unicode:
            text = text.translate(_PLAIN).encode("ascii", "replace").decode()
        self._stream.write(text)
        self._stream.flush()


def here(stream: TextIO, *, plain: bool) -> Screen:
    return Screen(stream, look(stream, os.environ, plain=plain))
