"""Reads AMD GPUs and their partitions from the files of amdgpu and KFD in sysfs.

This module uses no library of ROCm. It also sets no variable with a list of GPUs for ROCm: ROCm
skips GPUs whose render nodes are missing or may not be opened, and a list would hide the GPUs of
other claims in the container. `kfd` reads KFD's files, and `amdgpu` replaces them where they cannot
be read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import amd_ids, drm, sysfs, values
from .gpu import NOT_READY, Detail, DeviceNode, NotUsable, Part, Roots, Setup
from .pci import ACCELERATOR, DISPLAY, Function

if TYPE_CHECKING:
    from . import amdgpu, kfd

NAME = "amd"
VENDOR_ID = 0x1002
DRIVERS = ("amdgpu",)
GPU_CLASSES = (DISPLAY, ACCELERATOR)  # Instinct GPUs are accelerators
DEVICE_PLUGIN_RESOURCES = ("amd.com/gpu",)

# AMD's own container runtime adds GPUs by this variable, which images set to `all`. It reads numbers
# and `all`, so `void` adds none.
_ENVIRONMENT = (("AMD_VISIBLE_DEVICES", "void"),)

_UNIQUE_ID = re.compile(r"[0-9a-f]{16}")
_MODES = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}  # the number of partitions
_EACH_DIE = "CPX"  # one partition for each die that computes
_MEMORY_MODE = re.compile(r"NPS[1-8]")


def describe(roots: Roots, function: Function) -> Detail:
    """Returns what amdgpu and KFD show about a GPU, and about each partition of a divided GPU.

    Raises NotUsable while the nodes of the GPU are missing. It also raises NotUsable for a GPU
    whose partitions are unknown: other claims may have them, so the whole GPU must not be
    allocated.
    """
    # Imported late, because the imports cost time and few nodes have such a GPU.
    from . import amdgpu, kfd, xgmi

    notes: list[str] = []
    mode, profile = _mode(function, notes)
    nodes = drm.card_and_render(function.folder)
    kfd_node = _kfd_node(roots, function, notes)
    unique_id = _unique_id(f"{function.folder}/unique_id", notes)
    memory = sysfs.decimal(f"{function.folder}/mem_info_vram_total", notes)
    if memory is not None and memory <= 0:
        memory = None

    # KFD shows the most, but only readers with access to the GPU may read its files.
    topology = kfd.Topology()
    if kfd_node:
        topology = function.cache.read_once("kfd", lambda _: kfd.read_topology(roots), notes)
    agents = _agents(function, topology, nodes, notes)

    # amdgpu's own files fill in what KFD does not show.

    is_closed = bool(topology.unreadable)
    cores = amdgpu.Cores()
    is_uncertain = mode == _EACH_DIE and len(agents) != amd_ids.dies(function.device_id)
    if is_closed or is_uncertain or not agents:
        cores = amdgpu.cores(function.folder, notes)
    if mode is None and is_closed and amdgpu.can_be_divided(roots, function, nodes):
        raise NotUsable(
            "how it is partitioned is not told: the driver has made devices for partitions of it, "
            "but current_compute_partition is missing"
        )

    # If only some of the agents could be read, they would look like all partitions. So none of them
    # is used.
    count = _count(function, mode, cores, agents)
    if is_closed and len(agents) < count:
        agents = []
    _check_agents(count, agents, is_closed=is_closed)

    # Facts of the whole GPU.

    target = _target(function, agents, cores)
    compute_units = _compute_units(function, agents)
    integrated = amd_ids.is_integrated(target, function.device_id)
    carve_out = memory if integrated else None
    if integrated:
        memory = _usable_memory(function, memory, agents, notes)
    if kfd_node and not agents:
        _note_unknown(target, compute_units, topology, notes)

    # The partitions, by KFD or, if it cannot be read, by the order of the render nodes.
    partitions: Sequence[_Partition] = ()
    if count > 1 and agents:
        partitions = _agent_partitions(roots, agents)
    elif count > 1:
        render_nodes = amdgpu.partition_nodes(roots, function, nodes, count)
        partitions = [_Partition(node=node) for node in render_nodes]

    parts = []
    for index, partition in enumerate(partitions):
        part = Part(
            suffix=f"xcp-{index}",
            nodes=tuple(sorted((partition.node, *kfd_node))),
            counters=(("partitions", 1),),
            profile=profile,
            memory=partition.memory or _share(memory, count),
            compute_units=partition.compute_units or _share(compute_units, count),
            environment=_ENVIRONMENT,
        )
        parts.append(part)
    all_nodes = {*nodes, *kfd_node, *(partition.node for partition in partitions)}

    # Of a sleeping GPU less is read, so that is kept apart.
    board = function.cache.read_once_per_bind(
        f"{function.address} asleep" if function.link.is_asleep else function.address,
        f"{function.folder}/drm",
        lambda notes: _board(function, notes),
        notes,
    )

    return Detail(
        nodes=tuple(sorted(all_nodes)),
        driver_version=sysfs.module_version(roots, function.driver, function.cache, notes),
        product=board.product,
        uuid=unique_id,
        memory=memory,
        profile=profile,
        counters=(("partitions", count),) if parts else (),
        setup=board.setup,
        fabric=xgmi.fabric(function, board.hive, notes),
        family=amd_ids.family(target, function.device_id),
        architecture=target,
        vbios=board.vbios,
        integrated=integrated,
        carve_out=carve_out,
        compute_units=compute_units,
        parts=tuple(parts),
        environment=_ENVIRONMENT,
        notes=tuple(notes),
    )


def _mode(function: Function, notes: list[str]) -> tuple[str | None, str | None]:
    """Returns the partition mode and the profile, which includes the memory mode: CPX, cpx_nps4.

    Both are None for a GPU that cannot be divided: it has no such file. An unreadable file raises
    NotUsable, because the GPU may be divided and other claims may have its partitions.
    """
    trouble: list[str] = []
    mode = sysfs.text(f"{function.folder}/current_compute_partition", trouble)
    if trouble:
        reason = f"how it is partitioned cannot be read: {'; '.join(trouble)}"
        raise NotUsable(reason, is_unread=True)
    if mode is None:
        return None, None
    modes = (*_MODES, _EACH_DIE)
    if mode not in modes:
        raise NotUsable(
            f"its partition mode {mode[:40]!r} is not known, expected one of {', '.join(modes)}"
        )

    path = f"{function.folder}/current_memory_partition"
    memory_mode = sysfs.text(path, notes)
    if memory_mode is None:
        return mode, None
    if not _MEMORY_MODE.fullmatch(memory_mode):
        notes.append(f"{path}: {memory_mode[:40]!r} is not a memory mode")
        return mode, None
    return mode, f"{mode}_{memory_mode}".lower()


def _count(
    function: Function, mode: str | None, cores: amdgpu.Cores, agents: list[kfd.Agent]
) -> int:
    """Returns the number of partitions: one if the GPU is not divided.

    The number of dies that compute depends on the chip. Some kernels also list dies that the maker
    has turned off, so the smaller of two numbers is right.
    """
    if mode is None:
        return 1
    if mode != _EACH_DIE:
        return _MODES[mode]
    told = [dies for dies in (cores.dies, amd_ids.dies(function.device_id)) if dies]
    if not told and agents:
        return len(agents)
    if not told:
        raise NotUsable(
            f"it is divided into its dies ({mode}), but how many these are is not told: neither by "
            f"{function.folder}/ip_discovery nor by KFD"
        )
    return min(told)


def _target(function: Function, agents: list[kfd.Agent], cores: amdgpu.Cores) -> str | None:
    """Returns the compile target, by KFD, by the table in the firmware, or by the PCI id."""
    if agents:
        return agents[0].target
    return cores.target or amd_ids.target(function.device_id)


def _compute_units(function: Function, agents: list[kfd.Agent]) -> int | None:
    """Returns the number of compute units of the whole GPU; None if it is unknown."""
    if agents:
        return sum(agent.compute_units or 0 for agent in agents) or None
    return amd_ids.compute_units(function.device_id)


def _note_unknown(
    target: str | None, compute_units: int | None, topology: kfd.Topology, notes: list[str]
) -> None:
    """Notes which facts are missing because KFD does not show them, and why."""
    why = topology.unreadable or "KFD does not list it"
    if target is None and compute_units is None:
        notes.append(f"architecture and compute units are not known: {why}")
    elif target is None:
        notes.append(f"the architecture is not known: {why}")
    elif compute_units is None:
        notes.append(f"compute units are not known: {why}")


def _share(whole: int | None, count: int) -> int | None:
    return whole // count if whole else None


def _kfd_node(roots: Roots, function: Function, notes: list[str]) -> tuple[DeviceNode, ...]:
    """Returns the node /dev/kfd, which all GPUs share; empty and noted if it is missing.

    A missing node does not mean that the driver is still coming up, because the module makes the
    node before it initializes the first GPU.
    """
    path = f"{roots.sys}/class/kfd/kfd/dev"
    trouble: list[str] = []
    numbers = function.cache.read_once(path, lambda notes: drm.device_numbers(path, notes), trouble)
    notes += trouble
    if numbers is None:
        where = "" if trouble else f" ({path}: missing)"
        notes.append(f"no /dev/kfd: ROCm will not work{where}")
        return ()
    return (DeviceNode(path="/dev/kfd", major=numbers[0], minor=numbers[1]),)


def _agents(
    function: Function, topology: kfd.Topology, nodes: tuple[DeviceNode, ...], notes: list[str]
) -> list[kfd.Agent]:
    """Returns the agents of the GPU, one for each partition.

    The first agent must have the render node of the PCI function, and all must have its ids.
    Otherwise KFD and the bus contradict each other, and no agent is used.
    """
    agents = topology.agents_at(function.address)
    if not agents:
        return []
    own_minors = {node.minor for node in nodes if "/renderD" in node.path}
    ids = {(agent.vendor_id, agent.device_id) for agent in agents}
    is_same = agents[0].render_minor in own_minors
    if not is_same or ids != {(function.vendor_id, function.device_id)}:
        notes.append(
            f"KFD and the PCI bus do not agree on {function.address}: what KFD says is left out"
        )
        return []
    return agents


def _check_agents(count: int, agents: list[kfd.Agent], *, is_closed: bool) -> None:
    """Raises NotUsable if the driver and KFD do not agree on the number of partitions."""
    is_unseen = is_closed and not agents
    if count > 1 and len(agents) != count and not is_unseen:
        raise NotUsable(
            f"{NOT_READY}it is divided into {count} partitions, but KFD tells of {len(agents)}"
        )
    if count == 1 and len(agents) > 1:
        raise NotUsable(f"KFD tells of {len(agents)} partitions, current_compute_partition of none")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    """A partition, before it becomes a Part."""

    node: DeviceNode
    memory: int | None = None  # None: an equal share of the GPU's memory
    compute_units: int | None = None


def _agent_partitions(roots: Roots, agents: list[kfd.Agent]) -> list[_Partition]:
    partitions = []
    for index, agent in enumerate(agents):
        node = _render_node(roots, agent, is_first=index == 0)
        partitions.append(
            _Partition(node=node, memory=agent.memory, compute_units=agent.compute_units)
        )
    return partitions


def _render_node(roots: Roots, agent: kfd.Agent, *, is_first: bool) -> DeviceNode:
    """Returns the render node of a partition. Raises NotUsable if it belongs to another device.

    The first partition has the function's own node. The others have nodes of platform devices,
    which the driver makes.
    """
    name = f"renderD{agent.render_minor}"
    path = f"{roots.sys}/class/drm/{name}"
    trouble: list[str] = []
    target = sysfs.link(path, trouble)
    numbers = drm.device_numbers(f"{path}/dev", trouble)
    if trouble:
        raise NotUsable("; ".join(trouble), is_unread=True)
    if target is None or numbers is None:
        raise NotUsable(f"{NOT_READY}KFD tells of a partition at {name}, which is not there")
    if numbers != (drm.MAJOR, agent.render_minor):
        raise NotUsable(f"{path}/dev: {numbers[0]}:{numbers[1]} are not the numbers of {name}")

    folders = posixpath.normpath(target).split("/")
    is_partition = any(folder.startswith("amdgpu_xcp") for folder in folders)
    if not is_first and not is_partition:
        raise NotUsable(f"KFD tells of a partition at {name}, which is another device's")
    return DeviceNode(path=f"/dev/dri/{name}", major=numbers[0], minor=numbers[1])


def _usable_memory(
    function: Function, carve_out: int | None, agents: list[kfd.Agent], notes: list[str]
) -> int | None:
    """Returns the memory that a program can use on an integrated GPU.

    The firmware reserves a part of the machine's memory for the GPU, and the driver can map further
    memory. The result is the largest of the reserved part, the size that KFD shows, and, without
    KFD, the driver's limit for mapped memory.
    """
    sizes = [agent.memory for agent in agents]
    by_kfd = sum(size for size in sizes if size) if all(sizes) else 0
    mapped = 0
    if not agents:
        mapped = sysfs.decimal(f"{function.folder}/mem_info_gtt_total", notes) or 0
    return max(carve_out or 0, by_kfd, mapped) or None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class _Board:
    """The facts of a board that stay the same, or nearly so, while its driver is bound."""

    product: str | None
    vbios: str | None
    setup: Setup | None
    hive: int | None


def _board(function: Function, notes: list[str]) -> _Board:
    from . import amdgpu, xgmi

    return _Board(
        product=_product(function, notes),
        vbios=sysfs.text(f"{function.folder}/vbios_version", notes),
        setup=amdgpu.setup(function, notes),
        hive=xgmi.hive(function, notes),
    )


def _product(function: Function, notes: list[str]) -> str | None:
    """Returns the board's name.

    Boards that do not store one, such as Radeons, have an empty file.
    """
    # An unreadable file adds a note; then the name stays unknown. An empty or missing one does not.
    noted = len(notes)
    name = sysfs.text(f"{function.folder}/product_name", notes, may_be_empty=True)
    if name or len(notes) > noted:
        return name
    revision = sysfs.hexadecimal(f"{function.folder}/revision", [])
    return amd_ids.product(function.device_id, revision)


def _unique_id(path: str, notes: list[str]) -> str | None:
    value = sysfs.text(path, notes)
    if value is None:
        return None
    if not _UNIQUE_ID.fullmatch(value) or not value.strip("0"):
        notes.append(f"{path}: {value[:40]!r} is not a unique id")
        return None
    return value
