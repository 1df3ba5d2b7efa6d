"""Processes within one process: a loop whose clock runs while everything waits, a disk that is slow
on demand, and lives that end at a chosen await without any clean-up.

Sockets and files are real. A life is a set of tasks: dead, they are never stepped again, so no
`finally` of theirs runs, and what they had begun stays half done, as with SIGKILL. What a claim or
a driver is must not be known here.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import selectors
from collections.abc import Callable, Coroutine, Generator
from concurrent import futures
from typing import Any, TypeVar

T = TypeVar("T")

FASTER = (
    1000  # times as fast as the world's clock; data between two sockets of ours needs microseconds
)
# real seconds of a wait, however long it is for the loop: most of a run would be waiting
LONGEST = 0.0003
PATIENCE = 20.0  # real seconds of nothing at all: everybody waits for each other

_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class Loop(asyncio.SelectorEventLoop):
    """Time passes when there is nothing to do: then it passes quickly."""

    def __init__(self) -> None:
        self._selector_of_ours = _Selector()
        super().__init__(self._selector_of_ours)
        self.set_task_factory(_task)
        self.disk = Disk(self)
        self.set_default_executor(self.disk)

    def time(self) -> float:
        return self._selector_of_ours.now


class _Selector(selectors.SelectSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        events = super().select(PATIENCE if timeout is None else min(timeout / FASTER, LONGEST))
        if not events and timeout is None:
            raise AssertionError("everybody waits for something that nobody will bring about")
        if not events and timeout is not None:
            self.now += timeout
        return events


class Life:
    """One process. A moment is a task of it that goes on, or a piece of disk work that begins or
    ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.alive = True
        self.frozen = False
        self.died: asyncio.Future[None] = self._loop.create_future()
        self.at_death: list[Callable[[], None]] = []  # what the kernel does for the dead
        self.tasks: set[asyncio.Task[Any]] = set()
        self._left: int | None = None
        self._parked: list[asyncio.Future[None]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        context = contextvars.copy_context()
        context.run(_life.set, self)
        return self._loop.create_task(work, context=context)

    def die_after(self, moments: int) -> None:
        self._left = moments

    def spare(self) -> None:
        """The death that was planned has not come, and does not come any more."""
        self._left = None

    def die(self) -> None:
        if self.alive:
            self.alive = False
            for release in self.at_death:
                release()
            self.died.set_result(None)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        for parked in self._parked:
            if not parked.done():
                parked.set_result(None)
        self._parked.clear()

    def moment(self) -> asyncio.Future[None] | None:
        """None if life goes on; else what to wait for, which for the dead never comes."""
        if self.alive and not self.frozen and self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.die()
        if self.alive and not self.frozen:
            return None
        # One for each that waits: a timer of the process may cancel it, which must not wake the
        # others.
        self._parked.append(self._loop.create_future())
        return self._parked[-1]

    async def bury(self) -> None:
        """Ends the tasks when the world they died in is no more."""
        self.alive, self._left = True, None
        self.thaw()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Mortal(Coroutine[Any, Any, T]):
    """A coroutine that goes on only while its life does."""

    def __init__(self, inner: Coroutine[Any, Any, T], life: Life) -> None:
        self._inner = inner
        self._alive = life
        self._owed: BaseException | None = None  # brought while frozen

    def send(self, value: Any) -> Any:
        if (wait := self._alive.moment()) is not None:
            return next(wait.__await__())
        owed, self._owed = self._owed, None
        return self._inner.throw(owed) if owed is not None else self._inner.send(None)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        self._owed = kind if isinstance(kind, BaseException) else (value or kind())
        return self.send(None)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()


def _task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    context = more.get("context")
    life = context.get(_life) if context is not None else _life.get()
    if life is None:
        return asyncio.Task(work, loop=loop, **more)
    task = asyncio.Task(_Mortal(work, life), loop=loop, **more)
    life.tasks.add(task)
    task.add_done_callback(life.tasks.discard)
    return task


class Disk(futures.ThreadPoolExecutor):
    """Does the loop's blocking work in the loop, each piece after a delay by dice; the dead's is
    not done.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(1)  # which is never started
        self._loop = loop
        self.dice = random.Random(0)
        self.slow = 0.0  # the longest delay in seconds
        self.look: Callable[[], None] = lambda: None  # after each piece

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> futures.Future[T]:
        result: futures.Future[T] = futures.Future()
        life = _life.get()

        def run(_: object = None) -> None:
            if life is not None and (wait := life.moment()) is not None:
                wait.add_done_callback(run)
            elif result.set_running_or_notify_cancel():
                try:
                    value = work(*arguments, **named)
                except Exception as error:  # noqa: BLE001  it belongs to whoever waits for the work
                    result.set_exception(error)
                else:
                    result.set_result(value)
                self.look()

        self._loop.call_later(self.dice.uniform(0.0, self.slow), run)
        return result
