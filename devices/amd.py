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
from .pci import Function

NAME = "amd"
VENDOR_ID = 0x1002
DRIVERS = ("amdgpu",)
DEVICE_PLUGIN_RESOURCES = ("amd.com/gpu",)

_UNIQUE_ID = re.compile(r"[0-9a-f]{16}")
_MODES = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": 8}
_DIES = {0x74A0: 6}  # in CPX mode; an MI300A has six dies that compute
_MEMORY_MODE = re.compile(r"NPS[1-8]")


def describe(roots: Roots, function: Function) -> Detail:
    notes: list[str] = []
    count, profile = _mode(function, notes)
    nodes = drm.card_and_render(function.folder)
    compute = _compute_node(roots, function, notes)
    unique_id = _unique_id(f"{function.folder}/unique_id", notes)
    memory = sysfs.decimal(f"{function.folder}/mem_info_vram_total", notes)
    memory = memory if memory and memory > 0 else None
    topology = (
        function.cache.read_once("kfd", lambda said: kfd.read(roots, said), notes)
        if compute
        else kfd.Topology()
    )
    agents = _agents(function, topology, nodes, notes)
    if count > 1:
        if len(agents) != count:
            raise NotUsable(_incomplete(count, agents, topology))
        parts = _parts(roots, agents, compute, profile, memory // count if memory else None)
        nodes = tuple(sorted({*nodes, *(node for part in parts for node in part.nodes)}))
    else:
        parts = ()
        if len(agents) > 1:
            raise NotUsable(
                f"KFD tells of {len(agents)} partitions, current_compute_partition of none"
            )
        if compute and not agents:
            why = topology.unreadable or "KFD does not list it"
            notes.append(f"architecture and compute units are not known: {why}")
    target = agents[0].target if agents else None
    return Detail(
        nodes=tuple(sorted({*nodes, *compute})),
        # The module of the kernel's own tree has no version.
        driver_version=sysfs.module_version(roots, function.driver, function.cache, notes),
        product=sysfs.text(f"{function.folder}/product_name", notes),
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
    """Into how many partitions it is divided, and what that is called: (8, "cpx_nps4"). GPUs that
    cannot be divided have no such file. One that cannot be read must not be taken for one of these:
    its parts may be in others' hands.
    """
    said: list[str] = []
    mode = sysfs.text(f"{function.folder}/current_compute_partition", said)
    if said:
        raise NotUsable(f"how it is partitioned cannot be read: {'; '.join(said)}")
    if mode is None:
        return 1, None
    if mode not in _MODES:
        raise NotUsable(
            f"its partition mode {mode[:40]!r} is not known, expected one of {', '.join(_MODES)}"
        )
    count = _DIES.get(function.device_id, _MODES[mode]) if mode == "CPX" else _MODES[mode]
    memory_mode = sysfs.text(f"{function.folder}/current_memory_partition", notes)
    if memory_mode is None or not _MEMORY_MODE.fullmatch(memory_mode):
        if memory_mode is not None:
            notes.append(
                f"{function.folder}/current_memory_partition: {memory_mode[:40]!r} is not a memory mode"
            )
        return count, None
    return count, f"{mode}_{memory_mode}".lower()


def _compute_node(roots: Roots, function: Function, notes: list[str]) -> tuple[DeviceNode, ...]:
    """/dev/kfd is one for all GPUs. It is there before any of them, since the module makes it
    first.
    """
    path = f"{roots.sys}/class/kfd/kfd/dev"
    said: list[str] = []
    numbers = function.cache.read_once(path, lambda found: drm.device_numbers(path, found), said)
    notes += said
    if numbers is None:
        notes.append(f"no /dev/kfd: ROCm will not work{'' if said else f' ({path}: missing)'}")
        return ()
    return (DeviceNode(path="/dev/kfd", major=numbers[0], minor=numbers[1]),)


def _agents(
    function: Function, topology: kfd.Topology, nodes: tuple[DeviceNode, ...], notes: list[str]
) -> list[kfd.Agent]:
    """KFD's view of the GPU, one agent a partition. The first must have the render node of the PCI
    function, and all its ids: else the files contradict each other and none of them is believed.
    """
    agents = topology.at(function.address)
    if not agents:
        return []
    own = {node.minor for node in nodes if "/renderD" in node.path}
    ids = {(agent.vendor_id, agent.device_id) for agent in agents}
    if agents[0].render_minor not in own or ids != {(function.vendor_id, function.device_id)}:
        notes.append(
            f"KFD and the PCI bus do not agree on {function.address}: what KFD says is left out"
        )
        return []
    return agents


def _incomplete(count: int, agents: list[kfd.Agent], topology: kfd.Topology) -> str:
    seen = f"it is divided into {count} partitions, but KFD tells of {len(agents)}"
    return f"{seen}: {topology.unreadable}" if topology.unreadable else f"{NOT_READY}{seen}"


def _parts(
    roots: Roots,
    agents: list[kfd.Agent],
    compute: tuple[DeviceNode, ...],
    profile: str | None,
    share: int | None,
) -> tuple[Part, ...]:
    parts = []
    for index, agent in enumerate(agents):
        parts.append(
            Part(
                suffix=f"xcp-{index}",
                nodes=tuple(sorted((_render_node(roots, agent, is_first=index == 0), *compute))),
                counters=(("partitions", 1),),
                profile=profile,
                memory=agent.memory or share,
                compute_units=agent.compute_units,
            )
        )
    return tuple(parts)


def _render_node(roots: Roots, agent: kfd.Agent, *, is_first: bool) -> DeviceNode:
    """The first partition has the function's own node, the others those of platform devices that
    the driver makes.
    """
    name = f"renderD{agent.render_minor}"
    path = f"{roots.sys}/class/drm/{name}"
    said: list[str] = []
    place = sysfs.link(path, said)
    numbers = drm.device_numbers(f"{path}/dev", said)
    if said:
        raise NotUsable("; ".join(said))
    if place is None or numbers is None:
        raise NotUsable(f"{NOT_READY}KFD tells of a partition at {name}, which is not there")
    if numbers != (drm.MAJOR, agent.render_minor):
        raise NotUsable(f"{path}/dev: {numbers[0]}:{numbers[1]} are not the numbers of {name}")
    if not is_first and not any(
        part.startswith("amdgpu_xcp") for part in posixpath.normpath(place).split("/")
    ):
        raise NotUsable(f"KFD tells of a partition at {name}, which is another device's")
    return DeviceNode(path=f"/dev/dri/{name}", major=numbers[0], minor=numbers[1])


def _unique_id(path: str, notes: list[str]) -> str | None:
    value = sysfs.text(path, notes)
    if value is None:
        return None
    if _UNIQUE_ID.fullmatch(value) and value.strip("0"):
        return value
    notes.append(f"{path}: {value[:40]!r} is not a unique id")
    return None
