"""Pacing: a backoff after failures, a token bucket against too many writes, waits with a timeout.

All times are of the running loop's clock. The callers decide which failures to try again.
"""

from __future__ import annotations

import asyncio
import random

# Items that are handled without a turn for other tasks: see `give_way`.
PORTION = 32

# The bounds of the random factor for the seconds that a server asks us to wait.
ASKED_JITTER = (1.0, 1.5)


def between(low: float, high: float) -> float:
    """Returns a random number between the two.

    It spreads requests that all nodes of a cluster send, so that they do not reach the API server at
    the same moment.
    """
    return random.uniform(low, high)  # noqa: S311 - spreads load, hides nothing


class Backoff:
    """The delay before the next try, which doubles after each failure, up to a limit.

    With `jitter`, each delay is multiplied by a random number between the two bounds. A node plugin
    runs on every node of a cluster, and all of them lose the API server at the same moment. Without
    jitter they would all come back at the same moment, too.
    """

    def __init__(
        self, first: float, longest: float, *, jitter: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        """Takes the first and the longest delay in seconds, before jitter."""
        self.failures = 0  # since the last reset
        self._first, self._longest, self._jitter = first, longest, jitter

    def next_delay(self) -> float:
        """Counts one more failure, and returns the seconds to wait after it."""
        # The exponent is limited, since a float overflows after a thousand doublings.
        delay = min(self._longest, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return delay * between(*self._jitter)

    def reset(self) -> None:
        """Forgets all failures, after a success."""
        self.failures = 0


def not_before(delay: float, asked: float | None) -> float:
    """Returns the delay, or a longer one if a server has asked us to wait; all in seconds.

    An overloaded server asks all nodes of a cluster to wait for the same time. So each adds a random
    time of its own.
    """
    if asked is None:
        return delay
    return max(delay, asked * between(*ASKED_JITTER))


class TokenBucket:
    """A limit of `burst` actions at once, and of `rate` actions per second in the long run.

    To wait for a token and to take it are two steps. So a caller can wait, then look at the present
    state, and take the token only if there is something to write. One task at a time may use a
    bucket.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._tokens = float(burst)
        self._counted_at = 0.0  # the time of `_tokens`, by the loop's clock

    async def ready(self) -> None:
        """Waits until there is a token. Does not take it."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            earned = (now - self._counted_at) * self._rate
            self._tokens, self._counted_at = min(self._burst, self._tokens + earned), now
            if self._tokens >= 1.0:
                return
            await asyncio.sleep((1.0 - self._tokens) / self._rate)

    def take(self) -> None:
        """Takes the token that `ready` has waited for."""
        self._tokens -= 1.0


async def give_way(number: int) -> None:
    """Lets other tasks run if this number of items ends a portion, so that many delay nobody."""
    if number % PORTION == 0:
        await asyncio.sleep(0)


async def wait(event: asyncio.Event, timeout: float | None) -> bool:
    """Waits for the event, at most so many seconds. Returns True if it is set.

    A timeout of None means no limit.
    """
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_for_any(*events: asyncio.Event) -> None:
    """Waits until one of the events is set. Leaves no task behind, even if it is cancelled."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
