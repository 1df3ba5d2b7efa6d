"""A kill in the middle of a prepare: after the claim's checkpoint, before its CDI file.

A named pipe without a reader replaces the unfinished CDI file. The plugin blocks on it, so the
moment of the kill is exact.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from claimd.common import durable, names

from . import daemon

_POLL = 0.005  # seconds between two checks for a checkpoint


class CrashInPrepare:
    """One kill of one plugin in a prepare."""

    def __init__(self, daemon_: daemon.Daemon, checkpoints: Path, cdi: Path, driver: str) -> None:
        """Remembers the present claims. The plugin writes into `checkpoints` and `cdi`."""
        self._daemon, self._checkpoints = daemon_, checkpoints
        self._cdi, self._driver = cdi, driver
        self._before = self.prepared_claims()
        self._pipes: dict[str, Path] = {}  # by the claim's uid

    def prepared_claims(self) -> set[str]:
        """Returns the uids of the claims that have a checkpoint."""
        return {path.stem for path in self._checkpoints.glob("*.json")}

    def hang_at(self, uid: str) -> None:
        """Makes the plugin hang when it writes this claim's CDI file, unless the claim is prepared
        already.
        """
        if uid not in self._before:
            self._pipes[uid] = self._cdi / durable.unfinished_name(
                names.cdi_file(self._driver, uid)
            )
            self._make_pipes()

    async def kill(self, within: float) -> str:
        """Kills the plugin as soon as there is a new checkpoint; describes the files on disk at
        that time.

        Raises TimeoutError if no new checkpoint appears in time. In both cases the pipes are
        removed.
        """
        try:
            async with asyncio.timeout(within):
                while not (new := self.prepared_claims() - self._before):
                    self._make_pipes()
                    await asyncio.sleep(_POLL)
            self._daemon.kill()
            files = [self._cdi / names.cdi_file(self._driver, uid) for uid in new]
            if any(file.exists() for file in files):
                return "the record and the CDI file were written"
            return "the record was written, the CDI file not"
        finally:
            self._remove_pipes()

    def _make_pipes(self) -> None:
        """Recreates missing pipes, because a starting plugin removes unfinished files."""
        for pipe in self._pipes.values():
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe)

    def _remove_pipes(self) -> None:
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                # A process that blocks on the pipe continues when there is a reader.
                reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
                pipe.unlink()
                os.close(reader)
