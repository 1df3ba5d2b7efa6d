"""MIG: the instances that an NVIDIA GPU is divided into, by the driver's capability files.

Which profile an instance has, its memory and its uuid stand in no file: NVML alone knows, so they
must not be guessed.
"""

from __future__ import annotations

import re

from . import sysfs
from .gpu import DeviceNode, NotUsable, Part, Roots

COUNTER = "instances"
_GPU_INSTANCE, _COMPUTE_INSTANCE = re.compile(r"gi([0-9]{1,4})"), re.compile(r"ci([0-9]{1,4})")
_MINOR = re.compile(r"DeviceFileMinor:\s*([0-9]{1,7})")


def parts(
    roots: Roots,
    gpu_minor: int,
    common: tuple[DeviceNode, ...],
    major: int | None,
    notes: list[str],
) -> tuple[Part, ...]:
    """One for each compute instance that exists; none if the GPU is not divided.

    Who uses one opens the GPU's nodes, which are `common`, and those of two capabilities, of major
    number `major`. An instance whose capabilities cannot be read is left out and noted. Raises
    NotUsable if that leaves none: it is not known then whether the GPU is whole.
    """
    folder = f"{roots.proc}/driver/nvidia/capabilities/gpu{gpu_minor}/mig"
    damage: list[str] = []
    instances = []
    for gpu_instance, outer in _instances(folder, _GPU_INSTANCE, damage):
        for compute_instance, inner in _instances(outer, _COMPUTE_INSTANCE, damage):
            capabilities = _capabilities(outer, inner, major, damage)
            if capabilities is None:
                continue
            instances.append(
                Part(
                    suffix=f"mig-{gpu_instance}-{compute_instance}",
                    nodes=tuple(sorted({*common, *capabilities})),
                    counters=((COUNTER, 1),),
                    profile=f"gi{gpu_instance}/ci{compute_instance}",
                )
            )

    if damage and not instances:
        raise NotUsable(f"whether it is divided by MIG cannot be read: {'; '.join(damage)}")
    notes += damage
    return tuple(instances)


def _instances(folder: str, form: re.Pattern[str], notes: list[str]) -> list[tuple[int, str]]:
    """The number and the folder of each instance in `folder`, in the order of the numbers."""
    instances = []
    for name in sysfs.names(folder, notes) or ():
        match = form.fullmatch(name)
        if match is not None:
            instances.append((int(match[1]), f"{folder}/{name}"))
    return sorted(instances)


def _capabilities(
    outer: str, inner: str, major: int | None, notes: list[str]
) -> list[DeviceNode] | None:
    """The nodes that open the GPU instance and the compute instance in it; None if not known."""
    outer_minor = _minor(f"{outer}/access", notes)
    inner_minor = _minor(f"{inner}/access", notes)
    if outer_minor is None or inner_minor is None:
        notes.append(f"{inner}: what opens it is not known")
        return None
    if major is None:
        raise NotUsable(
            "it is divided by MIG, but nvidia-caps is not in /proc/devices: nothing can open a part"
        )
    return [
        DeviceNode(path=f"/dev/nvidia-caps/nvidia-cap{minor}", major=major, minor=minor)
        for minor in (outer_minor, inner_minor)
    ]


def _minor(path: str, notes: list[str]) -> int | None:
    for line in sysfs.lines(path, notes) or ():
        match = _MINOR.fullmatch(line.strip())
        if match is not None:
            return int(match[1])
    return None
