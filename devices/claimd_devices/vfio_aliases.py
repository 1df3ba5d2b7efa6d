"""The kernel's list of drivers for virtual machines: which module is made for which PCI function.

Some GPUs need a variant of vfio-pci, for instance for all of their memory. The list is in the file
modules.alias of the running kernel, in lines such as `alias vfio_pci:v000010DEd00002342sv*sd*… M`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import NamedTuple

from . import sysfs
from .gpu import Roots
from .host_files import HostFiles

_START = b"alias vfio_pci:"
_PLAIN = "vfio_pci"


class Alias(NamedTuple):
    """A pattern for the ids in a function's modalias, with * for any text, and a module."""

    pattern: str
    module: str


def read_aliases(roots: Roots, notes: list[str]) -> tuple[Alias, ...]:
    """Returns the aliases of the running kernel.

    Empty if the list is missing or unreadable, which is noted.
    """
    unread: list[str] = []
    release = sysfs.text(f"{roots.proc}/sys/kernel/osrelease", unread)
    content = None
    path = f"/lib/modules/{release}/modules.alias"
    # The name of a release is part of a path.
    if release is None or "/" in release:
        path = "/proc/sys/kernel/osrelease"
    else:
        content = HostFiles(roots.host).content(path, unread)
    if content is None:
        reason = unread[0] if unread else f"{path}: not there"
        notes.append(f"vfio-pci is taken and no variant of it, because of {reason}")
        return ()

    found = []
    for line in content.splitlines():
        if line.startswith(_START):
            words = line.removeprefix(_START).decode(errors="replace").split()
            if len(words) == 2:
                found.append(Alias(*words))
    return tuple(found)


def module_for(modalias: str, aliases: Sequence[Alias]) -> str:
    """Returns the module with the most specific pattern for a PCI function's modalias.

    That is the pattern with the fewest asterisks. Without a match it is the module of vfio-pci.
    """
    ids = modalias.removeprefix("pci:")
    matching = [alias for alias in aliases if fnmatch.fnmatchcase(ids, alias.pattern)]
    best = min(matching, key=lambda alias: alias.pattern.count("*"), default=None)
    return best.module if best else _PLAIN
