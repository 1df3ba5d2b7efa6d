"""AMD GPUs by what amdgpu and KFD say in sysfs: whole ones, and the partitions that they are
divided into.

No library of ROCm is asked, and no variable tells it what to see: it skips GPUs whose render node
is not there or may not be opened, and a list would hide what other claims of the container gave.
How KFD's files are read is kfd's.
"""

from __future__ import annotations

import posixpath
import re

from . import amd_ids, drm, kfd, sysfs
from .gpu import NOT_READY, Detail, DeviceNode, NotUsable, Part, Roots
from .pci import ACCELERATOR, DISPLAY, Function

NAME = "amd"
VENDOR_ID = 0x1002
DRIVERS = ("amdgpu",)
GPU_CLASSES = (DISPLAY, ACCELERATOR)  # Instinct GPUs are accelerators
DEVICE_PLUGIN_RESOURCES = ("amd.com/gpu",)

_UNIQUE_ID = re.compile(r"[0-9a-f]{16}")
_MODES = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": 8}  # into how many partitions
_PARTITIONS_IN_CPX = {0x74A0: 6}  # an MI300A has six dies that compute, the others eight
_MEMORY_MODE = re.compile(r"NPS[1-8]")


def describe(roots: Roots, function: Function) -> Detail:
    """What amdgpu tells of a GPU, and of each partition where it is divided.

    NotUsable as long as some of what makes it a GPU is missing, and for one whose partitions are not
    known: they may be in others' hands.
    """
    notes: list[str] = []
    count, profile = _mode(function, notes)
    nodes = drm.card_and_render(function.folder)
    kfd_node = _kfd_node(roots, function, notes)
    unique_id = _unique_id(f"{function.folder}/unique_id", notes)
    memory = sysfs.decimal(f"{function.folder}/mem_info_vram_total", notes)
    if memory is not None and memory <= 0:
        memory = None

    topology = kfd.Topology()
    if kfd_node:
        topology = function.cache.read_once("kfd", lambda _: kfd.read(roots), notes)
    agents = _agents(function, topology, nodes, notes)
    _check_partitions(count, agents, topology)
    if kfd_node and not agents:
        why = topology.unreadable or "KFD does not list it"
        notes.append(f"architecture and compute units are not known: {why}")

    parts: tuple[Part, ...] = ()
    if count > 1:
        share = memory // count if memory else None
        parts = _parts(roots, agents, kfd_node, profile, share)
    all_nodes = {*nodes, *kfd_node}
    for part in parts:
        all_nodes.update(part.nodes)

    target = agents[0].target if agents else None
    return Detail(
        nodes=tuple(sorted(all_nodes)),
        driver_version=sysfs.module_version(roots, function.driver, function.cache, notes),
        # Boards without a name in their memory, such as older Radeons, have an empty file.
        product=sysfs.text(f"{function.folder}/product_name", notes, may_be_empty=True),
        uuid=unique_id,
        memory=memory,
        profile=profile,
        counters=(("partitions", count),) if parts else (),
        family=amd_ids.family(target, function.device_id),
        architecture=target,
        vbios=sysfs.text(f"{function.folder}/vbios_version", notes),
        integrated=amd_ids.is_apu(target, function.device_id),
        compute_units=sum(agent.compute_units or 0 for agent in agents) or None,
        parts=parts,
        notes=tuple(notes),
    )


def _mode(function: Function, notes: list[str]) -> tuple[int, str | None]:
    """Into how many partitions it is divided, and what that is called: (8, "cpx_nps4").

    GPUs that cannot be divided have no such file. One that cannot be read must not be taken for one
    of these: its parts may be in others' hands.
    """
    trouble: list[str] = []
    mode = sysfs.text(f"{function.folder}/current_compute_partition", trouble)
    if trouble:
        raise NotUsable(f"how it is partitioned cannot be read: {'; '.join(trouble)}")
    if mode is None:
        return 1, None
    if mode not in _MODES:
        raise NotUsable(
            f"its partition mode {mode[:40]!r} is not known, expected one of {', '.join(_MODES)}"
        )
    count = _MODES[mode]
    if mode == "CPX":
        count = _PARTITIONS_IN_CPX.get(function.device_id, count)

    path = f"{function.folder}/current_memory_partition"
    memory_mode = sysfs.text(path, notes)
    if memory_mode is None:
        return count, None
    if not _MEMORY_MODE.fullmatch(memory_mode):
        notes.append(f"{path}: {memory_mode[:40]!r} is not a memory mode")
        return count, None
    return count, f"{mode}_{memory_mode}".lower()


def _kfd_node(roots: Roots, function: Function, notes: list[str]) -> tuple[DeviceNode, ...]:
    """/dev/kfd is one for all GPUs. It is there before any of them, since the module makes it
    first. Empty where there is none.
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
    """KFD's view of the GPU, one agent a partition.

    The first must have the render node of the PCI function, and all its ids: else the files
    contradict each other and none of them is believed.
    """
    agents = topology.at(function.address)
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


def _check_partitions(count: int, agents: list[kfd.Agent], topology: kfd.Topology) -> None:
    """NotUsable where the driver and KFD do not tell of the same partitions."""
    if count > 1 and len(agents) != count:
        seen = f"it is divided into {count} partitions, but KFD tells of {len(agents)}"
        if topology.unreadable:
            raise NotUsable(f"{seen}: {topology.unreadable}")
        raise NotUsable(f"{NOT_READY}{seen}")
    if count == 1 and len(agents) > 1:
        raise NotUsable(f"KFD tells of {len(agents)} partitions, current_compute_partition of none")


def _parts(
    roots: Roots,
    agents: list[kfd.Agent],
    kfd_node: tuple[DeviceNode, ...],
    profile: str | None,
    share: int | None,
) -> tuple[Part, ...]:
    """A part for each agent; `share` is the memory of one that does not tell its own."""
    parts = []
    for index, agent in enumerate(agents):
        render_node = _render_node(roots, agent, is_first=index == 0)
        part = Part(
            suffix=f"xcp-{index}",
            nodes=tuple(sorted((render_node, *kfd_node))),
            counters=(("partitions", 1),),
            profile=profile,
            memory=agent.memory or share,
            compute_units=agent.compute_units,
        )
        parts.append(part)
    return tuple(parts)


def _render_node(roots: Roots, agent: kfd.Agent, *, is_first: bool) -> DeviceNode:
    """The first partition has the function's own node, the others those of platform devices that
    the driver makes.
    """
    name = f"renderD{agent.render_minor}"
    path = f"{roots.sys}/class/drm/{name}"
    trouble: list[str] = []
    target = sysfs.link(path, trouble)
    numbers = drm.device_numbers(f"{path}/dev", trouble)
    if trouble:
        raise NotUsable("; ".join(trouble))
    if target is None or numbers is None:
        raise NotUsable(f"{NOT_READY}KFD tells of a partition at {name}, which is not there")
    if numbers != (drm.MAJOR, agent.render_minor):
        raise NotUsable(f"{path}/dev: {numbers[0]}:{numbers[1]} are not the numbers of {name}")

    folders = posixpath.normpath(target).split("/")
    is_partition = any(folder.startswith("amdgpu_xcp") for folder in folders)
    if not is_first and not is_partition:
        raise NotUsable(f"KFD tells of a partition at {name}, which is another device's")
    return DeviceNode(path=f"/dev/dri/{name}", major=numbers[0], minor=numbers[1])


def _unique_id(path: str, notes: list[str]) -> str | None:
    value = sysfs.text(path, notes)
    if value is None:
        return None
    if not _UNIQUE_ID.fullmatch(value) or not value.strip("0"):
        notes.append(f"{path}: {value[:40]!r} is not a unique id")
        return None
    return value
