"""The host's own processes, which are recognized by facts that no process can choose.

If the node's processes are visible, /proc has everybody's programs: also a tenant's, under any
name. A process is the host's if it belongs to root, is in the first user namespace, is in the
cgroup of no pod, and has the host's root as its root. No capability is needed to find that out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from claimd_devices import sysfs

# In the first user namespace every user has the same number outside.
_FIRST_NAMESPACE = ["0", "0", "4294967295"]
_ROOT = ["0", "0", "0", "0"]  # the real, effective and saved user, and the one for files
# The cgroup of a pod has the pod's uid in its name. Its parent is called kubepods.
_POD = re.compile(r"(^|/)([^/]*-)?(kubepods\b|pod[0-9a-f]{8})")
_LONGEST_COMMAND = 1 << 16  # bytes


@dataclass(frozen=True, kw_only=True)
class Command:
    """A running process of the host. `folder` is its working directory, "/" if that is hidden."""

    number: int
    words: tuple[str, ...]
    folder: str = "/"


def host_commands(proc: str, host: str) -> Iterator[Command]:
    """Yields the host's processes.

    `proc` is the folder of the kernel's table, and `host` is the folder where we see the host's
    root, empty for "/". A process that cannot be looked at is left out.
    """
    root = _mount_at(f"{proc}/self/mountinfo", host or "/")
    if root is None:
        return
    for name in sysfs.names(proc, []) or ():
        if not name.isdecimal():
            continue

        # The command line comes last. The kernel reads it from the memory of the process, and a
        # tenant can make such a read wait for ever.
        process = f"{proc}/{name}"
        if not _is_of_host(process, root):
            continue
        content = sysfs.content(f"{process}/cmdline", [], _LONGEST_COMMAND)

        # A thread of the kernel, or a process that has just ended, has an empty command line.
        if not content:
            continue
        words = content.decode(errors="replace").rstrip("\0").split("\0")
        folder = sysfs.link(f"{process}/cwd", []) or "/"
        yield Command(number=int(name), words=tuple(words), folder=folder)


def _is_of_host(process: str, root: list[str]) -> bool:
    """Returns True for a process of root, outside of pods, whose root is the host's."""
    uids: list[str] = []
    for line in sysfs.lines(f"{process}/status", []) or ():
        if line.startswith("Uid:"):
            uids = line.split()[1:]
    if uids != _ROOT:
        return False

    namespace = sysfs.text(f"{process}/uid_map", []) or ""
    if namespace.split() != _FIRST_NAMESPACE:
        return False

    # A line is NUMBER:CONTROLLERS:PATH. There are several with the first version of cgroups.
    cgroups = sysfs.lines(f"{process}/cgroup", [])
    if not cgroups or any(_POD.search(line.split(":", 2)[-1]) for line in cgroups):
        return False
    return _mount_at(f"{process}/mountinfo", "/") == root


def _mount_at(path: str, point: str) -> list[str] | None:
    """Returns the device and the folder that are mounted at a place; None if nothing is.

    `path` is a table of mounts.
    """
    mount = None
    table = sysfs.content(path, []) or b""
    for line in table.decode(errors="replace").splitlines():
        # The columns are id, parent, device, folder, place and options. The last mount is on top.
        columns = line.split(" ", 5)
        if len(columns) == 6 and columns[4] == point:
            mount = columns[2:4]
    return mount
