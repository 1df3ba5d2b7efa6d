"""A compiled pattern, which chooses the engine for each text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from . import backtracking, parser
from .machine import Machine, Spend

# Python's engine gets the texts for which it takes at most so many of its steps, which are some 30
# times as fast as those of the machine.
MOST_STEPS = 500_000
_FASTER = 30
# Lengths of texts for which the steps are worked out; attributes of devices have up to 64.
_LENGTHS = (16, 64, 256, 1024, 16 * 1024, 256 * 1024)


class Pattern:
    """What compiled() gives. It keeps nothing of a text, and threads may share it."""

    def __init__(self, text: str) -> None:
        self._node = parser.parse(text)
        self._backtracking = backtracking.compiled(self._node)
        # By length: the steps of Python's engine, as far as they are few enough.
        self._steps: dict[int, int] = {}
        if self._backtracking is not None:
            for length in _LENGTHS:
                steps = backtracking.steps(self._node, length)
                if steps > MOST_STEPS:
                    break
                self._steps[length] = int(steps)

    @cached_property
    def _machine(self) -> Machine:
        return Machine(self._node)

    def is_fast(self, length: int) -> bool:
        """Whether texts of this length take a few milliseconds at most."""
        return self._fast_steps(length) is not None

    def _fast_steps(self, length: int) -> int | None:
        for limit, steps in self._steps.items():
            if length <= limit:
                return steps
        return None

    def matches(self, text: str, spend: Spend) -> bool:
        """Whether it matches somewhere in the text; TooLargeError where that cannot be found out.

        `spend` is told of the steps before they are taken. One takes about 0.2 microseconds.
        """
        return self._search(text, 0, spend) is not None

    def find_all(self, text: str, spend: Spend) -> Iterator[tuple[int, int]]:
        """All matches, without an empty one that directly follows another."""
        end = -1
        for match in self._matches(text, spend):
            if not match[0] == match[1] == end:
                end = match[1]
                yield match

    def _matches(self, text: str, spend: Spend) -> Iterator[tuple[int, int]]:
        position = 0
        while position <= len(text):
            span = self._search(text, position, spend)
            if span is None:
                return
            yield span
            # Behind an empty match the search goes on one character later.
            position = span[1] + (span[1] == position)

    def _search(self, text: str, position: int, spend: Spend) -> tuple[int, int] | None:
        steps = self._fast_steps(len(text))
        if steps is None or self._backtracking is None:
            return self._machine.search(text, position, spend)
        spend(1 + steps // _FASTER)
        match = self._backtracking.search(text, position)
        return match.span() if match else None


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """The pattern; InvalidPatternError where Go refuses it."""
    return Pattern(text)
