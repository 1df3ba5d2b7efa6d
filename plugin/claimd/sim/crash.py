"""A kill in the middle of a prepare: the disk hangs between a claim's checkpoint and its CDI file;
there the plugin dies.

Where the plugin would write the CDI file, a pipe lies that nobody reads: it is no matter of luck
when the kill comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from claimd.common import durable, names

from . import daemon

_POLL = 0.005  # seconds between two looks for a checkpoint


class CrashInPrepare:
    """Of one plugin, once."""

    def __init__(self, daemon_: daemon.Daemon, checkpoints: Path, cdi: Path, driver: str) -> None:
        """`checkpoints` and `cdi` are the folders that the plugin writes to."""
        self._daemon, self._checkpoints = daemon_, checkpoints
        self._cdi, self._driver = cdi, driver
        self._before = self.prepared_claims()
        self._pipes: dict[str, Path] = {}  # by the claim's uid

    def prepared_claims(self) -> set[str]:
        """The uids of the claims that have a checkpoint."""
        return {path.stem for path in self._checkpoints.glob("*.json")}

    def hang_at(self, uid: str) -> None:
        """If this claim is prepared next, its CDI file will not be written."""
        if uid not in self._before:
            self._pipes[uid] = self._cdi / durable.unfinished_name(
                names.cdi_file(self._driver, uid)
            )
            self._make_pipes()

    async def kill(self, within: float) -> str:
        """Kills the plugin as soon as there is a new checkpoint, and says what was on disk then.

        TimeoutError if there is none in time. Either way nothing of ours is left in the CDI folder.
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
        """Again and again: a plugin that starts removes what is unfinished, pipes as well."""
        for pipe in self._pipes.values():
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe)

    def _remove_pipes(self) -> None:
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                # Whoever waits for a reader goes on when there is one.
                reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
                pipe.unlink()
                os.close(reader)
