"""The CDI devices in the folders that a runtime reads, and their edits of a container.

The rules are those of containerd. A later folder wins over an earlier one. A device that occurs
twice in one folder is unusable. An invalid file makes all its devices unusable. A container that
asks for a missing device is not created.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from . import cdi_spec

SUFFIXES = (".json", ".yaml")
_KIND = re.compile(r"""\bkind["']?\s*:\s*["']?([^\s"',}]+)""")
_NODE_TYPES = {stat.S_IFBLK: "b", stat.S_IFCHR: "c", stat.S_IFIFO: "p"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """A problem of a file, and its effect on containers."""

    path: Path
    reason: str
    effect: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; {self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedDevice:
    """A device with its file."""

    path: Path
    priority: int  # of the folder; the higher one wins
    spec: cdi_spec.Spec
    device: cdi_spec.Device


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedEdits:
    """The changes to a container that its CDI devices make."""

    device_ids: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    nodes: tuple[cdi_spec.DeviceNode, ...] = ()
    mounts: tuple[cdi_spec.Mount, ...] = ()
    hooks: tuple[cdi_spec.Hook, ...] = ()
    gids: tuple[int, ...] = ()
    net_devices: tuple[cdi_spec.NetDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiCache:
    """All devices of the folders by qualified name, and all problems."""

    devices: dict[str, CachedDevice] = field(default_factory=dict)
    problems: tuple[SpecProblem, ...] = ()

    def inject(self, device_ids: Iterable[str]) -> InjectedEdits:
        """Returns the merged edits of these devices in this order.

        Raises InvalidSpec, worded as by a runtime, if the container could not be created.
        """
        wanted = tuple(dict.fromkeys(device_ids))
        unresolved = [id_ for id_ in wanted if id_ not in self.devices]
        if unresolved:
            raise cdi_spec.InvalidSpec(
                f"unresolvable CDI devices {', '.join(unresolved)}{self._reasons(unresolved)}"
            )

        # The edits that a spec has for all its devices come once, before its first device.
        edits: list[cdi_spec.Edits] = []
        seen: set[Path] = set()
        for id_ in wanted:
            cached = self.devices[id_]
            if cached.path not in seen:
                seen.add(cached.path)
                edits.append(cached.spec.container_edits)
            edits.append(cached.device.container_edits)
        return _merge(wanted, edits)

    def _reasons(self, unresolved: Sequence[str]) -> str:
        """Describes the problems that may explain why these devices do not exist."""
        reasons = []
        for id_ in unresolved:
            try:
                kind, _ = cdi_spec.split_device_id(id_)
            except cdi_spec.InvalidSpec as error:
                reasons.append(str(error))
                continue
            reasons += [str(problem) for problem in self.problems if kind in problem.effect]
        return f" ({'; '.join(dict.fromkeys(reasons)) or 'no spec file has them'})"


def load(folders: Sequence[Path], newest: str = cdi_spec.VERSIONS[-1]) -> CdiCache:
    """Reads the folders; the last one has the highest priority.

    A missing folder counts as empty. An unusable file becomes a problem of the cache, not an
    error.
    """
    devices: dict[str, CachedDevice] = {}
    problems: list[SpecProblem] = []
    conflicts: set[str] = set()
    for priority, folder in enumerate(folders):
        for path in _spec_files(folder):
            try:
                spec = cdi_spec.parse(path.read_text(), newest)
            except FileNotFoundError:
                continue  # it was deleted after the listing
            except (OSError, UnicodeDecodeError, cdi_spec.InvalidSpec) as error:
                problems.append(_bad_file(path, error))
                continue

            for device in spec.devices:
                name = f"{spec.kind}={device.name}"
                other = devices.get(name)
                if other is not None and other.priority == priority:
                    conflicts.add(name)
                    problems += _conflict(name, path, other.path)
                    continue
                devices[name] = CachedDevice(path=path, priority=priority, spec=spec, device=device)

    for name in conflicts:
        del devices[name]
    return CdiCache(devices=devices, problems=tuple(problems))


def _bad_file(path: Path, error: Exception) -> SpecProblem:
    effect = f"a container that asks for a device of it{_kind_in(path)} would not have been created"
    return SpecProblem(path=path, reason=str(error), effect=effect)


def _conflict(name: str, path: Path, other: Path) -> list[SpecProblem]:
    """Returns a problem for each of two files of one folder that have the same device."""
    effect = f"{name} is not to be had: a container that asks for it would not have been created"
    return [
        SpecProblem(path=file, reason=f"device {name} is in {second} as well", effect=effect)
        for file, second in ((path, other), (other, path))
    ]


def _spec_files(folder: Path) -> list[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []

    # Hidden files count too, as in a runtime: `.x.json` is read.
    files = []
    for entry in entries:
        suffix = os.path.splitext(entry.name.lstrip("."))[1]
        if suffix in SUFFIXES and not entry.is_dir():
            files.append(Path(entry.path))
    return files


def _kind_in(path: Path) -> str:
    """Returns the kind that an unreadable file seems to define, for the message."""
    with contextlib.suppress(OSError):
        match = _KIND.search(path.read_text(errors="replace"))
        if match is not None:
            return f" ({match[1]})"
    return ""


def _merge(device_ids: tuple[str, ...], every_edits: Sequence[cdi_spec.Edits]) -> InjectedEdits:
    """Merges the edits of all devices; the last one wins for a variable, device node or mount
    target."""
    env: dict[str, str] = {}
    nodes: dict[str, cdi_spec.DeviceNode] = {}
    mounts: dict[str, cdi_spec.Mount] = {}
    hooks: list[cdi_spec.Hook] = []
    gids: dict[int, None] = {}
    net_devices: list[cdi_spec.NetDevice] = []
    for edits in every_edits:
        for variable in edits.env:
            name, _, value = variable.partition("=")
            env[name] = value
        # The last node or mount of a path wins, and takes its place at the end.
        for node in edits.device_nodes:
            nodes.pop(node.path, None)
            nodes[node.path] = _with_host_numbers(node)
        for mount in edits.mounts:
            mounts.pop(mount.container_path, None)
            mounts[mount.container_path] = mount
        hooks += edits.hooks
        gids.update(dict.fromkeys(gid for gid in edits.additional_gids if gid))
        net_devices += edits.net_devices

    return InjectedEdits(
        device_ids=device_ids,
        env=tuple(env.items()),
        nodes=tuple(nodes.values()),
        mounts=tuple(sorted(mounts.values(), key=_depth)),
        hooks=tuple(hooks),
        gids=tuple(gids),
        net_devices=tuple(net_devices),
    )


def _depth(mount: cdi_spec.Mount) -> int:
    """Returns the sort key that puts a mount before the mounts below it."""
    return os.path.normpath(mount.container_path).count("/")


def _with_host_numbers(node: cdi_spec.DeviceNode) -> cdi_spec.DeviceNode:
    """Adds the host's type and numbers to the node, unless the spec has them.

    Raises InvalidSpec if the host has no such device.
    """
    if node.type and (node.major or node.type == "p"):
        return node

    path = node.host_path or node.path
    try:
        status = os.lstat(path)
    except OSError as error:
        raise cdi_spec.InvalidSpec(
            f"failed to stat CDI host device {path!r}: {error.strerror}"
        ) from error
    type_ = _NODE_TYPES.get(stat.S_IFMT(status.st_mode))
    if type_ is None:
        raise cdi_spec.InvalidSpec(f"CDI host device {path!r} is not a device node")
    if node.type and node.type != type_:
        raise cdi_spec.InvalidSpec(
            f"CDI device {node.path!r}: the spec says type {node.type}, "
            f"the host's {path!r} is {type_}"
        )

    if type_ == "p" or node.major:
        return msgspec.structs.replace(node, type=type_)
    return msgspec.structs.replace(
        node, type=type_, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev)
    )
