"""Checks that our own sockets accept connections and that gRPC answers on them.

A probe asks for the result of the last check, which requests the next one. So a node without probes pays
nothing, and a flood of probes costs one check a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

# Seconds for the first bytes of gRPC, and the least seconds between two checks.
PATIENCE, SPACING = 2.0, 1.0


class SelfCheck:
    """Checks the sockets whenever somebody has asked, while `run` runs."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._failure = ""
        self._asked = -SPACING  # by the monotonic clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Checks until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._failure = await self._check()

    def failure(self) -> str:
        """Returns why a socket did not answer at the last check; empty if all did.

        Requests another check. May be called in any thread.
        """
        now = time.monotonic()
        if self._loop is not None and now - self._asked >= SPACING:
            self._asked = now
            self._loop.call_soon_threadsafe(self._wanted.set)
        return self._failure

    async def _check(self) -> str:
        for path in self._paths:
            try:
                async with asyncio.timeout(PATIENCE):
                    await _hear(path)
            except TimeoutError:
                return f"nobody answers at our own socket {path} within {PATIENCE:g} s"
            except OSError as error:
                return f"nobody answers at our own socket {path}: {error.strerror or error}"
        return ""


async def _hear(path: Path) -> None:
    """Connects and waits for the settings that gRPC sends first. Raises OSError without them."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        if not await reader.read(1):
            raise ConnectionResetError("the connection was closed")
    finally:
        writer.close()
