"""The event loop, with look-ups of names in threads of their own, and few questions to the kernel.

A resolver that is silent holds its thread for many seconds: that must hold up neither the disk
work, which has the loop's pool of threads, nor the end of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
from typing import Any

# Turns of the loop that go by what is known, while there is something to do, before the kernel is
# asked what has arrived.
TURNS_UNASKED = 8


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

    async def getaddrinfo(self, *where: Any, **how: Any) -> Any:
        question = (*where, *sorted(how.items()))
        pending = self._pending.get(question)
        if pending is None:
            pending = self._pending[question] = self.create_future()
            pending.add_done_callback(lambda _: self._pending.pop(question, None))
            # A daemon: the program does not wait for it at its end.
            threading.Thread(
                target=self._look_up, args=(pending, where, how), name="lookup", daemon=True
            ).start()

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
