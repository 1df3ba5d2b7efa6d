"""The launcher of a container: sets up the container, then becomes its command.

It runs by path, without the rest of the project: `launch.py CONFIG STATUS PARENT`. CONFIG is a
JSON file. STATUS is a file descriptor for an error message; if it is closed without one, the
command runs. `launch.py enter CONFIG PID COMMAND` becomes another command in a running container.
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
    """The container cannot be set up as its configuration says."""


def main(config_path: str, status: int, parent: int) -> None:
    """Sets up the container and becomes its command; never returns.

    Exit code 125 means that the setup has failed.
    """
    os.set_inheritable(status, False)
    try:
        # A container must not outlive its runtime, which may have died before this call.
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
    """Creates a mount namespace with a container's /dev, and the configured devices and mounts."""
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    name = config["hostname"].encode()
    libc.sethostname(name, len(name))

    # The tmpfs is mounted with nodev, so that no device in it can be opened: the numbers of a fake
    # GPU may belong to a real one.
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
    """Becomes another command in the container whose main process is `pid`; never returns.

    If standard input is a terminal, it becomes the controlling terminal. As in a shell, exit
    codes 126 and 127 mean that the command could not run.
    """
    code = 126
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        with open(config_path) as file:
            config = json.load(file)
        if config["namespace"]:
            # The namespaces of the container's main process give the same view of the file system.
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
    """Adds one mount of the configuration.

    A missing target must be created, and the host must not see that. So a temporary overlay
    covers the nearest existing folder. `covered` lists the folders with an overlay.
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

    # A bind mount ignores its flags, so a remount applies them.
    flags = 0
    for option in options:
        flags |= _FLAGS.get(option, 0)
    if flags:
        mount("", target, "", MS_REMOUNT | MS_BIND | flags)


def put_layer(layer: str, cover: str, folder: str) -> None:
    """Covers the folder with an overlay that keeps all later writes in a tmpfs."""
    if not os.path.ismount(cover):
        mount("tmpfs", cover, "tmpfs", MS_NOSUID | MS_NODEV, _TMPFS_OPTIONS)
    for part in ("upper", "work"):
        os.makedirs(f"{layer}/{part}")
    options = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work"
    mount("overlay", folder, "overlay", 0, options)


def bind_path(source: str, target: str) -> None:
    """Bind-mounts the source at the target, which is created if it does not exist.

    A missing source is skipped.
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
    """Ends without an error if this process may create mount namespaces and device nodes."""
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
