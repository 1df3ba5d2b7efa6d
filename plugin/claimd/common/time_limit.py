"""A time limit for computations, whose results must not depend on how busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

# On a busy machine a computation may last this many times its limit.
WALL_FACTOR = 3


class TimeLimit:
    """A limit on the processor time of the thread that creates it, and on the time that passes.

    The computation must stay in that thread. The second limit is `WALL_FACTOR` times as long, and
    ends a computation that hardly gets a processor.
    """

    def __init__(
        self,
        seconds: float,
        *,
        used: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._used, self._clock = used, clock
        self._end_of_use = used() + seconds
        self._end = clock() + WALL_FACTOR * seconds

    @property
    def remaining(self) -> float:
        """The seconds of processor time that are left. Negative if the limit is over."""
        until_end = (self._end - self._clock()) / WALL_FACTOR
        return min(self._end_of_use - self._used(), until_end)

    def is_over(self) -> bool:
        return self.remaining < 0
