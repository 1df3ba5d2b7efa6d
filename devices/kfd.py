"""KFD's topology: what amdgpu's compute side tells of each agent, which is a GPU or one partition
of it.

It joins with the PCI bus by the agent's place. What a partition means for who may use it must not
go in here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import sysfs
from .gpu import Roots

_LINE = re.compile(r"([a-z_0-9]{1,64}) ([0-9]{1,20})")
_LOCAL = (1, 2)  # kinds of memory banks that are the GPU's own
_WANTED = ("vendor_id", "device_id", "location_id", "drm_render_minor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    vendor_id: int
    device_id: int
    place: str  # the PCI address without the function, where some kernels count the partitions
    number: int  # of the partition
    render_minor: int
    target: str | None  # gfx942
    compute_units: int | None
    memory: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    agents: dict[str, list[Agent]] = field(default_factory=dict)
    unreadable: str = ""  # why there may be more than is known

    def at(self, address: str) -> list[Agent]:
        """Those of the GPU at a PCI address, in the order of its partitions."""
        return self.agents.get(address.rpartition(".")[0], [])


def read(roots: Roots, notes: list[str]) -> Topology:
    """What cannot be read leaves its agent out and is said in `unreadable`: it is of interest to
    the GPUs that miss it, so `notes` are left alone.
    """
    folder = f"{roots.sys}/class/kfd/kfd/topology/nodes"
    agents: dict[str, list[Agent]] = {}
    said: list[str] = []
    names = sysfs.names(folder, said)
    if names is None:
        return Topology(unreadable=said[0] if said else f"{folder}: missing")
    for name in sorted((name for name in names if name.isdecimal()), key=int):
        agent = _agent(f"{folder}/{name}", said)
        if agent is not None:
            agents.setdefault(agent.place, []).append(agent)
    for found in agents.values():
        found.sort(key=lambda agent: agent.number)  # stable: else in the order of KFD's nodes
    return Topology(agents=agents, unreadable="; ".join(said[:3]))


def _agent(folder: str, said: list[str]) -> Agent | None:
    """None for a processor, and for what does not tell enough to be joined."""
    before = len(said)
    gpu_id = sysfs.decimal(f"{folder}/gpu_id", said)
    if gpu_id == 0:
        return None
    values = _properties(f"{folder}/properties", said)
    if values is None:
        if len(said) == before:
            said.append(f"{folder}/properties: missing")
        return None
    missing = [name for name in _WANTED if name not in values]
    if missing:
        said.append(f"{folder}/properties: {missing[0]} is missing")
        return None
    location, per_unit = values["location_id"], values.get("simd_per_cu", 0)
    place = f"{values.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    return Agent(
        vendor_id=values["vendor_id"],
        device_id=values["device_id"],
        place=place,
        number=location >> 28,
        render_minor=values["drm_render_minor"],
        target=_target(values.get("gfx_target_version", 0)),
        compute_units=values.get("simd_count", 0) // per_unit or None if per_unit else None,
        memory=_memory(f"{folder}/mem_banks", said),
    )


def _target(version: int) -> str | None:
    """90402 is gfx942: the last two parts are one hexadecimal digit each."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if major and minor < 16 and step < 16 else None


def _memory(folder: str, said: list[str]) -> int | None:
    size = 0
    for name in sysfs.names(folder, said) or ():
        values = _properties(f"{folder}/{name}/properties", said)
        if values is None or "heap_type" not in values or "size_in_bytes" not in values:
            return None
        if values["heap_type"] in _LOCAL:
            size += values["size_in_bytes"]
    return size or None


def _properties(path: str, said: list[str]) -> dict[str, int] | None:
    lines = sysfs.lines(path, said)
    if lines is None:
        return None
    found = {}
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None:
            said.append(f"{path}: {line[:40]!r} is not a name and a number")
            return None
        found[match[1]] = int(match[2])
    return found
