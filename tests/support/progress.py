"""Time limits for machines that are busy: what counts is that something goes on.

`Patience` counts the waits of a loop, and not the time in which the machine did not let it run.
`watched` ends a test that has stood still for long; a test calls `moved` at each step.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import time
from collections.abc import Iterator

STALLED = 180.0  # seconds without a step after which nothing will come any more
# Of one wait no more than this counts: a loop that slept for longer was not let run.
LONGEST = 0.05

_watched = False


class Patience:
    """Is asked at each look, some milliseconds apart; over once so many seconds were waited for."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._last = time.monotonic()

    def over(self) -> bool:
        now = time.monotonic()
        self._left -= min(now - self._last, LONGEST)
        self._last = now
        return self._left < 0


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Ends the process with all stacks, once nothing has moved for long."""
    global _watched  # noqa: PLW0603
    _watched = True
    moved()
    try:
        yield
    finally:
        _watched = False
        faulthandler.cancel_dump_traceback_later()


def moved() -> None:
    """Something was done. Costs next to nothing where nobody watches."""
    if _watched:
        faulthandler.dump_traceback_later(STALLED, exit=True, file=sys.__stderr__)
