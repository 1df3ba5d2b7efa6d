"""Notices a mounted folder that is no longer the folder at its path on the host.

A container keeps a folder that was mounted into it, whatever happens to the path on the host: after
`rm -rf /var/run/cdi` on the host, nothing can be written to it, and the container runtime does not
see it. Only another container gets the new folder. A folder that is no mount needs none of this.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")

# The kernel adds this to the path of a folder that was removed.
_REMOVED = "//deleted"


class HostMounts:
    """The mounts at some folders. Each counts as lost if the kernel shows another origin of it."""

    def __init__(self, folders: Iterable[Path]) -> None:
        # The kernel shows no symbolic links, and /var/run may be one.
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._origins: dict[str, str] = {}  # as they were first seen

    def lost(self) -> str:
        """Returns which folder is lost, and why; empty if none is. May be called in any thread."""
        try:
            origins = _read_origins()
        except OSError:
            # We could not look, which says nothing about the mounts.
            return ""

        for folder in self._folders:
            origin = origins.get(folder)
            if origin is None:
                continue
            first = self._origins.setdefault(folder, origin)
            if origin.endswith(_REMOVED):
                return (
                    f"the folder {folder} was removed on the host, and this container still has it"
                )
            if origin != first:
                return f"the folder {folder} was moved on the host, and this container still has it"
        return ""


def _read_origins() -> dict[str, str]:
    """Returns the origin of each mount within its file system, by the folder where it is mounted.

    A later mount covers an earlier one at the same folder.
    """
    origins: dict[str, str] = {}
    for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
        _, _, _, origin, folder, *_ = line.split(" ")
        origins[_plain(folder)] = origin
    return origins


def _plain(path: str) -> str:
    """Replaces the kernel's escapes of white space and backslashes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escape, character)
    return path
