"""Reads KFD's topology: the facts of each agent, which is an AMD GPU or one partition of it.

An agent is matched with a PCI function by its slot. This module does not know who may use a
partition.
"""

from __future__ import annotations

import re
from dataclasses import field

from . import sysfs, values
from .gpu import Roots

_LINE = re.compile(r"([a-z_0-9]{1,64}) ([0-9]{1,20})")
_OWN_MEMORY = (1, 2)  # heap types of the GPU's own memory banks
_REQUIRED = ("vendor_id", "device_id", "location_id", "drm_render_minor")
_REASONS = 3  # the most notes in `unreadable`


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A GPU, or one partition of it, as a program sees it."""

    vendor_id: int
    device_id: int
    # The PCI address without the function number, because some kernels count partitions there.
    slot: str
    number: int  # of the partition
    render_minor: int
    target: str | None  # the compile target: gfx942
    compute_units: int | None
    memory: int | None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All agents of the node."""

    agents: dict[str, list[Agent]] = field(default_factory=dict)  # by slot
    unreadable: str = ""  # why agents may be missing

    def agents_at(self, address: str) -> list[Agent]:
        """Returns the agents of the GPU at a PCI address, in the order of its partitions."""
        return self.agents.get(address.rpartition(".")[0], [])


def read_topology(roots: Roots) -> Topology:
    """Reads the topology.

    An agent whose files cannot be read is left out, and `unreadable` says why. It matters only to a
    GPU that lacks its agent.
    """
    folder = f"{roots.sys}/class/kfd/kfd/topology/nodes"
    notes: list[str] = []
    names = sysfs.names(folder, notes)
    if names is None:
        return Topology(unreadable=notes[0] if notes else f"{folder}: missing")

    agents: dict[str, list[Agent]] = {}
    numbers = sorted(int(name) for name in names if name.isdecimal())
    for number in numbers:
        agent = _agent(f"{folder}/{number}", notes)
        if agent is not None:
            agents.setdefault(agent.slot, []).append(agent)

    # If the kernel does not number the partitions, the order of KFD's nodes is their order. The
    # sort is stable, so it keeps that order.
    for of_gpu in agents.values():
        of_gpu.sort(key=lambda agent: agent.number)
    return Topology(agents=agents, unreadable="; ".join(notes[:_REASONS]))


def _agent(folder: str, notes: list[str]) -> Agent | None:
    """Reads one agent. Returns None for a processor, and for an agent with missing properties."""
    noted = len(notes)
    if sysfs.decimal(f"{folder}/gpu_id", notes) == 0:
        return None

    properties = _properties(f"{folder}/properties", notes)
    if properties is None:
        if len(notes) == noted:
            notes.append(f"{folder}/properties: missing")
        return None
    for name in _REQUIRED:
        if name not in properties:
            notes.append(f"{folder}/properties: {name} is missing")
            return None

    # The location is a PCI address in 16 bits: bus, device, function. The top bits are the
    # partition.
    location = properties["location_id"]
    bus, device = location >> 8 & 0xFF, location >> 3 & 0x1F
    return Agent(
        vendor_id=properties["vendor_id"],
        device_id=properties["device_id"],
        slot=f"{properties.get('domain', 0):04x}:{bus:02x}:{device:02x}",
        number=location >> 28,
        render_minor=properties["drm_render_minor"],
        target=_target(properties.get("gfx_target_version", 0)),
        compute_units=_compute_units(properties),
        memory=_memory(f"{folder}/mem_banks", notes),
    )


def _target(version: int) -> str | None:
    """Returns the compile target for KFD's number: 90402 is gfx942.

    The last two parts of the name are one hexadecimal digit each.
    """
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    if not major or minor >= 16 or step >= 16:
        return None
    return f"gfx{major}{minor:x}{step:x}"


def _compute_units(properties: dict[str, int]) -> int | None:
    per_unit = properties.get("simd_per_cu", 0)
    if not per_unit:
        return None
    return properties.get("simd_count", 0) // per_unit or None


def _memory(folder: str, notes: list[str]) -> int | None:
    """Returns the size of all banks of the GPU's own memory.

    None if the size of one bank is unknown, because the sum would be too small.
    """
    size = 0
    for name in sysfs.names(folder, notes) or ():
        bank = _properties(f"{folder}/{name}/properties", notes)
        if bank is None or "heap_type" not in bank or "size_in_bytes" not in bank:
            return None
        if bank["heap_type"] in _OWN_MEMORY:
            size += bank["size_in_bytes"]
    return size or None


def _properties(path: str, notes: list[str]) -> dict[str, int] | None:
    lines = sysfs.lines(path, notes)
    if lines is None:
        return None
    properties = {}
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None:
            notes.append(f"{path}: {line[:40]!r} is not a name and a number")
            return None
        properties[match[1]] = int(match[2])
    return properties
