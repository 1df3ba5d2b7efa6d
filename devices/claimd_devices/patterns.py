"""Regular expressions that are compiled at their first use.

Compiling takes more time than all else of a module's import. Most nodes never use most of the
expressions that look for trouble.
"""

from __future__ import annotations

import functools
import re


class Pattern:
    """Matches as the compiled expression does."""

    def __init__(self, expression: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self._expression = expression
        self._flags = flags

    def match(self, text: str) -> re.Match[str] | None:
        return self._pattern.match(text)

    def search(self, text: str) -> re.Match[str] | None:
        return self._pattern.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._pattern.fullmatch(text)

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._expression, self._flags)
