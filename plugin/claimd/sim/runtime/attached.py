"""The streams of a container's own command, for a client that is attached to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .container import Container


class Attached:
    """The streams from now until the container ends or the client disconnects; the container stays.

    Standard output and standard error are one stream, as in the container's log.
    """

    def __init__(self, container: Container, *, writes: bool) -> None:
        """Attaches to the container; `writes` connects the client to its standard input."""
        self._container, self._writes = container, writes
        self._from = container.printed_bytes

    async def output(self) -> AsyncIterator[bytes]:
        async for part in self._container.follow(self._from):
            yield part

    async def errors(self) -> AsyncIterator[bytes]:
        """Yields nothing until the container has ended: its errors are part of `output`."""
        await self._container.ended.wait()
        yield b""

    async def write(self, data: bytes) -> None:
        """Writes to the container's input. Raises OSError if the reader has closed it."""
        if self._writes:
            await self._container.write(data)

    def end_input(self) -> None:
        """Closes the container's input only if it serves a single client (stdinOnce)."""
        if self._writes and self._container.config.stdin_once:
            self._container.end_input()

    def resize(self, width: int, height: int) -> None:
        """Does nothing, because there is no terminal."""

    async def wait(self) -> int:
        """Returns 0 when the container has ended; the exit code is in the container's status."""
        await self._container.ended.wait()
        return 0

    def kill(self) -> None:
        """Detaches from the container. May be repeated."""
        with contextlib.suppress(OSError):
            self.end_input()
