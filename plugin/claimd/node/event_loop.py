"""The event loop: asyncio's, with few questions to the kernel, and threads that cost little.

A claim comes when the process has slept for long, so that whatever code it needs has to be fetched
from memory first. To hand work to a thread by asyncio's own means costs three times what it costs
here, and a claim does it twice.

Names are looked up in threads of their own. A resolver that is silent holds its thread for many
seconds: that must hold up neither the disk work nor the end of the program.
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

# Turns of the loop that go by what is known, while there is something to do, before the kernel is
# asked what has arrived.
TURNS_UNASKED = 8
# Threads at most. A call has up to 32 claims, which wait for the disk together; a thread is made
# when it is needed, so an idle node has one.
THREADS = 32


class _Selector(selectors.EpollSelector):
    """Asks the kernel in some of the turns alone in which nobody would wait for its answer.

    asyncio asks in every turn. Of the fifty that a claim takes, three in four only go on with what
    is ready: to ask in each of them is a tenth of what a claim costs.
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
    """Look-ups that are under way are shared: those who ask the same wait for one thread."""

    def __init__(self) -> None:
        super().__init__(_Selector())
        self._pending: dict[tuple[Any, ...], asyncio.Future[Any]] = {}
        self._threads = _Threads(self)

    def run_in_executor(  # type: ignore[override]  # its own has type variables for `args`
        self, executor: futures.Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """As asyncio's; where no executor is named, the threads are the loop's own, and are daemons.

        Work that was cancelled before it began is done all the same, and `set_default_executor`
        changes nothing.
        """
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        return self._threads.run(functools.partial(func, *args) if args else func)

    async def getaddrinfo(self, *where: Any, **how: Any) -> Any:
        question = (*where, *sorted(how.items()))
        pending = self._pending.get(question)
        if pending is None:
            pending = self._pending[question] = self.create_future()
            pending.add_done_callback(lambda _: self._pending.pop(question))
            # A daemon: the program does not wait for it at its end.
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

        # Who gives up must not take the answer from the others.
        addresses, error = await asyncio.shield(pending)
        if error is not None:
            raise error
        return addresses

    def _look_up(
        self, pending: asyncio.Future[Any], where: tuple[Any, ...], how: dict[str, Any]
    ) -> None:
        """In the thread. An error is handed over as a value: nobody may be left to hear of it."""
        result: tuple[Any, OSError | None]
        try:
            result = socket.getaddrinfo(*where, **how), None
        except OSError as error:
            result = None, error
        except UnicodeError:  # from the codec of internationalized names
            result = None, socket.gaierror(socket.EAI_NONAME, f"{where[0]!r} is no host name")
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self.call_soon_threadsafe(pending.set_result, result)


class _Threads:
    """Does work for the loop, by as many threads as there is work at once, up to THREADS.

    They are daemons: whoever needs that the work comes to its end waits for it.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]]]
        self._jobs = queue.SimpleQueue()

        # Both are the loop's alone.
        self._count = 0
        self._under_way = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What the work returns or raises. From the loop's thread only."""
        if self._count < min(self._under_way + 1, THREADS):
            self._start()
        future: asyncio.Future[T] = self._loop.create_future()
        self._under_way += 1
        self._jobs.put((future, work))
        return future

    def _start(self) -> None:
        """One thread more. RuntimeError if there can be none and there is none."""
        name = f"claimd_{self._count + 1}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError:
            if not self._count:
                raise
        else:
            self._count += 1

    def _serve(self) -> None:
        """In a thread, for ever."""
        while True:
            future, work = self._jobs.get()
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - whoever waits for it hears of it
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._finish, future, result, error)
            except RuntimeError:
                return  # the loop is closed, and nobody waits any more
            # While this thread waits for more, it keeps nothing of what was.
            del future, work, result, error

    def _finish(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        self._under_way -= 1
        if future.done():
            return  # nobody waited for it any more
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
