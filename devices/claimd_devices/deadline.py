"""A deadline for reads. A file of a dead device can block its reader for ever.

`run` does the work in a thread of its own and gives up a read after READ_TIMEOUT. It leaves that
thread behind, refuses reads of the same device until the thread returns, and starts the work again.
So the files of all other devices are still read. This module does not know what a file means.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import failures

READ_TIMEOUT = 2.0  # seconds for one read

# The most threads that one call leaves behind. A device that hangs blocks one thread, however often
# the device is read.
MAX_HUNG_THREADS = 64

_T = TypeVar("_T")
_DEVICE_FILE = re.compile(
    r"(.*?)/(?:sys|proc|dev)/.*?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)"
)

# The devices and files that hang, by `_key`, and the monotonic time of the read that hangs. The
# lock also guards `_Attempt.abandoned`.
_hung: dict[str, float] = {}
_lock = threading.Lock()
_thread = threading.local()  # .attempt: the _Attempt that this thread works for


class DeadlineExceeded(OSError):
    """Raised instead of a read of a device that hangs: an earlier read has not returned in time."""

    def __str__(self) -> str:
        return f"hangs: a read has not come back for more than {READ_TIMEOUT:g} s"


class _Abandoned(BaseException):
    """Ends the thread of an attempt that was given up."""


class _Attempt(Generic[_T]):
    """One execution of the work, in a thread of its own."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self.path: str | None = None  # the file that is being read
        self.since = 0.0
        self.abandoned = False
        self.result: _T | None = None
        self.error: Exception | None = None
        self.done = threading.Event()
        self._work = work
        _start_thread(self._run, "deadline")

    def _run(self) -> None:
        _thread.attempt = self
        try:
            self.result = self._work()
        except _Abandoned:
            return
        except Exception as error:  # noqa: BLE001  it is raised where the result is awaited
            self.error = error
        self.done.set()

    def seconds_left(self) -> float:
        """Returns the time until the current read is late, or READ_TIMEOUT if there is no read."""
        since = self.since if self.path is not None else time.monotonic()
        return max(0.01, since + READ_TIMEOUT - time.monotonic())

    def abandon_if_hung(self) -> bool:
        """Gives the attempt up if its read is late, and marks the device of the read as hung.

        Returns True if the attempt was given up.
        """
        with _lock:
            path = self.path
            if path is None or time.monotonic() - self.since < READ_TIMEOUT:
                return False
            self.abandoned = True
            _hung[_key(path)] = self.since
        return True


def run(work: Callable[[], _T]) -> _T:
    """Returns or raises what `work` returns or raises, even if one of its reads hangs.

    The work may be called several times, so it must have no effect except its result. In each new
    call, reads of the devices that hung before fail with DeadlineExceeded. Each device that hangs
    delays the result by READ_TIMEOUT, once. Raises DeadlineExceeded if more than MAX_HUNG_THREADS
    devices hang.
    """
    for _ in range(MAX_HUNG_THREADS):
        attempt = _Attempt(work)
        while not attempt.done.wait(attempt.seconds_left()):
            if attempt.abandon_if_hung():
                break
        else:
            if attempt.error is not None:
                raise attempt.error
            return attempt.result  # type: ignore[return-value]  # its type is what work returns
    raise DeadlineExceeded


def run_in_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Runs the work in a daemon thread, which does not delay the end of the program.

    A sick device can block a read for ever, and at its end asyncio waits for the threads of its own
    pool. Cancelling the future does not end the work; the result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def deliver(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def target() -> None:
        set_outcome: Callable[[Any], None] = future.set_result
        try:
            outcome: Any = work()
        except Exception as error:  # noqa: BLE001  it is raised where the result is awaited
            set_outcome, outcome = future.set_exception, error

        # The loop may be closed by now, which raises RuntimeError. Then no caller waits for the
        # result.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, set_outcome, outcome)

    _start_thread(target, "scan")
    return future


def _start_thread(target: Callable[[], None], name: str) -> None:
    """Starts a thread, or raises LookFailedError where the process may not have another one."""
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except (RuntimeError, MemoryError) as error:
        raise failures.LookFailedError(f"cannot start a thread: {error}") from error


def begin_read(path: str) -> _Attempt[Any] | None:
    """Starts the clock of a read that may hang. Must be called right before the read.

    Raises DeadlineExceeded if the device hangs already. The caller must pass the returned attempt
    to `end_read`. Returns None outside of `run`, where no clock runs.
    """
    if _hung and _key(path) in _hung:
        raise DeadlineExceeded
    attempt: _Attempt[Any] | None = getattr(_thread, "attempt", None)
    if attempt is not None:
        attempt.since = time.monotonic()
        attempt.path = path
    return attempt


def end_read(attempt: _Attempt[Any]) -> None:
    """Stops the clock of a read, whether the read succeeded or failed.

    Ends the thread if the attempt was given up meanwhile. The device has answered, so it does not
    count as hung any more.
    """
    with _lock:
        path, attempt.path = attempt.path, None
        if attempt.abandoned:
            if path is not None:
                _hung.pop(_key(path), None)
            raise _Abandoned


def is_hung(path: str) -> bool:
    """Returns True if a read of this file, or of another file of the same device, hangs."""
    return _key(path) in _hung


def _key(path: str) -> str:
    """Returns the key of `_hung` for a file: its device, or the path of a file of no device.

    The key contains the root of the tree, because tests and captures have trees of their own.
    """
    match = _DEVICE_FILE.match(path)
    return f"{match[1]}:{match[2]}" if match is not None else path
