"""CDI specs of the folders that a runtime reads, and what some devices of them make of a container.

As containerd does it: a later folder wins over an earlier one; a device that is twice in one folder
is not to be had; a bad file takes all its devices away, and a container that asks for a device that
is not there is not created.
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

from . import specs

ENDINGS = (".json", ".yaml")
_KIND = re.compile(r"""\bkind["']?\s*:\s*["']?([^\s"',}]+)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """What is wrong with a file, and what would have come of it."""

    path: Path
    reason: str
    effect: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; {self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One device and where it was found."""

    path: Path
    rank: int  # of the folder; the higher one wins
    spec: specs.Spec
    device: specs.Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a container gets besides what it asked for by itself."""

    ids: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    nodes: tuple[specs.DeviceNode, ...] = ()
    mounts: tuple[specs.Mount, ...] = ()
    hooks: tuple[specs.Hook, ...] = ()
    gids: tuple[int, ...] = ()
    net: tuple[specs.NetDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """All devices of the folders by qualified name, and all that is wrong there."""

    known: dict[str, Known] = field(default_factory=dict)
    problems: tuple[SpecProblem, ...] = ()

    def merge(self, ids: Iterable[str]) -> Merged:
        """What these devices, in this order, make of a container. Refused as the container would
        be.
        """
        wanted = tuple(dict.fromkeys(ids))
        missing = [id_ for id_ in wanted if id_ not in self.known]
        if missing:
            raise specs.InvalidSpec(
                f"unresolvable CDI devices {', '.join(missing)}{self._why(missing)}"
            )
        edits: list[specs.Edits] = []
        seen: set[Path] = set()
        for id_ in wanted:
            known = self.known[id_]
            if (
                known.path not in seen
            ):  # what a spec says for all its devices comes once, before the first of them
                seen.add(known.path)
                edits.append(known.spec.container_edits)
            edits.append(known.device.container_edits)
        return _apply(wanted, edits)

    def _why(self, missing: Sequence[str]) -> str:
        reasons = []
        for id_ in missing:
            try:
                kind, _ = specs.split(id_)
            except specs.InvalidSpec as error:
                reasons.append(str(error))
                continue
            reasons += [str(problem) for problem in self.problems if kind in problem.effect]
        return f" ({'; '.join(dict.fromkeys(reasons)) or 'no spec file has them'})"


def load(folders: Sequence[Path], newest: str = specs.VERSIONS[-1]) -> Devices:
    """Reads the folders, the last of which has the highest rank. A folder that is not there is
    empty.
    """
    known: dict[str, Known] = {}
    problems: list[SpecProblem] = []
    conflicts: set[str] = set()
    for rank, folder in enumerate(folders):
        for path in _files(folder):
            try:
                spec = specs.parse(path.read_text(), newest)
            except FileNotFoundError:
                continue  # it went between the look and the read
            except (OSError, UnicodeDecodeError, specs.InvalidSpec) as error:
                effect = f"a container that asks for a device of it{_kind_of(path)} would not have been created"
                problems.append(SpecProblem(path=path, reason=str(error), effect=effect))
                continue
            for device in spec.devices:
                name = f"{spec.kind}={device.name}"
                other = known.get(name)
                if other is not None and other.rank == rank:
                    conflicts.add(name)
                    effect = f"{name} is not to be had: a container that asks for it would not have been created"
                    for one, two in ((path, other.path), (other.path, path)):
                        problems.append(
                            SpecProblem(
                                path=one, reason=f"device {name} is in {two} as well", effect=effect
                            )
                        )
                    continue
                known[name] = Known(path=path, rank=rank, spec=spec, device=device)
    return Devices(
        known={name: device for name, device in known.items() if name not in conflicts},
        problems=tuple(problems),
    )


def _files(folder: Path) -> list[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    # The ending of a hidden file counts too, as it does for a runtime: `.x.json` is read.
    return [
        Path(e.path)
        for e in entries
        if os.path.splitext(e.name.lstrip("."))[1] in ENDINGS and not e.is_dir()
    ]


def _kind_of(path: Path) -> str:
    """The kind that a bad file may have meant, for the message."""
    with contextlib.suppress(OSError):
        if found := _KIND.search(path.read_text(errors="replace")):
            return f" ({found[1]})"
    return ""


def _apply(ids: tuple[str, ...], edits: Sequence[specs.Edits]) -> Merged:
    env: dict[str, str] = {}
    nodes: dict[str, specs.DeviceNode] = {}
    mounts: dict[str, specs.Mount] = {}
    for each in edits:
        for variable in each.env:
            name, _, value = variable.partition("=")
            env[name] = value
        for node in each.device_nodes:
            nodes.pop(node.path, None)  # the last one of a path counts, in the last one's place
            nodes[node.path] = _complete(node)
        for mount in each.mounts:
            mounts.pop(mount.container_path, None)
            mounts[mount.container_path] = mount
    return Merged(
        ids=ids,
        env=tuple(env.items()),
        nodes=tuple(nodes.values()),
        mounts=tuple(
            sorted(
                mounts.values(), key=lambda mount: os.path.normpath(mount.container_path).count("/")
            )
        ),
        hooks=tuple(hook for each in edits for hook in each.hooks),
        gids=tuple(dict.fromkeys(gid for each in edits for gid in each.additional_gids if gid)),
        net=tuple(device for each in edits for device in each.net_devices),
    )


def _complete(node: specs.DeviceNode) -> specs.DeviceNode:
    """With type and numbers as the host has them, unless the spec says enough. Refused if the host
    cannot tell.
    """
    if node.type and (node.major or node.type == "p"):
        return node
    path = node.host_path or node.path
    try:
        found = os.lstat(path)
    except OSError as error:
        raise specs.InvalidSpec(
            f"failed to stat CDI host device {path!r}: {error.strerror}"
        ) from error
    kinds = {stat.S_IFBLK: "b", stat.S_IFCHR: "c", stat.S_IFIFO: "p"}
    kind = kinds.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        raise specs.InvalidSpec(f"CDI host device {path!r} is not a device node")
    if node.type and node.type != kind:
        raise specs.InvalidSpec(
            f"CDI device {node.path!r}: the spec says type {node.type}, the host's {path!r} is {kind}"
        )
    if kind == "p" or node.major:
        return msgspec.structs.replace(node, type=kind)
    return msgspec.structs.replace(
        node, type=kind, major=os.major(found.st_rdev), minor=os.minor(found.st_rdev)
    )
