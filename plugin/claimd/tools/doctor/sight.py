"""The files of the host that can be seen from the place where the doctor runs.

On the host itself, these are all files. A pod of the DaemonSet sees the host's /sys and /proc, and
the folders of the kubelet and of the runtime that are mounted. It sees the host's other files only
if the host's root is mounted (`host-root`).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from claimd.common import names
from claimd.node.config import Config, variable_of
from claimd_devices.gpu import Roots
from claimd_devices.host_files import HostFiles

from . import processes, setting
from .processes import Command


@dataclass(frozen=True)
class Flags:
    """The flags of a Go program: -x or --x, with the value after = or as the next word."""

    words: tuple[str, ...]
    folder: str = "/"  # the working directory of the process

    def values(self, *flags: str) -> list[str]:
        """Returns the values of a flag that has one or more names, in their order."""
        values = []
        for word, following in itertools.pairwise((*self.words, "")):
            name, equals, value = word.partition("=")
            if name.startswith("-") and name.lstrip("-") in flags:
                values.append(value if equals else following)
        return values

    def path(self, *flags: str) -> str | None:
        """Returns the path that a flag names, as an absolute one, or None without the flag.

        An empty value of the flag is returned as it is.
        """
        values = self.values(*flags)
        if not values:
            return None

        # A program takes the last value if a flag is repeated.
        path = values[-1]
        return posixpath.normpath(posixpath.join(self.folder, path)) if path else ""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The places of the host as they can be read from here.

    Paths in messages for people are always those of the host.
    """

    settings: Config
    in_pod: bool
    roots: Roots  # of the GPUs, which may be in a fake tree
    machine: Roots  # of the machine whose processes run
    # The host's files outside /sys, /proc and /dev. None: they cannot be seen.
    files: HostFiles | None
    # The host's own processes; empty if the host's files cannot be seen.
    commands: tuple[Command, ...]
    settings_place: setting.Place
    # The folder of the fake GPUs that the running claimd has, though our settings do not name it.
    # Empty: it has real ones, or cannot be seen.
    fakes: str = ""

    @property
    def plugin_folder(self) -> Path:
        """The folder of claimd's sockets, as it can be read from here."""
        return names.plugin_folder(self.place(self.settings.kubelet_dir), self.settings.driver_name)

    @property
    def how(self) -> str:
        """A sentence that tells people how to see more than we can."""
        node = self.settings.node_name or "NODE"
        return (
            f"run it where the host's files are seen: deploy/doctor/pod.yaml on {node}, "
            "or `claimd doctor` on the host"
        )

    def place(self, folder: Path) -> Path:
        """Returns the path of one of the host's folders, as it can be read from here.

        That is the same path if the folder is mounted there, or a path below the host's root.
        """
        if not folder.exists() and self.files is not None:
            # On the host /var/run is a link to /run. From here the link would lead to our own /run.
            real = self.files.real(str(folder))
            if real is not None:
                return Path(f"{self.files.host}{real}")
        return folder

    def flags_of(self, program: str) -> Iterator[Flags]:
        """Yields the flags of each running process of the host that has this program."""
        for command in self.commands:
            if os.path.basename(command.words[0]) == program:
                yield Flags(command.words[1:], command.folder)


def look_around(
    settings: Config, environment: Mapping[str, str] | None = None, settings_file: str = ""
) -> Sight:
    """Finds out what can be seen with these settings and in this environment.

    `settings_file` is the file that the settings were read from, or empty.
    """
    if environment is None:
        environment = os.environ
    in_pod = is_pod(environment)
    roots = machine = settings.roots
    if in_pod:
        # A pod with fake GPUs runs on a real machine all the same.
        machine = dataclasses.replace(settings, root="").roots

    # The host's files are below `host-root`, or hidden from a pod without it, or here.
    default = Config()
    host: str | None
    if settings.host_root != default.host_root:
        host = str(settings.host_root).rstrip("/")
        # The /dev of a container is its own. It has few of the host's nodes.
        is_own = settings.dev_root == default.dev_root and not settings.root
        if is_own and Path(f"{host}/dev").is_dir():
            roots = dataclasses.replace(roots, dev=Path(f"{host}/dev"))
    elif in_pod:
        host = None
    else:
        # Empty for the machine itself.
        host = settings.root

    files = HostFiles(host) if host is not None else None
    commands: tuple[Command, ...] = ()
    if host is not None:
        commands = tuple(processes.host_commands(str(machine.proc), host))
    sight = Sight(
        settings=settings,
        in_pod=in_pod,
        roots=roots,
        machine=machine,
        files=files,
        commands=commands,
        settings_place=setting.find_place(settings, environment, settings_file, in_pod=in_pod),
    )

    # The other files of a node with fake GPUs are real. Only the GPUs are read from the fake tree.
    fakes = "" if settings.root else _find_fakes(sight)
    if not fakes:
        return sight
    return dataclasses.replace(sight, fakes=fakes, roots=Roots.in_folder(Path(fakes)))


def _find_fakes(sight: Sight) -> str:
    """Returns the folder of the running claimd's fake GPUs as it is seen from here, or ""."""
    process = processes.find_claimd(str(sight.plugin_folder))
    if process is None:
        return ""

    # A flag takes precedence over the variable, as in claimd itself.
    place = f"{sight.machine.proc}/{process}"
    root = ""
    for variable in processes.read_words(f"{place}/environ"):
        name, _, value = variable.partition("=")
        if name == variable_of("root"):
            root = value
    flags = Flags(tuple(processes.read_words(f"{place}/cmdline")[1:])).values("root")
    root = flags[-1] if flags else root

    # The folder is one of claimd's container.
    fakes = f"{place}/root{root}"
    return fakes if root and os.path.isdir(fakes) else ""


def is_pod(environment: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment
