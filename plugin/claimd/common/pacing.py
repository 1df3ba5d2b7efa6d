"""When to act again: a backoff after failures, a token bucket against too many writes, and waits
that an event ends early.

Everything here goes by the running loop's clock and remembers nothing but times. Which failures
are worth another try, and what is written, is decided by the callers.
"""

from __future__ import annotations

import asyncio
import random

# By which numbers the seconds that a server asks us to wait are multiplied.
ASKED_JITTER = (1.0, 1.5)


def between(low: float, high: float) -> float:
    """Any number of these, another at each call: what all nodes of a cluster do on their own must
    not come upon the API server in one moment.
    """
    return random.uniform(low, high)  # noqa: S311 - spreads load, hides nothing


class Backoff:
    """How long to wait before the next try: twice as long after each failure, up to a limit.

    With `jitter`, each delay is multiplied by a random number between the two bounds. A node plugin
    runs on every node of a cluster and all of them lose the API server in the same moment: without
    jitter they would all come back in the same moment, too.
    """

    def __init__(
        self, first: float, longest: float, *, jitter: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        """`first` and `longest` are seconds, before jitter."""
        self.failures = 0  # since the last reset
        self._first, self._longest, self._jitter = first, longest, jitter

    def next_delay(self) -> float:
        """Counts one more failure; the seconds to wait after it."""
        # The exponent is bounded since a float overflows after a thousand doublings.
        delay = min(self._longest, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return delay * between(*self._jitter)

    def reset(self) -> None:
        """It worked: the next failure is the first again."""
        self.failures = 0


def not_before(delay: float, asked: float | None) -> float:
    """The delay, or longer where a server has asked us to wait; both in seconds.

    A server that is flooded asks all of a cluster's nodes to wait for the same number of seconds:
    to each something of its own is added, so that they do not come back as one.
    """
    if asked is None:
        return delay
    return max(delay, asked * between(*ASKED_JITTER))


class TokenBucket:
    """At most `burst` at once and `rate` a second in the long run.

    Waiting for a token and taking it are two steps, so that a caller can wait first, then look at
    the world as it is now, and take the token only if there is something to write. One task at a
    time may use a bucket.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._tokens = float(burst)
        self._counted_at = 0.0  # when `_tokens` was true, by the loop's clock

    async def ready(self) -> None:
        """Returns when there is a token, and leaves it there."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            earned = (now - self._counted_at) * self._rate
            self._tokens, self._counted_at = min(self._burst, self._tokens + earned), now
            if self._tokens >= 1.0:
                return
            await asyncio.sleep((1.0 - self._tokens) / self._rate)

    def take(self) -> None:
        """Uses the token that `ready` has waited for."""
        self._tokens -= 1.0


async def wait(event: asyncio.Event, timeout: float | None) -> bool:
    """Waits for the event, at most so many seconds; whether it is set. None waits for ever."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_for_any(*events: asyncio.Event) -> None:
    """Returns when one of the events is set. Leaves no task behind, also if it is cancelled."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
