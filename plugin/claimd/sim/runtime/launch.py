"""Becomes the command of a container: the last thing that runs before it, as a process of its own.

Run by path, without the rest of the project: `launch.py CONFIG STATUS PARENT`. CONFIG is a JSON
file, STATUS the descriptor that says what went wrong; nothing on it means that the command runs.
`launch.py enter CONFIG PID COMMAND` becomes one beside it.
Only the standard library may be imported here.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import stat
import sys
import termios
from typing import Any

PR_SET_PDEATHSIG = 1
CLONE_NEWNS, CLONE_NEWUTS = 0x00020000, 0x04000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 32, 4096, 8192, 16384, 1 << 18
_FLAGS = {"ro": MS_RDONLY, "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
_NODE_TYPES = {"b": stat.S_IFBLK, "c": stat.S_IFCHR, "u": stat.S_IFCHR, "p": stat.S_IFIFO}
_HOST_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "pts", "shm", "ptmx")
_TMPFS_OPTIONS = "mode=0755,size=16m"

libc = ctypes.CDLL(None, use_errno=True)


class SetupError(Exception):
    """The container cannot be made as its config says."""


def main(config_path: str, status: int, parent: int) -> None:
    """Never returns. The exit code 125 is ours, every other the command's."""
    os.set_inheritable(status, False)
    try:
        # A container must not outlive its runtime. The runtime may have died before we asked.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return

        with open(config_path) as file:
            config = json.load(file)
        if config["namespace"]:
            enter_namespaces(config)
        if config["gids"] and os.geteuid() == 0:
            os.setgroups(sorted({*os.getgroups(), *config["gids"]}))
        os.chdir(config["cwd"])
        argv = config["argv"]
        os.execvpe(argv[0], argv, config["env"])  # noqa: S606  # no shell is wanted
    except (OSError, SetupError, KeyError, ValueError) as error:
        os.write(status, str(error).encode()[:4000])
    finally:
        os._exit(125)


def enter_namespaces(config: dict[str, Any]) -> None:
    """A mount namespace in which /dev has what a container has, and the devices and mounts of the
    config.
    """
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    name = config["hostname"].encode()
    libc.sethostname(name, len(name))

    # No device that is made here can be opened: behind the numbers of a fake GPU there may be a
    # real one.
    staging = config["staging"]
    mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV, _TMPFS_OPTIONS)
    for entry in _HOST_DEVICES:
        bind_path(f"/dev/{entry}", f"{staging}/{entry}")
    for number, entry in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{staging}/{entry}")
    os.symlink("/proc/self/fd", f"{staging}/fd")
    for node in config["nodes"]:
        make_node(staging, node)
    mount(staging, "/dev", "", MS_MOVE)

    covered: list[str] = []
    for entry in config["mounts"]:
        add_mount(config["cover"], entry, covered)


def enter(config_path: str, pid: int, argv: list[str]) -> None:
    """Becomes another command in the container whose command is the process `pid`.

    At a terminal it has that one for its own. Never returns. The exit codes 126 and 127 are ours, as
    a shell has them.
    """
    code = 126
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        with open(config_path) as file:
            config = json.load(file)
        if config["namespace"]:
            for kind in ("mnt", "uts"):
                descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
                call("setns", descriptor, 0)
        os.chdir(config["cwd"])
        os.execvpe(argv[0], argv, config["env"])  # noqa: S606  # no shell is wanted
    except FileNotFoundError:
        code = 127
        os.write(2, f'exec: "{argv[0]}": executable file not found in $PATH\n'.encode())
    except (OSError, SetupError, IndexError, KeyError, ValueError) as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(code)


def make_node(staging: str, node: dict[str, Any]) -> None:
    path = os.path.normpath(node["path"])
    if not path.startswith("/dev/"):
        raise SetupError(f"device node {path}: only nodes below /dev can be made here")
    path = staging + path.removeprefix("/dev")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.mknod(path, _NODE_TYPES[node["type"]], os.makedev(node["major"], node["minor"]))
    os.chmod(path, node["mode"])


def add_mount(cover: str, entry: dict[str, Any], covered: list[str]) -> None:
    """One mount of the config.

    Where its target is not there it has to be made, and the host must not see that: a throw-away
    layer is put over the nearest folder that is there. `covered` has those folders so far.
    """
    source, target, options = entry["source"], os.path.normpath(entry["target"]), entry["options"]
    if not os.path.exists(source):
        raise SetupError(f"error mounting {source!r} at {target!r}: {source} does not exist")

    if not os.path.exists(target):
        folder = os.path.dirname(target)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        if not any(folder == done or folder.startswith(f"{done}/") for done in covered):
            put_layer(f"{cover}/{len(covered)}", cover, folder)
            covered.append(folder)

    bind_path(source, target)
    flags = 0
    for option in options:
        flags |= _FLAGS.get(option, 0)
    if flags:
        mount("", target, "", MS_REMOUNT | MS_BIND | flags)


def put_layer(layer: str, cover: str, folder: str) -> None:
    """What is written below the folder goes to a tmpfs from now on."""
    if not os.path.ismount(cover):
        mount("tmpfs", cover, "tmpfs", MS_NOSUID | MS_NODEV, _TMPFS_OPTIONS)
    for part in ("upper", "work"):
        os.makedirs(f"{layer}/{part}")
    options = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work"
    mount("overlay", folder, "overlay", 0, options)


def bind_path(source: str, target: str) -> None:
    """The source at the target, which is made if it is not there.

    A source that is not there is left out.
    """
    if not os.path.exists(source):
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    mount(source, target, "", MS_BIND | MS_REC)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = (
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    if libc.mount(*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise SetupError(f"error mounting {source or kind!r} at {target!r}: {reason}")


def call(name: str, *arguments: int) -> None:
    if getattr(libc, name)(*arguments) != 0:
        raise SetupError(f"{name}: {os.strerror(ctypes.get_errno())}")


def probe() -> None:
    """Ends well if this process may have mounts of its own and make device nodes."""
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NODEV)  # noqa: S108  # in a namespace that ends with us
    os.mknod("/tmp/node", stat.S_IFCHR | 0o600, os.makedev(1, 3))  # noqa: S108


if __name__ == "__main__":
    if sys.argv[1:] == ["probe"]:
        try:
            probe()
        except (OSError, SetupError) as problem:
            sys.exit(str(problem))
    elif sys.argv[1:2] == ["enter"]:
        enter(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
