"""Waits for a fact with a deadline. The suite has no other way to wait for a fact."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# The least time to wait in seconds, even if a caller expects less: control plane, kubelet, plugin
# and tests may share two cores. A test that promises a shorter time measures it.
BUSY = 60.0


def wait_for(
    what: str, look: Callable[[], Found], seconds: float = 60, every: float = 0.2
) -> Found:
    """Calls `look` until it returns something true, and returns that.

    An AssertionError of `look` means "not yet". The last one is in the message if time runs out.
    """
    seconds = max(seconds, BUSY)
    end = time.monotonic() + seconds
    while True:
        reason = "it is not so yet"
        try:
            if fact := look():
                return fact
        except AssertionError as error:
            reason = str(error)
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s for {what}, without success: {reason}")
        time.sleep(every)
