"""A kill in the middle of a prepare: the disk hangs between a claim's record and its CDI file;
there the plugin dies.

Where the plugin would write the CDI file, a pipe lies that nobody reads: it is no matter of luck
when the kill comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from .. import names
from . import daemon

_GLANCE = 0.005  # seconds between two looks for a record


class CrashInPrepare:
    """Of one plugin, once. `records` and `cdi` are the folders that it writes to."""

    def __init__(self, daemon_: daemon.Daemon, records: Path, cdi: Path, driver: str) -> None:
        self._daemon, self._records, self._cdi, self._driver = daemon_, records, cdi, driver
        self._before = self.recorded()
        self._pipes: dict[str, Path] = {}  # by the claim's uid

    def recorded(self) -> set[str]:
        """The uids of the claims that have a record."""
        return {path.stem for path in self._records.glob("*.json")}

    def hang(self, uid: str) -> None:
        """If this claim is prepared next, its CDI file will not be written."""
        if uid not in self._before:
            self._pipes[uid] = self._cdi / names.cdi_unfinished(names.cdi_file(self._driver, uid))
            self._lay()

    def _lay(self) -> None:
        """A plugin that starts sweeps away what is unfinished, pipes as well."""
        for pipe in self._pipes.values():
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe)

    async def kill(self, within: float) -> str:
        """Kills it as soon as a new record is there; what was on disk then. TimeoutError if there
        is none in time.
        """
        try:
            async with asyncio.timeout(within):
                while not (new := self.recorded() - self._before):
                    self._lay()
                    await asyncio.sleep(_GLANCE)
            self._daemon.kill()
            written = [
                uid for uid in new if (self._cdi / names.cdi_file(self._driver, uid)).exists()
            ]
            return (
                "the record and the CDI file were written"
                if written
                else "the record was written, the CDI file not"
            )
        finally:
            self._clear()

    def _clear(self) -> None:
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # who waits there, goes on
                pipe.unlink()
                os.close(reader)
