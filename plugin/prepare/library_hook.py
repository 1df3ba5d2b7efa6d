"""The program that makes a container's loader know libraries which are mounted into it.

A container runtime runs it on the host, so it is put into a folder of the host's. What it does, and
why an image cannot misuse it, stands in its source, deploy/ld-cache/claimd-ld-cache.c.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from .. import durable, names

log = logging.getLogger(__name__)

_SECONDS = 5.0


class LibraryHook:
    """Keeps the program where runtimes find it, as long as somebody asks for it.

    Without it programs find the libraries in the usual folders all the same; what they miss is
    ldconfig, and musl's loader.
    """

    def __init__(self, program: Path, folder: str) -> None:
        """`program` is our own copy. `folder` has the same path on the host; empty: it has none."""
        self._program = program
        self._folder = folder
        # What the installed file looked like, and whether it could be run.
        self._mark: tuple[int, int, int] | None = None
        self._works = False
        self._trouble = ""

    def path(self) -> str | None:
        """Where it is on the host, installed if it was not; None if it cannot be run there.

        May be repeated at any time. A runtime that finds no program at a path that it was told
        refuses to start the container: so it is only told what was seen to run.
        """
        if not self._folder:
            return None

        target = f"{self._folder}/{names.LIBRARY_HOOK}"
        mark = durable.mark(target)
        if mark is None or mark != self._mark:
            self._works = self._install(target)
            self._mark = durable.mark(target)
        return target if self._works else None

    def disturbed(self) -> bool:
        """Whether the program is gone or was changed since it was told."""
        if self._mark is None:
            return False
        return durable.mark(f"{self._folder}/{names.LIBRARY_HOOK}") != self._mark

    def _install(self, target: str) -> bool:
        try:
            content = self._program.read_bytes()
            if _content(target) != content:
                Path(self._folder).mkdir(mode=0o755, parents=True, exist_ok=True)
                unfinished = f"{self._folder}/.{names.LIBRARY_HOOK}"
                durable.replace(target, content, beside=unfinished, mode=0o755, sync=True)

            # The folder may be on a file system where nothing may be run.
            subprocess.run(
                [target, "--version"], check=True, capture_output=True, timeout=_SECONDS, env={}
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._say(str(error))
            return False
        self._trouble = ""
        return True

    def _say(self, trouble: str) -> None:
        """Once, since every prepared claim asks."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning(
                "ldconfig in containers will not know the libraries of NVIDIA's driver: %s", trouble
            )


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def of_image() -> Path:
    """Where an image of claimd has the program: beside the environment that runs us."""
    return Path(sys.prefix, "libexec", names.LIBRARY_HOOK)


NONE = LibraryHook(Path(os.devnull), "")
