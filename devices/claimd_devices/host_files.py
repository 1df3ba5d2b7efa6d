"""Ordinary files of the host, at the paths where a container runtime finds them.

claimd may see the host's root in a folder of its own, and a driver may be installed in a root of
its own. The kernel would follow absolute links from claimd's root, so this module follows links
itself. The returned paths are paths of the host and contain no links. This module does not know
what a file is for.
"""

from __future__ import annotations

import posixpath

from . import sysfs

_MOST_LINKS = 40  # the kernel's own limit


class HostFiles:
    """The host's files, as seen by a program whose root is the folder `root` of the host.

    The absolute target of a link is looked up below `root` first, as in a driver container, and
    then on the host, as if `root` were an ordinary folder. An object is for one scan, because it
    caches the links.
    """

    def __init__(self, host: str, root: str = "") -> None:
        """Takes the folder where claimd sees the host's root, and `root` on the host. Both may be
        empty.
        """
        self.host = host
        self.root = root
        self._followed: dict[str, str | None] = {}

    def real(self, path: str) -> str | None:
        """Returns the path on the host of the file, folder or socket to which `path` leads.

        None if it leads to nothing, or if a link on the way is not readable. Raises LookFailedError
        if we could not look.
        """
        place = f"{self.root}{path}"
        if "/." in place or "//" in place or place.endswith("/"):
            place = posixpath.normpath(place)
        return self._follow(place, 0)

    def names(self, folder: str) -> tuple[str, list[str]]:
        """Returns the real path of a folder, and its names, sorted.

        The path is empty if the folder is missing, and there are no names if it is missing or not
        readable.
        """
        place = self.real(folder)
        if place is None:
            return "", []
        return place, sysfs.names(f"{self.host}{place}", []) or []

    def content(self, path: str, notes: list[str]) -> bytes | None:
        """Returns the bytes of a file.

        None if it is missing or unreadable; the latter is noted.
        """
        place = self.real(path)
        if place is None:
            return None
        return sysfs.content(f"{self.host}{place}", notes)

    def link_name(self, place: str) -> str:
        """Returns the last name of a link's target, by the link's path on the host; "" if it is no
        link.
        """
        return posixpath.basename(sysfs.link(f"{self.host}{place}", []) or "")

    def _follow(self, path: str, links: int) -> str | None:
        """Returns a path of the host without the links in it; None if it leads nowhere or in a
        circle.

        `links` is the number of links that were followed before, which bounds the recursion.
        """
        place: str | None = ""
        for name in path.split("/")[1:]:
            place = self._step(f"{place}/{name}", links)
            if place is None:
                return None
        return place

    def _step(self, place: str, links: int) -> str | None:
        """Follows one link: returns the path without links of a path whose last name may be a link.

        Returns None as `_follow` does. Uses the cache.
        """
        if place not in self._followed:
            self._followed[place] = self._resolve_step(place, links)
        return self._followed[place]

    def _resolve_step(self, place: str, links: int) -> str | None:
        # The note of `sysfs.link` distinguishes a file that is there and is no link, which is a
        # place, from one that is missing or unreadable.
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
