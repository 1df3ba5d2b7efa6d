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
        return self._follow(place, 0)

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
        """`path`, a host's path, without the links in it; None if it leads nowhere or in a ring.

        `links` have been followed on the way to it: it calls itself for no more than there may be.
        """
        if path in self._followed:
            return self._followed[path]

        place: str | None = ""
        for name in path.split("/")[1:]:
            place = self._step(f"{place}/{name}", links)
            if place is None:
                break
        self._followed[path] = place
        return place

    def _step(self, place: str, links: int) -> str | None:
        """The same of a path in whose folder there are no links."""
        if place not in self._followed:
            self._followed[place] = self._step_anew(place, links)
        return self._followed[place]

    def _step_anew(self, place: str, links: int) -> str | None:
        # What is there and is no link says so.
        notes: list[str] = []
        target = sysfs.link(f"{self.host}{place}", notes)
        if target is None:
            return place if notes and notes[0].endswith(sysfs.NO_LINK) else None
        if links == _MOST_LINKS:
            return None

        if not target.startswith("/"):
            folder = place.rpartition("/")[0]
            return self._follow(posixpath.normpath(f"{folder}/{target}"), links + 1)
        target = posixpath.normpath(target)
        inside = self._follow(f"{self.root}{target}", links + 1)
        return inside or self._follow(target, links + 1)
