"""Checks of the machine around the plugin: SELinux, the disk, open files."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from claimd.common import names
from claimd_devices import sysfs

from . import processes
from .check import Check, Finding, Level
from .sight import Sight

SELINUX = Check(
    name="selinux",
    level=Level.ERROR,
    looks_at="whether SELinux is enforced, and the type of claimd's process",
    expected="a type that may write the folders of the kubelet and of the runtime: spc_t, or that "
    "of a service of the host",
    remedy="add deploy/components/openshift, which gives the pod the type spc_t",
)
DENIALS = Check(
    name="selinux-denials",
    level=Level.WARNING,
    looks_at="the end of the host's audit log, where SELinux is enforced",
    expected="no denial that names claimd, CDI or our sockets",
    remedy="on the node `ausearch -m avc -ts recent` has them in full; claimd itself needs "
    "deploy/components/openshift, a pod that may not use its GPU needs "
    "`setsebool -P container_use_devices on` on the node",
)
DISK = Check(
    name="disk",
    level=Level.ERROR,
    looks_at="space and inodes of the disk that has our folder, and whether it can be written",
    expected="64 MiB and 1,000 inodes, 5% of the disk for the kubelet's sake",
    remedy="on the node `df -h` and `df -i` of the folder; the kubelet's images and logs are mostly "
    "what fills it: `crictl rmi --prune`",
)
OPEN_FILES = Check(
    name="open-files",
    level=Level.WARNING,
    looks_at="how many files the running claimd has open, and may have",
    expected="less than three quarters of its limit, which is 256 or more",
    remedy="raise LimitNOFILE of the container runtime's service on the node; if claimd's files "
    "grow by themselves, please report it",
)
CHECKS = (SELINUX, DENIALS, DISK, OPEN_FILES)

LEAST_BYTES, LEAST_INODES, LEAST_SHARE = 64 << 20, 1000, 0.05
LEAST_LIMIT, MOST_OPEN = 256, 0.75

_AUDIT_LOG = "/var/log/audit/audit.log"
_TAIL = 1 << 20  # bytes at the end of the log
_RECENT = 3600.0  # seconds
_STAMP = re.compile(r"audit\(([0-9]{1,11})")
_OURS = re.compile(r"claimd|/cdi\b|plugins_registry|dra[-.\w]*sock|nvidia\d|/dev/dri|kfd")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The state of the machine, as far as it can be seen."""

    enforced: bool = False
    context: str = ""  # the SELinux context of the running claimd; empty: not seen
    denials: tuple[str, ...] | None = ()  # None: the log cannot be seen
    folder: str = ""
    folder_trouble: str = ""
    free_bytes: int = 1 << 40
    all_bytes: int = 1 << 40
    free_inodes: int = 1 << 20
    all_inodes: int = 1 << 20
    # The open files of the running claimd. None: its process cannot be seen.
    open_files: int | None = None
    limit: int | None = None


def judge(facts: Facts, how: str) -> list[Finding]:
    """Judges the machine. `how` tells people how to see more than we can."""
    return [*_judge_selinux(facts, how), _judge_disk(facts), _judge_open_files(facts)]


def _judge_selinux(facts: Facts, how: str) -> list[Finding]:
    if not facts.enforced:
        off = "SELinux is not enforced here"
        return [SELINUX.success(off), DENIALS.success(off)]

    # A context is USER:ROLE:TYPE:LEVEL. The type decides.
    kind = facts.context.split(":")[2] if facts.context.count(":") >= 3 else ""
    if not kind:
        process = SELINUX.unknown("no claimd is seen whose context could be read", how)
    elif kind.startswith("container_") and kind != "container_runtime_t":
        process = SELINUX.failure(f"SELinux is enforced, and claimd runs as {facts.context}")
    else:
        process = SELINUX.success(facts.context)

    if facts.denials is None:
        return [process, DENIALS.unknown(f"{_AUDIT_LOG} cannot be read from here", how)]
    if facts.denials:
        last = facts.denials[-1]
        return [
            process,
            DENIALS.failure(f"{len(facts.denials)} in the last hour, the last: {last}"),
        ]
    return [process, DENIALS.success("none in the last hour")]


def _judge_disk(facts: Facts) -> Finding:
    if facts.folder_trouble:
        return DISK.failure(facts.folder_trouble)

    # Some file systems, such as btrfs, have no count of inodes.
    free = f"{facts.folder} has {facts.free_bytes >> 20:,} MiB free"
    if facts.free_bytes < LEAST_BYTES:
        return DISK.failure(f"{free}: no claim can be prepared when it is full")
    if facts.all_inodes and facts.free_inodes < LEAST_INODES:
        return DISK.failure(f"{facts.folder} has {facts.free_inodes:,} inodes free")

    # The kubelet begins to evict pods before the disk is full.
    if facts.free_bytes < facts.all_bytes * LEAST_SHARE:
        share = facts.free_bytes / facts.all_bytes
        return DISK.failure(
            f"{free}, which is {share:.1%} of the disk: the kubelet evicts pods",
            level=Level.WARNING,
        )
    return DISK.success(free)


def _judge_open_files(facts: Facts) -> Finding:
    if facts.open_files is None or facts.limit is None:
        return OPEN_FILES.unknown(
            "no running claimd is seen from here",
            "kubectl -n claimd-system exec POD -- claimd doctor, or on the host as root",
        )
    seen = f"claimd has {facts.open_files} files open, and may have {facts.limit}"
    if facts.limit < LEAST_LIMIT or facts.open_files > facts.limit * MOST_OPEN:
        return OPEN_FILES.failure(seen)
    return OPEN_FILES.success(seen)


# ---------------------------------------------------------------- looking


def look(sight: Sight) -> Facts:
    """Reads the state of the machine and of the running claimd."""
    roots, settings = sight.machine, sight.settings
    enforced = sysfs.text(f"{roots.sys}/fs/selinux/enforce", []) == "1"
    process = running_claimd(sight)
    context = ""
    if process is not None:
        current = sysfs.content(f"{roots.proc}/{process}/attr/current", []) or b""
        context = current.decode(errors="replace").rstrip("\0\n")

    folder = names.plugin_folder(settings.kubelet_dir, settings.driver_name)
    space = _space(sight.place(folder))
    return Facts(
        enforced=enforced,
        context=context,
        denials=_recent_denials(sight) if enforced else (),
        folder=str(folder),
        folder_trouble="" if space else f"{folder} cannot be looked at",
        free_bytes=space.f_bavail * space.f_frsize if space else 0,
        all_bytes=space.f_blocks * space.f_frsize if space else 0,
        free_inodes=space.f_favail if space else 0,
        all_inodes=space.f_files if space else 0,
        open_files=_count_open_files(sight, process),
        limit=_open_file_limit(sight, process),
    )


def running_claimd(sight: Sight) -> int | None:
    """Returns the PID of the claimd of this node, or None if we see no such process."""
    return processes.find_claimd(str(sight.plugin_folder))


def _space(folder: Path) -> os.statvfs_result | None:
    """Returns the space on the disk of the folder, or of its nearest parent that exists."""
    for place in (folder, *folder.parents):
        try:
            return os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            break
    return None


def _recent_denials(sight: Sight) -> tuple[str, ...] | None:
    """Returns SELinux's denials of the last hour that concern GPUs, or None without the log."""
    if sight.files is None:
        return None
    place = sight.files.real(_AUDIT_LOG)
    if place is None:
        return None

    # The log may be large. Its end has the last hour, or as much of it as anybody reads.
    try:
        with open(f"{sight.files.host}{place}", "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return None

    denials = []
    for line in lines:
        if "avc:  denied" in line and _OURS.search(line) and _is_recent(line):
            denials.append(line)
    return tuple(denials)


def _is_recent(line: str) -> bool:
    stamp = _STAMP.search(line)
    return stamp is not None and time.time() - float(stamp[1]) < _RECENT


def _count_open_files(sight: Sight, process: int | None) -> int | None:
    if process is None:
        return None
    listed = sysfs.names(f"{sight.machine.proc}/{process}/fd", [])
    return len(listed) if listed is not None else None


def _open_file_limit(sight: Sight, process: int | None) -> int | None:
    if process is None:
        return None
    for line in sysfs.lines(f"{sight.machine.proc}/{process}/limits", []) or ():
        if line.startswith("Max open files"):
            # The soft limit is a number or the word "unlimited".
            soft = line.split()[3]
            return int(soft) if soft.isdecimal() else 1 << 20
    return None
