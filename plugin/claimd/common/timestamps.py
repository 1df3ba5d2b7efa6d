"""Times as Kubernetes and the log write them: RFC 3339 in UTC, with Z for the zone."""

from __future__ import annotations

import functools
import math
import time


def rfc3339(seconds: float, digits: int = 0) -> str:
    """The time so many seconds after 1970, cut to `digits` of a second.

    An object's times have none (metav1.Time), those of events and leases six (metav1.MicroTime).
    """
    text = _to_the_second(math.floor(seconds))
    if digits:
        fraction = int(seconds % 1 * 10**digits)
        text += f".{fraction:0{digits}d}"
    return f"{text}Z"


# What happens to a claim happens within a second, and several lines of it tell when.
@functools.lru_cache(maxsize=4)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def now() -> str:
    """This moment, to the second."""
    return rfc3339(time.time())
