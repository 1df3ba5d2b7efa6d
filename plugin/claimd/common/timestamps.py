"""Timestamps in the format of Kubernetes and the log: RFC 3339 in UTC, with Z as the zone."""

from __future__ import annotations

import functools
import math
import time


def rfc3339(seconds: float, digits: int = 0) -> str:
    """Formats a time, given in seconds since 1970, with `digits` decimal places of the second.

    Times of objects have none (metav1.Time); those of events and leases have six
    (metav1.MicroTime).
    """
    text = _to_the_second(math.floor(seconds))
    if digits:
        fraction = int(seconds % 1 * 10**digits)
        text += f".{fraction:0{digits}d}"
    return f"{text}Z"


# The log lines about a claim are usually written within one second.
@functools.lru_cache(maxsize=4)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def now() -> str:
    """Returns the present time, without decimal places."""
    return rfc3339(time.time())
