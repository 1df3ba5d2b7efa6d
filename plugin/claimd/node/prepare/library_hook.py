"""The program that tells a container's loader about the libraries that are mounted into it.

A container runtime runs the program on the host, as a CDI hook, so it is installed into a folder of
the host. Its source, deploy/ld-cache/claimd-ld-cache.c, says what it does and why an image cannot
misuse it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from claimd.common import durable, names

from . import claim_files

log = logging.getLogger(__name__)

# Seconds that a trial run of the program may take.
_SECONDS = 5.0
_BUSY_PAUSE = 0.01  # seconds until a program that is busy is tried again

# The prefix of a file that is being written, and seconds after which its writer must have died.
_UNFINISHED = f".{names.LIBRARY_HOOK}-"
_LEFT_BEHIND = 60.0


class LibraryHook:
    """Keeps the ld.so.cache hook (`claimd-ld-cache`) installed where container runtimes find it.

    Without the hook, most applications still find the mounted libraries in the usual folders.
    Applications that ask ldconfig, or use musl's loader, do not.
    """

    def __init__(self, program: Path, folder: str) -> None:
        """Remembers the two places.

        `program` is the hook in the image. `folder` is the folder of the host into which it is
        installed, with the same path here and there. It is empty if the host has none.
        """
        self._program = program
        self._folder = folder
        self._installing = asyncio.Lock()

        # The mark of the installed file when it was last tried, and whether it could be run then.
        self._mark: tuple[int, int, int] | None = None
        self._works = False
        self._has_worked = False  # True if it ran at any time since the start of this process
        self._trouble = ""  # the last trouble that was logged

    @property
    def path(self) -> str | None:
        """The program's path on the host; None if it could not be run at the last `ensure`.

        A runtime refuses to start a container if a hook's program is missing. So a CDI spec gets
        the path only after the program has run successfully.
        """
        return self._target if self._works else None

    async def ensure(self) -> None:
        """Installs the program if it is missing, or was changed since its last trial run.

        This may be repeated at any time: if nothing has changed, it costs one system call. The
        program is written and tried in a thread, since both may be slow.
        """
        if not self._folder:
            return

        async with self._installing:
            mark = durable.mark(self._target)
            if mark is None or mark != self._mark:
                await durable.in_thread(self._install)

    def is_disturbed(self) -> bool:
        """Returns True if the program is gone or was changed since it was installed."""
        if self._mark is None:
            return False
        return durable.mark(self._target) != self._mark

    @property
    def _target(self) -> str:
        return f"{self._folder}/{names.LIBRARY_HOOK}"

    def _install(self) -> None:
        """Installs our program, unless the one of a newer instance of claimd is there.

        During an update, the older instance finds the program of the newer one in its place, and
        leaves it there if it runs. Otherwise the two instances would replace each other's program
        again and again.
        """
        mark = durable.mark(self._target)
        if self._has_worked and mark is not None and self._can_run():
            self._mark = mark
            return

        # After a failure the mark is None, so the next `ensure` tries again.
        self._mark = self._put_and_try(self._target)
        self._works = self._mark is not None

    def _put_and_try(self, target: str) -> durable.Mark | None:
        """Installs the program and runs it once; returns its mark, or None if it does not run."""
        try:
            content = self._program.read_bytes()
            if claim_files.read_if_readable(target) != content:
                Path(self._folder).mkdir(mode=0o755, parents=True, exist_ok=True)
                self._sweep()
                unfinished = f"{self._folder}/{_UNFINISHED}{os.urandom(4).hex()}"
                durable.replace(target, content, temporary=unfinished, mode=0o755, sync=True)

            # The mark is taken before the trial, since another instance may replace the program
            # during it. The trial is needed because the file system may be mounted with noexec.
            mark = durable.mark(target)
            _try(target)
        except (OSError, subprocess.SubprocessError) as error:
            self._warn_once(str(error))
            return None

        self._trouble = ""
        self._has_worked = True
        return mark

    def _can_run(self) -> bool:
        try:
            _try(self._target)
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def _sweep(self) -> None:
        """Removes the unfinished files of processes that were killed during the write."""
        for unfinished in Path(self._folder).glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - unfinished.stat().st_mtime > _LEFT_BEHIND:
                    unfinished.unlink()

    def _warn_once(self, trouble: str) -> None:
        """Logs the trouble unless it is the same as before, since every prepare tries again."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning(
                "ldconfig in containers will not know the libraries of NVIDIA's driver: %s", trouble
            )


def _try(program: str) -> None:
    """Runs the program. Raises OSError or SubprocessError if that is not possible."""
    give_up = time.monotonic() + _SECONDS
    while True:
        try:
            subprocess.run(
                [program, "--version"], check=True, capture_output=True, timeout=_SECONDS, env={}
            )
            return
        except OSError as error:
            # The kernel runs no file that is open for writing. If another thread forked a child
            # during the write, the child has the file open until it runs its own program.
            if error.errno != errno.ETXTBSY or time.monotonic() >= give_up:
                raise
            time.sleep(_BUSY_PAUSE)


def path_in_image() -> Path:
    """Returns the program's path in an image of claimd, in the environment that runs us."""
    return Path(sys.prefix, "libexec", names.LIBRARY_HOOK)


NONE = LibraryHook(Path(os.devnull), "")
