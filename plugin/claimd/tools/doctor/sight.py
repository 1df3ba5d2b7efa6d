"""What of the host can be seen from where we run: on it, in a pod, or in a pod that has its root.

A pod of the DaemonSet sees the kubelet's and the runtime's folders that are mounted, and the host's
/sys and /proc; the host's other files only where its root is mounted (`host-root`).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from claimd.node.config import Config
from claimd_devices import sysfs
from claimd_devices.gpu import Roots
from claimd_devices.host_files import HostFiles

from . import setting


@dataclass(frozen=True)
class Flags:
    """The flags of a process in the way of Go: -x or --x, with the value behind = or as next word."""

    words: tuple[str, ...]
    folder: str = "/"  # in which it was started

    def values(self, *flags: str) -> list[str]:
        """What a flag was given by any of its names, in this order."""
        found = []
        for word, following in itertools.pairwise((*self.words, "")):
            name, equals, value = word.partition("=")
            if name.startswith("-") and name.lstrip("-") in flags:
                found.append(value if equals else following)
        return found

    def path(self, *flags: str) -> str | None:
        """The file or folder that a flag gives, as an absolute path; None if it is not given."""
        values = self.values(*flags)
        if not values:
            return None
        path = values[-1]
        return posixpath.normpath(posixpath.join(self.folder, path)) if path else ""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The places as they can be read from here. Paths that people are told are the host's."""

    settings: Config
    in_pod: bool
    roots: Roots  # where GPUs are looked for, which may be a fake tree
    machine: Roots  # where processes run
    # The host's files that are no tree of the kernel's; None: they cannot be seen.
    files: HostFiles | None
    settings_place: setting.Place

    @property
    def how(self) -> str:
        """How somebody could see more."""
        node = self.settings.node_name or "NODE"
        return (
            f"run it where the host's files are seen: deploy/doctor/pod.yaml on {node}, "
            "or `claimd doctor` on the host"
        )

    def place(self, folder: Path) -> Path:
        """A folder of the kubelet's or the runtime's: where it is mounted, or within the host's root."""
        if not folder.exists() and self.files is not None:
            # /var/run is a link to /run, which would be our own.
            real = self.files.real(str(folder))
            if real is not None:
                return Path(f"{self.files.host}{real}")
        return folder

    def started(self, program: str) -> Iterator[Flags]:
        """The flags of each running process of this program."""
        for number, words in self.commands():
            if os.path.basename(words[0]) == program:
                folder = sysfs.link(f"{self.machine.proc}/{number}/cwd", [])
                yield Flags(tuple(words[1:]), folder or "/")

    def commands(self) -> Iterator[tuple[int, list[str]]]:
        """The processes that can be seen, with their command lines."""
        proc = self.machine.proc
        for name in sysfs.names(str(proc), []) or ():
            if name.isdecimal():
                words = sysfs.content(f"{proc}/{name}/cmdline", [])
                if words:
                    yield int(name), words.decode(errors="replace").rstrip("\0").split("\0")


def of(
    settings: Config, environment: Mapping[str, str] | None = None, settings_file: str = ""
) -> Sight:
    """What these settings let us see, which may have been read from a file."""
    if environment is None:
        environment = os.environ
    in_pod = is_pod(environment)
    roots = machine = settings.roots
    if in_pod:
        # A pod with fake GPUs runs on a real machine.
        machine = dataclasses.replace(settings, root="").roots

    default = Config()
    host: str | None
    if settings.host_root != default.host_root:
        host = str(settings.host_root).rstrip("/")
        # A container has a /dev of its own, in which little of the host's is.
        is_own = settings.dev_root == default.dev_root and not settings.root
        if is_own and Path(f"{host}/dev").is_dir():
            roots = dataclasses.replace(roots, dev=Path(f"{host}/dev"))
    elif in_pod:
        host = None
    else:
        host = settings.root  # empty: the machine itself

    files = HostFiles(host) if host is not None else None
    return Sight(
        settings=settings,
        in_pod=in_pod,
        roots=roots,
        machine=machine,
        files=files,
        settings_place=setting.place(settings, environment, settings_file, in_pod=in_pod),
    )


def is_pod(environment: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment


def names(files: HostFiles, folder: str) -> list[str]:
    """What a folder of the host's holds, sorted; nothing if there is none."""
    return files.names(folder)[1]
