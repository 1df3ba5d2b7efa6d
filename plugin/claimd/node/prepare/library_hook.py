"""The program that makes a container's loader know libraries which are mounted into it.

A container runtime runs it on the host, so it is put into a folder of the host's. What it does, and
why an image cannot misuse it, stands in its source, deploy/ld-cache/claimd-ld-cache.c.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from claimd.common import durable, names

from . import claim_files

log = logging.getLogger(__name__)

_SECONDS = 5.0
# How files are called while they are written, and seconds after which nobody writes one any more.
_UNFINISHED = f".{names.LIBRARY_HOOK}-"
_LEFT_BEHIND = 60.0


class LibraryHook:
    """Keeps the program where runtimes find it, as long as somebody asks for it.

    Without it programs find the libraries in the usual folders all the same; what they miss is
    ldconfig, and musl's loader.
    """

    def __init__(self, program: Path, folder: str) -> None:
        """`program` is our own copy. `folder` has the same path on the host; empty: it has none."""
        self._program = program
        self._folder = folder
        self._installing = asyncio.Lock()
        # What the installed file looked like, and whether it could be run.
        self._mark: tuple[int, int, int] | None = None
        self._works = False
        self._has_worked = False
        self._trouble = ""

    @property
    def path(self) -> str | None:
        """Where it was on the host when it was last ensured; None if it could not be run there.

        A runtime that finds no program at a path that it was told refuses to start the container:
        so it is only told what was seen to run.
        """
        return self._target if self._works else None

    async def ensure(self) -> None:
        """Installs it if it is not there, or not as it was seen to run.

        May be repeated at any time: as long as nothing has changed it costs a look. The program is
        written and tried in a thread, since a disk or a program may take its time.
        """
        if not self._folder:
            return

        async with self._installing:
            mark = durable.mark(self._target)
            if mark is None or mark != self._mark:
                await durable.in_thread(self._install)

    def is_disturbed(self) -> bool:
        """Whether the program is gone or was changed since it was told."""
        if self._mark is None:
            return False
        return durable.mark(self._target) != self._mark

    @property
    def _target(self) -> str:
        return f"{self._folder}/{names.LIBRARY_HOOK}"

    def _install(self) -> None:
        """Of two instances of claimd the one that started last has its program there.

        During an update the older one finds another program in the place of its own, and leaves it
        if it runs: else the two would write theirs in turn for as long as both live.
        """
        mark = durable.mark(self._target)
        if self._has_worked and mark is not None and self._runs():
            self._mark = mark
            return

        # What did not work is tried again by whoever ensures it next.
        self._mark = self._put_and_try(self._target)
        self._works = self._mark is not None

    def _put_and_try(self, target: str) -> durable.Mark | None:
        """The mark of the program that works; None if it does not."""
        try:
            content = self._program.read_bytes()
            if claim_files.read_if_readable(target) != content:
                Path(self._folder).mkdir(mode=0o755, parents=True, exist_ok=True)
                self._sweep()
                unfinished = f"{self._folder}/{_UNFINISHED}{os.urandom(4).hex()}"
                durable.replace(target, content, beside=unfinished, mode=0o755, sync=True)
            # Before it is tried: somebody may put another one in its place while it is.
            mark = durable.mark(target)
            # The folder may be on a file system where nothing may be run.
            _try(target)
        except (OSError, subprocess.SubprocessError) as error:
            self._say(str(error))
            return None
        self._trouble = ""
        self._has_worked = True
        return mark

    def _runs(self) -> bool:
        try:
            _try(self._target)
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def _sweep(self) -> None:
        """What processes left behind that were killed while they wrote; nobody writes for long."""
        for unfinished in Path(self._folder).glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - unfinished.stat().st_mtime > _LEFT_BEHIND:
                    unfinished.unlink()

    def _say(self, trouble: str) -> None:
        """Once, since every prepared claim asks."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning(
                "ldconfig in containers will not know the libraries of NVIDIA's driver: %s", trouble
            )


def _try(program: str) -> None:
    """OSError or SubprocessError if it cannot be run."""
    subprocess.run(
        [program, "--version"], check=True, capture_output=True, timeout=_SECONDS, env={}
    )


def of_image() -> Path:
    """Where an image of claimd has the program: beside the environment that runs us."""
    return Path(sys.prefix, "libexec", names.LIBRARY_HOOK)


NONE = LibraryHook(Path(os.devnull), "")
