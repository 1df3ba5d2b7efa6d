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
    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[
            tuple[Any, ...], asyncio.Future[Any]
        ] = {}  # under way; many who ask the same share a thread

    async def getaddrinfo(self, *where: Any, **how: Any) -> Any:
        question = (*where, *sorted(how.items()))
        answer = self._asked.get(question)
        if answer is None:
            answer = self._asked[question] = self.create_future()
            answer.add_done_callback(lambda _: self._asked.pop(question, None))
            look = threading.Thread(
                target=self._look, args=(answer, where, how), name="lookup", daemon=True
            )
            look.start()
        found, error = await asyncio.shield(answer)
        if error is not None:
            raise error
        return found

    def _look(
        self, answer: asyncio.Future[Any], where: tuple[Any, ...], how: dict[str, Any]
    ) -> None:
        try:
            result: tuple[Any, OSError | None] = socket.getaddrinfo(*where, **how), None
        except OSError as error:
            result = None, error
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self.call_soon_threadsafe(answer.set_result, result)
