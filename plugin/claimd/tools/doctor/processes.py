"""The host's own processes, which are recognized by facts that no process can choose.

If the node's processes are visible, /proc has everybody's programs: also a tenant's, under any
name. A process is the host's if it belongs to root, is in the first user namespace, is in the
cgroup of no pod, and has the host's root as its root. No capability is needed to find that out.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from claimd.common import names
from claimd_devices import sysfs

# In the first user namespace every user has the same number outside.
_FIRST_NAMESPACE = ["0", "0", "4294967295"]
_ROOT = ["0", "0", "0", "0"]  # the real, effective and saved user, and the one for files
# The cgroup of a pod has the pod's uid in its name. Its parent is called kubepods.
_POD = re.compile(r"(^|/)([^/]*-)?(kubepods\b|pod[0-9a-f]{8})")
_LONGEST_NAME = 15  # characters that the kernel keeps of a process's name
_LONGEST_COMMAND = 1 << 16  # bytes, also of an environment

_PEER = struct.Struct("3i")  # the process, user and group of the other end of a socket
_SECONDS = 3.0


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
        words = read_words(f"{process}/cmdline")

        # A thread of the kernel, or a process that has just ended, has an empty command line.
        if words == [""]:
            continue
        folder = sysfs.link(f"{process}/cwd", []) or "/"
        yield Command(number=int(name), words=tuple(words), folder=folder)


def find_claimd(folder: str) -> int | None:
    """Returns the PID of the claimd that listens in its folder, or None if we see no such process.

    The kernel tells which process listens. A process that only has the name claimd does not count.
    """
    for name in sysfs.names(folder, []) or ():
        if not names.is_dra_socket(name):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            try:
                connection.connect(f"{folder}/{name}")
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            except OSError:
                continue

        # The number is 0 for a process of another PID namespace.
        number: int = _PEER.unpack(peer)[0]
        if number:
            return number
    return None


def read_words(path: str) -> list[str]:
    """Returns the words of a command line or of an environment, or no words if it is not readable."""
    content = sysfs.content(path, [], _LONGEST_COMMAND) or b""
    return content.decode(errors="replace").rstrip("\0").split("\0")


def is_running(proc: str, name: str) -> bool:
    """Returns True if a program of root runs on the node, on the host or in a container.

    A privileged pod can take any name: only good news may follow from it.
    """
    for number in sysfs.names(proc, []) or ():
        process = f"{proc}/{number}"
        if not number.isdecimal() or sysfs.text(f"{process}/comm", []) != name[:_LONGEST_NAME]:
            continue
        if _is_of_root(process):
            return True
    return False


def _is_of_root(process: str) -> bool:
    """Returns True for a process of root in the first user namespace."""
    uids: list[str] = []
    for line in sysfs.lines(f"{process}/status", []) or ():
        if line.startswith("Uid:"):
            uids = line.split()[1:]
    if uids != _ROOT:
        return False

    namespace = sysfs.text(f"{process}/uid_map", []) or ""
    return namespace.split() == _FIRST_NAMESPACE


def _is_of_host(process: str, root: list[str]) -> bool:
    """Returns True for a process of root, outside of pods, whose root is the host's."""
    if not _is_of_root(process):
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
