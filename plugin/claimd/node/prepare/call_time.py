"""The time of one call of the kubelet, and how it is divided.

The kubelet waits 45 seconds for an answer. It tries again only after 60 to 90 seconds. If a problem
may pass soon, we therefore wait within the call. The time of a call ends in this order:

    the driver stops trying     MARGIN before the deadline
    every claim is answered     LAST_CALL before the deadline, even if its work still hangs
    the kubelet gives up        at the deadline
"""

from __future__ import annotations

import asyncio

# Seconds that a kubelet waits for an answer.
CALL_TIMEOUT = 45.0

# Seconds before the deadline at which the driver stops trying and says why.
MARGIN = 2.0

# Seconds before the deadline at which each claim is answered, even if a disk or the kernel delays
# its work. This is after MARGIN, so that the driver's own message usually comes first.
LAST_CALL = 1.0

# Seconds within one call in which a failing API server is asked again.
API_PATIENCE = 40.0

# Seconds that the API server has for its answer if we could also answer from a checkpoint. It is
# asked only once then.
CHECKPOINT_PATIENCE = 3.0

# Seconds that one request may take, so that a call has time for another try.
REQUEST_TIMEOUT = 10.0

# The least seconds for another try. A shorter try would end with a timeout, and the timeout would
# hide the API server's answer to the try before.
SHORTEST_TRY = 1.0


class CallTime:
    """The important moments of one call, by the clock of the running loop."""

    __slots__ = ("deadline", "work_ends")

    def __init__(self, deadline: float) -> None:
        """Takes as `deadline` the moment at which the kubelet gives up."""
        self.deadline = deadline
        self.work_ends = deadline - MARGIN

    @classmethod
    def starting_now(cls, remaining: float | None) -> CallTime:
        """Returns the time of a call that begins now.

        `remaining` is the number of seconds that the caller says it waits, or None if it does not
        say. A caller that would wait longer than a kubelet gets only the time of a kubelet.
        """
        seconds = CALL_TIMEOUT if remaining is None else min(remaining, CALL_TIMEOUT)
        return cls(asyncio.get_running_loop().time() + seconds)

    def last_call(self) -> float:
        """Returns the moment at which every claim is answered, even if its work still waits."""
        remaining = self.deadline - asyncio.get_running_loop().time()

        # A caller that waits less than two seconds leaves half of its time to the work.
        return self.deadline - min(LAST_CALL, remaining / 2)

    def request_timeout(self, *, has_checkpoint: bool) -> float:
        """Returns the seconds that one request for the claim may take now."""
        patience = CHECKPOINT_PATIENCE if has_checkpoint else API_PATIENCE
        remaining = self.work_ends - asyncio.get_running_loop().time()
        return min(max(0.1, min(patience, remaining)), REQUEST_TIMEOUT)

    def allows_retry(self, pause: float, waiting_since: float, patience: float) -> bool:
        """Returns True if there is time for another try after `pause` seconds.

        The problem may pass within `patience` seconds after `waiting_since`.
        """
        next_try = asyncio.get_running_loop().time() + pause
        return next_try <= min(self.work_ends - SHORTEST_TRY, waiting_since + patience)
