"""The event loop, with look-ups of names in threads of their own.

A resolver that is silent holds its thread for many seconds: that must hold up neither the disk
work, which has the loop's pool of threads, nor the end of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any


class Loop(asyncio.SelectorEventLoop):
    """Look-ups that are under way are shared: those who ask the same wait for one thread."""

    def __init__(self) -> None:
        super().__init__()
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
