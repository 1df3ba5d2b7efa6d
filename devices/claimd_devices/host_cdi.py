"""Reads CDI specs on the host that NVIDIA's tools wrote for NVIDIA's GPUs.

Such a spec has everything that a container needs, and the container runtime finds it by a device
id. A spec may belong to a driver that has been updated or removed; then files that it names are
missing. This module loads and runs no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from . import values
from .host_files import HostFiles

FOLDERS = ("/etc/cdi", "/var/run/cdi")

# nvidia-ctk writes nvidia.com/gpu by default, the device plugin k8s.device-plugin.nvidia.com/gpu,
# and the GPU Operator management.nvidia.com/gpu, which has all GPUs in one device called `all`.
_KIND = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.)?nvidia\.com/gpu")
_USUAL_KIND = "nvidia.com/gpu"
_FILE = re.compile(r"(?!\.).*nvidia.*\.(?:json|ya?ml)")
_NAME = re.compile(r"[\w.:-]{1,128}")
_GPU_NODE = re.compile(r"/dev/nvidia[0-9]+")

# A file that is mounted, or the program of a hook; in JSON as well as in YAML.
_HOST_PATH = re.compile(r"""\b(?:hostPath|path)["']?:\s*["']?(/[^"',\s}\]\0]+)""")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a spec. `nodes` are only the nodes of single GPUs, without control nodes."""

    id: str  # kind=name
    nodes: frozenset[str]
    spec: Spec

    @property
    def name(self) -> str:
        return self.id.partition("=")[2]


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A spec file.

    `missing` is the first file that it names and that is missing, if there is one.
    """

    path: str
    missing: str | None


def devices(files: HostFiles, notes: list[str]) -> tuple[Device, ...]:
    """Returns the devices in all of NVIDIA's specs for GPUs.

    Devices of specs without missing files come first, and among them those of the usual kind. A
    file that cannot be parsed is noted and left out.
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
    """Returns the first file that a spec names and that is missing, or None.

    None also if all of them are missing: then we probably do not see the host's root.
    """
    files = HostFiles(host)
    named = [path for path in _HOST_PATH.findall(text) if "/dev/" not in path]
    missing = [path for path in dict.fromkeys(named) if files.real(path) is None]
    if len(missing) == len(set(named)):
        return None
    return missing[0] if missing else None


_Devices = list[tuple[str, frozenset[str]]]


def _json(text: str) -> tuple[str, _Devices]:
    # Imported late, because the import costs a millisecond and few hosts have such specs.
    import json

    spec = json.loads(text)
    devices = []
    for device in spec["devices"]:
        nodes = device.get("containerEdits", {}).get("deviceNodes") or []
        paths = (str(node.get("path", "")) for node in nodes)
        devices.append((str(device["name"]), _gpu_nodes(paths)))
    return str(spec["kind"]), devices


def _yaml(text: str) -> tuple[str, _Devices]:
    """Parses the YAML that NVIDIA's tools write: one key on each line, and lists of mappings.

    It parses no other YAML, so that the node needs no YAML library.
    """
    kind = re.search(r"^kind: ['\"]?([^'\"\s]+)['\"]?\s*$", text, re.M)
    if kind is None:
        return "", []

    # The part below `devices:`, up to the next key of the first level.
    _, _, below = f"\n{text}".partition("\ndevices:")
    section = re.split(r"^[^\s#-]", below, maxsplit=1, flags=re.M)[0]
    first = re.search(r"^( *)- ", section, re.M)
    if first is None:
        return kind[1], []

    # Each item of the list is a device.
    devices = []
    for block in re.split(rf"^{first[1]}- ", section, flags=re.M)[1:]:
        name = re.search(rf"^(?:{first[1]}  )?name: ['\"]?([^'\"\s]+)['\"]?\s*$", block, re.M)
        if name is not None:
            paths = re.findall(r"^\s*-? *path: ['\"]?(/dev/[^'\"\s]+)", block, re.M)
            devices.append((name[1], _gpu_nodes(paths)))
    return kind[1], devices


def _gpu_nodes(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path for path in paths if _GPU_NODE.fullmatch(path))
