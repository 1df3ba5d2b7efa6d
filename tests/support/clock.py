"""Time that passes at once: the clock of the running loop goes ahead, and nobody waits."""

from __future__ import annotations

import asyncio


def leap(seconds: float) -> None:
    """The loop's clock is later by so much, for all that goes by it, timers among them.

    To be called while nothing is under way: a request that waits would have waited for so long.
    """
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds  # type: ignore[method-assign]
