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

READ_TIMEOUT = 2.0  # seconds for one read
# threads that one call leaves behind; a device that hangs has one, however often it is asked about
MAX_HUNG_THREADS = 64

_T = TypeVar("_T")
_OF_DEVICE = re.compile(
    r"(.*?)/(?:sys|proc|dev)/.*?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)"
)
_lock = threading.Lock()
_hung: dict[str, float] = {}  # what hangs, and since when by the monotonic clock
_here = threading.local()


class DeadlineExceeded(OSError):
    """Somebody has waited for this for too long already."""

    def __str__(self) -> str:
        return f"hangs: a read has not come back for more than {READ_TIMEOUT:g} s"


class _Abandoned(BaseException):
    """Ends a thread that nobody waits for any more."""


class _Attempt(Generic[_T]):
    def __init__(self, work: Callable[[], _T]) -> None:
        self.path: str | None = None  # being read
        self.since = 0.0
        self.abandoned = False
        self.result: _T | None = None
        self.error: Exception | None = None
        self.done = threading.Event()
        self._work = work
        threading.Thread(target=self._run, name="deadline", daemon=True).start()

    def _run(self) -> None:
        _here.attempt = self
        try:
            self.result = self._work()
        except _Abandoned:
            return
        except Exception as error:  # noqa: BLE001  it is raised where the result is awaited
            self.error = error
        self.done.set()


def run(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises. It may be called several times: each time without what hung
    the time before.
    """
    for _ in range(MAX_HUNG_THREADS):
        attempt = _Attempt(work)
        while not attempt.done.wait(_patience(attempt)):
            if _give_up(attempt):
                break
        else:
            if attempt.error is not None:
                raise attempt.error
            return attempt.result  # type: ignore[return-value]  # its type is what work returns
    raise DeadlineExceeded


def run_in_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    """Runs it in a thread of its own that does not hold up the program's end: a sick device can
    block a read for ever, and the loop's own pool of threads is waited for at the end.
    """
    loop = asyncio.get_running_loop()
    promise: asyncio.Future[_T] = loop.create_future()

    def deliver(set_: Callable[[_T], None] | Callable[[Exception], None], what: Any) -> None:
        if not promise.done():
            set_(what)

    def begin() -> None:
        try:
            outcome: tuple[Any, Any] = promise.set_result, work()
        except Exception as error:  # noqa: BLE001  it is raised where the result is awaited
            outcome = promise.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits any more
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=begin, name="scan", daemon=True).start()
    return promise


def begin_read(path: str) -> None:
    """Before a read that may hang; raises DeadlineExceeded for what hangs already. Outside of `run` nothing is
    watched.
    """
    if _hung and _key(path) in _hung:
        raise DeadlineExceeded
    attempt = getattr(_here, "attempt", None)
    if attempt is not None:
        attempt.since = time.monotonic()
        attempt.path = path


def end_read() -> None:
    """After it, whatever became of it."""
    attempt = getattr(_here, "attempt", None)
    if attempt is None:
        return
    with _lock:
        path, attempt.path = attempt.path, None
        if attempt.abandoned:
            if path is not None:
                _hung.pop(_key(path), None)
            raise _Abandoned


def is_hung(path: str) -> bool:
    """Whether a read of this, or of another file of the same device, is not back."""
    return _key(path) in _hung


def _patience(attempt: _Attempt[_T]) -> float:
    since = attempt.since if attempt.path is not None else time.monotonic()
    return max(0.01, since + READ_TIMEOUT - time.monotonic())


def _give_up(attempt: _Attempt[_T]) -> bool:
    with _lock:
        path = attempt.path
        if path is None or time.monotonic() - attempt.since < READ_TIMEOUT:
            return False
        attempt.abandoned = True
        _hung[_key(path)] = attempt.since
    return True


def _key(path: str) -> str:
    """All files of a device share their fate. The root is a part of it: there may be several trees."""
    found = _OF_DEVICE.match(path)
    return f"{found[1]}:{found[2]}" if found else path
