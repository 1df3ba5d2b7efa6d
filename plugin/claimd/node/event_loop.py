"""The event loop: asyncio's, with fewer calls of the kernel and cheaper threads.

A claim usually arrives after the process has slept for a long time, when the processor's caches do
not have its code any more. So each line of code counts. asyncio's own way to pass work to a thread
costs three times as much as this one, and a claim does that twice.

Name lookups have their own threads. A resolver that does not answer blocks its thread for many
seconds. This must delay neither the work on disk nor the end of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import queue
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

T = TypeVar("T")

# Turns of a busy loop without a call of epoll_wait.
TURNS_UNASKED = 8

# The largest number of threads. A call has up to 32 claims, which wait for the disk together. A
# thread is started when it is needed, so an idle node has one.
THREADS = 32


class _Selector(selectors.EpollSelector):
    """Skips most calls of epoll_wait that would not block anyway.

    asyncio calls the kernel in every turn. A claim takes fifty turns, and three quarters of them
    only continue work that is ready. The calls in these turns would be a tenth of a claim's cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._unasked = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and self._unasked < TURNS_UNASKED:
            self._unasked += 1
            return []
        self._unasked = 0
        return super().select(timeout)


class Loop(asyncio.SelectorEventLoop):
    """The event loop. Equal name lookups at the same time share one thread."""

    def __init__(self) -> None:
        super().__init__(_Selector())
        self._pending: dict[tuple[Any, ...], asyncio.Future[Any]] = {}
        self._threads = _Threads(self)

    def run_in_executor(  # type: ignore[override]  # its own has type variables for `args`
        self, executor: futures.Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs `func` in a thread, like asyncio's method. The default threads are daemons.

        Differences from asyncio: work that is cancelled before it begins is done nevertheless, and
        `set_default_executor` has no effect.
        """
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        return self._threads.run(functools.partial(func, *args) if args else func)

    async def getaddrinfo(self, *where: Any, **how: Any) -> Any:
        # Use the result of a lookup that is running already.
        question = (*where, *sorted(how.items()))
        pending = self._pending.get(question)
        if pending is None:
            pending = self._pending[question] = self.create_future()
            pending.add_done_callback(lambda _: self._pending.pop(question))

            # The thread is a daemon, so that the program does not wait for it at its end.
            thread = threading.Thread(
                target=self._look_up, args=(pending, where, how), name="lookup", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as none_left:
                del self._pending[question]
                raise OSError(
                    errno.EAGAIN, f"the name cannot be looked up: {none_left}"
                ) from none_left

        # A caller that is cancelled must not cancel the lookup for others.
        addresses, error = await asyncio.shield(pending)
        if error is not None:
            raise error
        return addresses

    def _look_up(
        self, pending: asyncio.Future[Any], where: tuple[Any, ...], how: dict[str, Any]
    ) -> None:
        """Runs in the thread. An error is passed as a value, since perhaps no caller is left."""
        result: tuple[Any, OSError | None]
        try:
            result = socket.getaddrinfo(*where, **how), None
        except OSError as error:
            result = None, error
        except UnicodeError:  # from the codec of internationalized names
            result = None, socket.gaierror(socket.EAI_NONAME, f"{where[0]!r} is no host name")
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.call_soon_threadsafe(pending.set_result, result)


class _Threads:
    """The loop's own threads: as many as there is work at the same time, up to THREADS.

    The threads are daemons. A caller that needs the work to complete must wait for it.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]]]
        self._jobs = queue.SimpleQueue()

        # Only the loop's thread uses these: threads that run, and work that has not ended.
        self._count = 0
        self._under_way = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Returns a future of the work's result. Must be called in the loop's thread."""
        if self._count < min(self._under_way + 1, THREADS):
            self._start()
        future: asyncio.Future[T] = self._loop.create_future()
        self._under_way += 1
        self._jobs.put((future, work))
        return future

    def _start(self) -> None:
        """Starts one more thread. Raises OSError if that fails and there is no thread."""
        name = f"claimd_{self._count + 1}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if not self._count:
                raise OSError(errno.EAGAIN, f"no thread for the work: {error}") from error
        else:
            self._count += 1

    def _serve(self) -> None:
        """Runs in a thread until the loop is closed."""
        while True:
            future, work = self._jobs.get()
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - the future raises it
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._finish, future, result, error)
            except RuntimeError:
                return  # the loop is closed

            # A waiting thread must not keep old results alive.
            del future, work, result, error

    def _finish(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        self._under_way -= 1
        if future.done():
            return  # the caller was cancelled
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
