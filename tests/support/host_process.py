"""Processes in the /proc of a tree, as the kernel shows those of the host and of tenants."""

from pathlib import Path

EVERYBODY = "         0          0 4294967295\n"
SERVICE = "/system.slice/containerd.service"
DISK = "8:1 /"


def write(
    root: Path,
    number: int,
    words: str,
    *,
    uids: str = "0 0 0 0",
    uid_map: str = EVERYBODY,
    cgroup: str = SERVICE,
    mount: str = DISK,
) -> None:
    """Writes a process of the host, save for what a test changes.

    `mount` has the device and the folder that are mounted at the process's root.
    """
    folder = root / f"proc/{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    name = words.split(maxsplit=1)[0].rpartition("/")[2]
    (folder / "comm").write_text(f"{name[:15]}\n")
    (folder / "status").write_text(f"Name:\tany\nUid:\t{uids}\nGid:\t0 0 0 0\n")
    (folder / "uid_map").write_text(uid_map)
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    (folder / "mountinfo").write_text(_mounts(mount, "/"))

    # Where the host's root is seen from here.
    ours = root / "proc/self/mountinfo"
    ours.parent.mkdir(exist_ok=True)
    ours.write_text(_mounts("0:50 /", "/") + _mounts(DISK, str(root)))


def _mounts(mount: str, point: str) -> str:
    return f"22 1 {mount} {point} rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
