"""The streams of a container's own command, for whoever is attached to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .container import Container


class Attached:
    """From now until the container ends, or whoever is attached goes; the container stays.

    What it prints to both its outputs is one stream here, as in its log.
    """

    def __init__(self, container: Container, *, writes: bool) -> None:
        """`writes`: to the container's standard input, where it has one."""
        self._container, self._writes = container, writes
        self._from = container.printed

    async def output(self) -> AsyncIterator[bytes]:
        async for part in self._container.follow(self._from):
            yield part

    async def errors(self) -> AsyncIterator[bytes]:
        """Nothing, when the container has ended."""
        await self._container.ended.wait()
        yield b""

    async def write(self, data: bytes) -> None:
        """OSError if nobody reads it any more."""
        if self._writes:
            await self._container.write(data)

    def end_input(self) -> None:
        """The container's input ends only where it is for one alone."""
        if self._writes and self._container.config.stdin_once:
            self._container.end_input()

    def resize(self, width: int, height: int) -> None:
        """There is no terminal."""

    async def wait(self) -> int:
        """0 when the container has ended, however it has: that is its status' to tell."""
        await self._container.ended.wait()
        return 0

    def kill(self) -> None:
        """Lets go of it. May be called again."""
        with contextlib.suppress(OSError):
            self.end_input()
