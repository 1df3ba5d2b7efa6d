"""Changes mounts that the node needs, and removes mounts that it leaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .places import STATE, run

ROOT_WAS_PRIVATE = STATE / "root-was-private"


def share_root() -> None:
    """Makes the root mount shared, as systemd does.

    Machines without systemd may have a private root mount. Containers whose volumes use the mount
    propagation HostToContainer or Bidirectional cannot start there.
    """
    if not _is_private(Path("/proc/self/mountinfo").read_text()):
        return
    run("mount", "--make-shared", "/")
    ROOT_WAS_PRIVATE.touch()


def unshare_root() -> None:
    """Makes the root mount private again if `share_root` has changed it."""
    if ROOT_WAS_PRIVATE.exists():
        run("mount", "--make-private", "/")
        ROOT_WAS_PRIVATE.unlink()


def unmount(folder: Path) -> None:
    """Unmounts everything that is mounted below the folder."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), key=len, reverse=True):
        run("umount", "-l", mount, stderr=subprocess.DEVNULL, check=False)


def _is_private(mounts: str) -> bool:
    for line in mounts.splitlines():
        before, _, _ = line.partition(" - ")
        words = before.split()
        if words[4] == "/":
            return not any(word.startswith(("shared:", "master:")) for word in words[6:])
    return True
