"""Checks of the container runtime: CDI is on, and it reads the folder that claimd writes.

A runtime with CDI turned off starts a container without its GPUs and reports no error. A runtime
that reads other folders does not start the container ("unresolvable CDI devices").
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from . import runtime_config
from .check import Check, Finding, Level
from .root_files import NotReadError, RootFiles
from .runtime_config import CONTAINERD_FILES, CRI_PLUGINS
from .sight import Sight

RUNTIME_VERSION = Check(
    name="runtime-version",
    level=Level.ERROR,
    looks_at="the Node's `containerRuntimeVersion`",
    expected="containerd 1.7 or later, or CRI-O: others take no CDI devices from the kubelet",
    remedy="update the container runtime of the node, or change it",
)
CDI_ENABLED = Check(
    name="cdi-enabled",
    level=Level.ERROR,
    looks_at="`enable_cdi` in the configuration that containerd was started with, and in what that "
    "imports; CRI-O has CDI always",
    expected="CDI turned on: a container gets its GPU as a CDI device",
    remedy="set `enable_cdi = true` in the table of the CRI plugin, and restart containerd",
)
CDI_FOLDERS = Check(
    name="cdi-folders",
    level=Level.ERROR,
    looks_at="`cdi_spec_dirs` of containerd, or of CRI-O in the files and flags that it was started "
    "with, compared with the setting `cdi-dir`",
    expected="the runtime looks for CDI specs where claimd writes them",
    remedy="add the folder to `cdi_spec_dirs` and restart the runtime, or set `cdi-dir` to one of "
    "the folders that it has",
)
CDI_FOLDER = Check(
    name="cdi-folder",
    level=Level.ERROR,
    looks_at="the folder `cdi-dir`: that it is there, can be written, and is still the host's",
    expected="a folder in which claimd can write",
    remedy="make it on the node, and see that claimd's mount leads there and is not read-only",
)
CHECKS = (RUNTIME_VERSION, CDI_ENABLED, CDI_FOLDERS, CDI_FOLDER)

DEFAULT_FOLDERS = ("/etc/cdi", "/var/run/cdi")

_CGROUP_DRIVER = re.compile(r'^\s*"?cgroupDriver"?: *"?(systemd|cgroupfs)\b', re.M)
_LAST_OF_VERSION_1 = (1, 7)
_HOW_UNREAD = "look at the runtime's command line and at that file, on the node"
_THAT_FILE = "the file that is named above"


@dataclass(frozen=True, kw_only=True)
class CdiFolder:
    """The folder that claimd writes CDI files into, and why it cannot be written, if so."""

    path: str = "/var/run/cdi"
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The version and the configuration of the runtime."""

    version: str = ""  # from the Node, such as containerd://2.1.4
    config: str = ""  # the file; empty: there is no file, or we cannot see it
    # The file, perhaps an imported one, and the table that set enable_cdi or should set it.
    place: str = ""
    table: str = ""
    # In containerd 1.7 an imported file replaces that table as a whole. This is the file.
    replacing: str = ""
    folders_place: str = ""  # the file or the flag that sets cdi_spec_dirs
    # True: a process names the configuration. No remedy repeats what a process says.
    named: bool = False
    seen: bool = False  # True: we can see the places of a configuration
    unread: str = ""  # why we do not read the configuration to its end
    trouble: str = ""  # why the configuration cannot be understood
    enable_cdi: bool | None = None  # None: not set
    folders: tuple[str, ...] | None = None
    systemd_cgroup: bool | None = None
    cdi: CdiFolder = CdiFolder()

    @property
    def name(self) -> str:
        """The runtime's name, such as containerd, or "" if it is not known."""
        return self.version.partition("://")[0]

    @property
    def number(self) -> tuple[int, ...]:
        """The major and minor version, or an empty tuple if they are not known."""
        digits = re.match(r"v?([0-9]{1,6})\.([0-9]{1,6})", self.version.partition("://")[2])
        return (int(digits[1]), int(digits[2])) if digits else ()

    @property
    def title(self) -> str:
        """The name and the version for people, such as containerd 2.1.4."""
        return self.version.replace("://", " ") or "the container runtime"


def judge(facts: Facts, how: str) -> list[Finding]:
    """Judges the runtime. `how` tells people how to see a configuration that is hidden from us."""
    return [
        judge_version(facts),
        _judge_cdi(facts, how),
        _judge_folders(facts, how),
        _judge_folder(facts),
    ]


def judge_version(facts: Facts) -> Finding:
    """Judges whether this version of the runtime takes CDI devices from the kubelet."""
    if not facts.version:
        return RUNTIME_VERSION.unknown(
            "the Node could not be read, which names the runtime",
            "kubectl get node NODE -o wide",
        )
    if facts.name == "docker":
        return RUNTIME_VERSION.failure(f"the node runs {facts.title} by cri-dockerd")
    if facts.name == "containerd" and facts.number and facts.number < (1, 7):
        return RUNTIME_VERSION.failure(f"the node runs {facts.title}")
    return RUNTIME_VERSION.success(facts.title)


def _judge_cdi(facts: Facts, how: str) -> Finding:
    if facts.name == "cri-o":
        return CDI_ENABLED.success(f"{facts.title} has CDI always")
    if not facts.seen:
        return CDI_ENABLED.unknown("the runtime's configuration cannot be seen from here", how)
    if facts.unread:
        return CDI_ENABLED.unknown(f"the runtime's configuration: {facts.unread}", _HOW_UNREAD)
    if facts.trouble:
        mend = "mend the file at that place: containerd does not start with it"
        if " twice " in facts.trouble:
            mend = "keep one of the two, with the lines of both: containerd does not start with it"
        return CDI_ENABLED.failure(
            facts.trouble, expected="a configuration in TOML", remedy=f"on the node {mend}"
        )

    place = facts.place or facts.config
    if facts.enable_cdi:
        return CDI_ENABLED.success(f"{place}: enable_cdi = true")
    if facts.enable_cdi is False:
        return CDI_ENABLED.failure(f"{place}: enable_cdi = false", remedy=_remedy_to_enable(facts))

    # The configuration leaves it to the default of the version.
    if facts.number and facts.number <= _LAST_OF_VERSION_1:
        where = f"{facts.config} does not set enable_cdi"
        if not facts.config:
            where = "there is no configuration"
        elif facts.replacing:
            where = (
                f"{facts.replacing}, which replaces the table of the CRI plugin in "
                f"{facts.config}, does not set enable_cdi"
            )
        return CDI_ENABLED.failure(
            f"{facts.title} has CDI off by default, and {where}", remedy=_remedy_to_enable(facts)
        )
    if facts.number:
        return CDI_ENABLED.success(f"{facts.title} has CDI on by default")
    return CDI_ENABLED.unknown(
        "the configuration does not set enable_cdi, and the runtime's version is not known: "
        "containerd 1.7 has CDI off by default, 2.0 on",
        "containerd --version, on the node",
    )


def _remedy_to_enable(facts: Facts) -> str:
    """Returns the steps to turn CDI on in containerd's configuration."""
    config = facts.place or facts.config or CONTAINERD_FILES[0]
    if facts.named:
        config = _THAT_FILE
    table = facts.table or CRI_PLUGINS[0]
    lines = [
        f"in {config}, on the node, write, in this table, which may be there once,",
        f'    [plugins."{table}"]',
        "      enable_cdi = true",
    ]
    if facts.enable_cdi is False:
        lines = [f"in {config}, on the node, change `enable_cdi = false` to `enable_cdi = true`"]
    lines.append("then `systemctl restart containerd`. Running containers stay")
    if "/rancher/" in facts.config:
        lines.append(
            "k3s and rke2 replace this file at each start: write it into config.toml.tmpl in the same folder"
        )
    return "\n".join(lines)


def _judge_folders(facts: Facts, how: str) -> Finding:
    if not facts.seen:
        return CDI_FOLDERS.unknown("the runtime's configuration cannot be seen from here", how)
    if facts.unread:
        return CDI_FOLDERS.unknown(f"the runtime's configuration: {facts.unread}", _HOW_UNREAD)
    if facts.trouble and facts.name == "cri-o":
        return CDI_FOLDERS.failure(
            facts.trouble,
            expected="a configuration in TOML; all files of the folder of drop-ins count",
            remedy="mend it, or take the file away: CRI-O does not start with it",
        )
    if facts.trouble:
        return CDI_FOLDERS.unknown(
            "the runtime's configuration cannot be read: cdi-enabled says why", "mend that first"
        )

    # A configuration without the setting leaves the runtime its default folders.
    folders = DEFAULT_FOLDERS if facts.folders is None else facts.folders
    if _normalize(facts.cdi.path) in map(_normalize, folders):
        return CDI_FOLDERS.success(f"{facts.cdi.path} is among {', '.join(folders)}")

    seen = (
        f"claimd writes into {facts.cdi.path}, the runtime looks in {', '.join(folders) or 'none'}"
    )
    place = facts.folders_place or facts.config
    if place:
        seen += f" ({place})"
    return CDI_FOLDERS.failure(seen, remedy=_remedy_to_add_folder(facts, folders))


def _remedy_to_add_folder(facts: Facts, folders: tuple[str, ...]) -> str:
    """Returns the steps to let the runtime read claimd's folder as well.

    Returns "", for the general remedy, if no file or flag is known that sets the folders.
    """
    if not facts.folders_place:
        return ""
    place = facts.folders_place
    if facts.named and place != runtime_config.FLAG:
        place = _THAT_FILE

    listed = ", ".join(f'"{folder}"' for folder in (*folders, facts.cdi.path))
    what = f"set `cdi_spec_dirs = [{listed}]`"
    if facts.folders_place == runtime_config.FLAG:
        what = f"start it with {facts.cdi.path} as well"
    elif facts.named:
        what = f"add {facts.cdi.path} to `cdi_spec_dirs`"
    service = "crio" if facts.name == "cri-o" else "containerd"
    return (
        f"in {place}, on the node, {what}\n"
        f"and `systemctl restart {service}`: running containers stay; "
        "or set claimd's `cdi-dir` to one of the folders that it has"
    )


def _normalize(folder: str) -> str:
    """Returns the folder with /run for /var/run, which is a link to /run on every host."""
    return re.sub(r"^/var/run(?=/|$)", "/run", folder.rstrip("/"))


def _judge_folder(facts: Facts) -> Finding:
    if facts.cdi.trouble:
        return CDI_FOLDER.failure(facts.cdi.trouble)
    return CDI_FOLDER.success(f"{facts.cdi.path} is there and can be written")


# ---------------------------------------------------------------- looking


def look(sight: Sight, version: str) -> Facts:
    """Reads the runtime's configuration from the node's files.

    `version` is the runtime's version in the Node, or empty if it is not known.
    """
    cdi_dir = sight.settings.cdi_dir
    trouble = folder_trouble(str(sight.place(cdi_dir)), str(cdi_dir))
    facts: dict[str, Any] = {
        "version": version,
        "cdi": CdiFolder(path=str(cdi_dir), trouble=trouble),
    }
    if sight.files is None:
        return Facts(**facts)

    facts["seen"] = True
    files = RootFiles(sight.files)
    try:
        facts["systemd_cgroup"] = _kubelet_wants_systemd(sight, files)
        if version.startswith("cri-o") or (not version and runtime_config.has_crio(sight, files)):
            facts["version"] = version or "cri-o://"
            return Facts(**facts | runtime_config.crio(sight, files))

        # An unknown version is taken for a new one.
        known = Facts(version=version)
        replaces = bool(known.number) and known.number <= _LAST_OF_VERSION_1
        return Facts(**facts | runtime_config.containerd(sight, files, replaces=replaces))
    except NotReadError as error:
        return Facts(**facts | {"unread": str(error)})


def _kubelet_wants_systemd(sight: Sight, files: RootFiles) -> bool | None:
    """Returns True if the kubelet has systemd make the cgroups, and None if it is not known.

    The runtime's own configuration takes precedence.
    """
    path = f"{sight.settings.kubelet_dir}/config.yaml"
    for flags in sight.flags_of("kubelet"):
        path = flags.path("config") or path
    try:
        content = files.content(path)
    except OSError:
        return None
    driver = _CGROUP_DRIVER.search(content.decode(errors="replace"))
    return driver[1] == "systemd" if driver else None


def folder_trouble(place: str, name: str) -> str:
    """Returns what is wrong with a folder into which claimd writes, or "" if it can be used.

    `place` is its path as we see it, and `name` is its path on the host.
    """
    try:
        status = os.stat(place)
    except FileNotFoundError:
        return f"there is no folder {name}"
    except OSError as error:
        return f"{name}: {error.strerror}"
    if not os.path.isdir(place):
        return f"{name} is no folder"

    # A mount keeps a folder that was removed, but no program sees the files that we write there.
    if status.st_nlink == 0:
        return (
            f"{name} was removed on the host and created again: our mount leads to the old one; "
            "delete the claimd pod of this node"
        )
    if place != name:
        # We see it through the host's root, whose mount says nothing about claimd's own mount.
        return ""
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return f"{name} is mounted read-only"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{name} may not be written by user {os.getuid()}"
    return ""
