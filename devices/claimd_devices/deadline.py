"""Reads that may never come back: a file of a dead device can block its reader for ever.

`run` has the work done by a thread of its own and gives up a read after a deadline. That thread is
left behind, what it was about is not touched until it returns, and the work begins anew: everybody
else's files are read as ever. What a file means must not go in here.
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

# Threads that one call leaves behind. A device that hangs has one, however often it is asked about.
MAX_HUNG_THREADS = 64

_T = TypeVar("_T")
_DEVICE_FILE = re.compile(
    r"(.*?)/(?:sys|proc|dev)/.*?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)"
)

# What hangs, by `_key`, and since when by the monotonic clock. The lock also guards `abandoned`.
_hung: dict[str, float] = {}
_lock = threading.Lock()
_thread = threading.local()  # .attempt: what this thread is doing


class DeadlineExceeded(OSError):
    """Somebody has waited for this read for too long already."""

    def __str__(self) -> str:
        return f"hangs: a read has not come back for more than {READ_TIMEOUT:g} s"


class _Abandoned(BaseException):
    """Ends a thread that nobody waits for any more."""


class _Attempt(Generic[_T]):
    """The work, tried once by a thread of its own."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self.path: str | None = None  # being read
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
        """Until the read under way has had its time; a whole read's time if there is none."""
        since = self.since if self.path is not None else time.monotonic()
        return max(0.01, since + READ_TIMEOUT - time.monotonic())

    def abandon_if_hung(self) -> bool:
        """Gives the attempt up if its read has had its time, and remembers what it was about."""
        with _lock:
            path = self.path
            if path is None or time.monotonic() - self.since < READ_TIMEOUT:
                return False
            self.abandoned = True
            _hung[_key(path)] = self.since
        return True


def run(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises, whatever hangs meanwhile.

    The work may be called several times, each time without what hung the time before: it must have
    no effect but its result. Each device that hangs costs READ_TIMEOUT, once. DeadlineExceeded if
    more devices hang than threads can be left behind.
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
    """Runs the work in a thread that does not hold up the program's end.

    A sick device can block a read for ever, and the loop's own pool of threads is waited for at the
    end. Whoever gives up the future does not end the work, and its result is dropped.
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

        # RuntimeError: the loop is closed, so nobody waits any more.
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
    """Before a read that may hang. DeadlineExceeded for what hangs already.

    What it returns must be given to `end_read`. None outside of `run`, where nothing is watched.
    """
    if _hung and _key(path) in _hung:
        raise DeadlineExceeded
    attempt: _Attempt[Any] | None = getattr(_thread, "attempt", None)
    if attempt is not None:
        attempt.since = time.monotonic()
        attempt.path = path
    return attempt


def end_read(attempt: _Attempt[Any]) -> None:
    """After it, whatever became of it. Ends the thread if nobody waits for it any more."""
    with _lock:
        path, attempt.path = attempt.path, None
        if attempt.abandoned:
            if path is not None:
                _hung.pop(_key(path), None)
            raise _Abandoned


def is_hung(path: str) -> bool:
    """Whether a read of this, or of another file of the same device, is not back."""
    return _key(path) in _hung


def _key(path: str) -> str:
    """All files of a device share their fate. The tree is a part of it: there may be several."""
    match = _DEVICE_FILE.match(path)
    return f"{match[1]}:{match[2]}" if match is not None else path
