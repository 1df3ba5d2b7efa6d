"""CDI specs on the host that name a GPU of NVIDIA, written by tools of NVIDIA's.

Such a spec brings everything that a container needs, by an id that a runtime resolves. It may be of
a driver that has been updated since, or be left over: then files are missing that it names. Nothing
is loaded or run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from . import values
from .host_files import HostFiles

FOLDERS = ("/etc/cdi", "/var/run/cdi")

# nvidia.com/gpu is what nvidia-ctk writes unless it is told otherwise, k8s.device-plugin.nvidia.com
# the device plugin, management.nvidia.com the GPU Operator (all GPUs at once, by the name `all`).
_KIND = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.)?nvidia\.com/gpu")
_USUAL_KIND = "nvidia.com/gpu"
_FILE = re.compile(r"(?!\.).*nvidia.*\.(?:json|ya?ml)")
_NAME = re.compile(r"[\w.:-]{1,128}")
_GPU_NODE = re.compile(r"/dev/nvidia[0-9]+")

# Of JSON and of YAML alike: a file that is mounted, or the program of a hook.
_HOST_PATH = re.compile(r"""\b(?:hostPath|path)["']?:\s*["']?(/[^"',\s}\]\0]+)""")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a spec. `nodes` are the GPUs' own among its nodes, without those for control."""

    id: str  # kind=name
    nodes: frozenset[str]
    spec: Spec

    @property
    def name(self) -> str:
        return self.id.partition("=")[2]


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A spec file, and the first of the files it names that is not there, if any is not."""

    path: str
    missing: str | None


def devices(files: HostFiles, notes: list[str]) -> tuple[Device, ...]:
    """Those in specs of any kind of NVIDIA's for GPUs, the usual kind and whole specs first.

    A file that cannot be understood is noted and costs nothing else.
    """
    found = []
    for folder in FOLDERS:
        place, names = files.names(folder)
        for name in names:
            if _FILE.fullmatch(name):
                found += _devices_in(files, f"{place}/{name}", notes)
    return tuple(
        sorted(found, key=lambda it: (it.spec.missing is not None, not _is_usual(it.id), it.id))
    )


def _is_usual(id: str) -> bool:
    return id.startswith(f"{_USUAL_KIND}=")


def _devices_in(files: HostFiles, path: str, notes: list[str]) -> list[Device]:
    content = HostFiles(files.host).content(path, notes)
    if content is None:
        return []
    try:
        text = content.decode()
        read = _json if path.endswith(".json") else _yaml
        kind, devices = read(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        notes.append(f"{path}: cannot be understood: {type(error).__name__}")
        return []
    if not _KIND.fullmatch(kind):
        return []

    spec = Spec(path=path, missing=_missing(files.host, text))
    return [
        Device(id=f"{kind}={name}", nodes=nodes, spec=spec)
        for name, nodes in devices
        if _NAME.fullmatch(name)
    ]


def _missing(host: str, text: str) -> str | None:
    """The first of the files that a spec names and that is not there.

    None as well if none is there: then we do not see the host's root, and cannot tell.
    """
    files = HostFiles(host)
    named = [path for path in _HOST_PATH.findall(text) if "/dev/" not in path]
    missing = [path for path in dict.fromkeys(named) if files.real(path) is None]
    if len(missing) == len(set(named)):
        return None
    return missing[0] if missing else None


_Devices = list[tuple[str, frozenset[str]]]


def _json(text: str) -> tuple[str, _Devices]:
    import json  # only where a host has such specs: it would cost every start a millisecond

    spec = json.loads(text)
    devices = []
    for device in spec["devices"]:
        nodes = device.get("containerEdits", {}).get("deviceNodes") or []
        paths = (str(node.get("path", "")) for node in nodes)
        devices.append((str(device["name"]), _gpu_nodes(paths)))
    return str(spec["kind"]), devices


def _yaml(text: str) -> tuple[str, _Devices]:
    """Of the YAML that NVIDIA's tools write, and no other: one key a line, lists of mappings."""
    kind = re.search(r"^kind: ['\"]?([^'\"\s]+)['\"]?\s*$", text, re.M)
    if kind is None:
        return "", []

    # The part below `devices:`, up to the next key of the first level.
    _, _, below = f"\n{text}".partition("\ndevices:")
    section = re.split(r"^[^\s#-]", below, maxsplit=1, flags=re.M)[0]
    first = re.search(r"^( *)- ", section, re.M)
    if first is None:
        return kind[1], []

    # Each item of its list is a device.
    devices = []
    for block in re.split(rf"^{first[1]}- ", section, flags=re.M)[1:]:
        name = re.search(rf"^(?:{first[1]}  )?name: ['\"]?([^'\"\s]+)['\"]?\s*$", block, re.M)
        if name is not None:
            paths = re.findall(r"^\s*-? *path: ['\"]?(/dev/[^'\"\s]+)", block, re.M)
            devices.append((name[1], _gpu_nodes(paths)))
    return kind[1], devices


def _gpu_nodes(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path for path in paths if _GPU_NODE.fullmatch(path))
