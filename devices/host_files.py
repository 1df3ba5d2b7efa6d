"""Files of the host that are no tree of the kernel's, where a container runtime will find them.

We may see the host's root below a folder of ours, and a driver may lie in a root of its own, so
links are followed here, never by the kernel. Paths that are returned are the host's, free of links.
What a file is for must not go in here.
"""

from __future__ import annotations

import posixpath

from . import sysfs

_MOST_LINKS = 40  # as the kernel


class HostFiles:
    """The host's files as a program sees them whose root is the folder `root` of the host's.

    A link's absolute target is looked up below `root` first, as in a driver container, then on the
    host, as where `root` is an ordinary folder. For one look: what was followed is remembered.
    """

    def __init__(self, host: str, root: str = "") -> None:
        """`host` is where we see the host's root; both are empty for the root itself."""
        self.host = host
        self.root = root
        self._followed: dict[str, str | None] = {}

    def real(self, path: str) -> str | None:
        """The file, folder or socket that `path` leads to, as a path of the host; None if none."""
        place = f"{self.root}{path}"
        if "/." in place or "//" in place or place.endswith("/"):
            place = posixpath.normpath(place)
        try:
            return self._follow(place, 0)
        except RecursionError:
            # Hundreds of folders within each other, which somebody has made up.
            return None

    def names(self, folder: str) -> tuple[str, list[str]]:
        """Where a folder really is and what it holds, sorted; nothing if it cannot be read."""
        place = self.real(folder)
        if place is None:
            return "", []
        return place, sysfs.names(f"{self.host}{place}", []) or []

    def content(self, path: str, notes: list[str]) -> bytes | None:
        """The bytes of a file; None if there is none, and noted if it cannot be read."""
        place = self.real(path)
        if place is None:
            return None
        return sysfs.content(f"{self.host}{place}", notes)

    def link_name(self, place: str) -> str:
        """The name that a link ends in, by the link's own path on the host; "" if it is none."""
        return posixpath.basename(sysfs.link(f"{self.host}{place}", []) or "")

    def _follow(self, path: str, links: int) -> str | None:
        """`path`, a host's path, without the links in it; None if it leads nowhere or in a ring."""
        if path not in self._followed:
            self._followed[path] = self._follow_anew(path, links)
        return self._followed[path]

    def _follow_anew(self, path: str, links: int) -> str | None:
        # First the folder, so that the last step alone is left.
        above, _, name = path.rpartition("/")
        folder = self._follow(above, links) if above else ""
        if folder is None:
            return None

        # What is there and is no link says so.
        place = f"{folder}/{name}"
        notes: list[str] = []
        target = sysfs.link(f"{self.host}{place}", notes)
        if target is None:
            return place if notes and notes[0].endswith(sysfs.NO_LINK) else None
        if links == _MOST_LINKS:
            return None

        if not target.startswith("/"):
            return self._follow(posixpath.normpath(f"{folder}/{target}"), links + 1)
        target = posixpath.normpath(target)
        inside = self._follow(f"{self.root}{target}", links + 1)
        return inside or self._follow(target, links + 1)
