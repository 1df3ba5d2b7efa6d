"""Waiting for a fact with a deadline. Nothing else waits, and nothing sleeps for the sake of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# Seconds at least, however few a caller expects: control plane, kubelet, the plugin and the tests
# may share two cores. What has to be quick is measured by whoever says so.
BUSY = 60.0


def wait_for(
    what: str, look: Callable[[], Found], seconds: float = 60, every: float = 0.2
) -> Found:
    """What `look` says as soon as it is true. An AssertionError of `look` means "not yet" and says
    why.
    """
    seconds = max(seconds, BUSY)
    end = time.monotonic() + seconds
    while True:
        reason = "it was not so"
        try:
            if fact := look():
                return fact
        except AssertionError as error:
            reason = str(error)
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s for {what}: {reason}")
        time.sleep(every)
