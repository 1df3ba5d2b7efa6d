"""MIG: the instances that an NVIDIA GPU is divided into, as the driver's capability files tell of
them.

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
    """One for each compute instance that exists. Its user opens the GPU's nodes and the two of its
    capabilities.
    """
    folder = f"{roots.proc}/driver/nvidia/capabilities/gpu{gpu_minor}/mig"
    said: list[str] = []
    found = []
    for instance, inner in _instances(folder, _GPU_INSTANCE, said):
        for compute, innermost in _instances(inner, _COMPUTE_INSTANCE, said):
            minors = [_minor(f"{place}/access", said) for place in (inner, innermost)]
            if None in minors:
                said.append(f"{innermost}: what opens it is not known")
                continue
            if major is None:
                raise NotUsable(
                    "it is divided by MIG, but nvidia-caps is not in /proc/devices: nothing can open a part"
                )
            caps = [
                DeviceNode(path=f"/dev/nvidia-caps/nvidia-cap{minor}", major=major, minor=minor)
                for minor in minors
                if minor is not None
            ]
            found.append(
                Part(
                    suffix=f"mig-{instance}-{compute}",
                    nodes=tuple(sorted({*common, *caps})),
                    counters=((COUNTER, 1),),
                    profile=f"gi{instance}/ci{compute}",
                    environment=(("NVIDIA_VISIBLE_DEVICES", "void"),),
                )
            )
    if said and not found:
        raise NotUsable(f"whether it is divided by MIG cannot be read: {'; '.join(said)}")
    notes += said
    return tuple(found)


def _instances(folder: str, form: re.Pattern[str], notes: list[str]) -> list[tuple[int, str]]:
    names = sysfs.names(folder, notes) or []
    return sorted(
        (int(match[1]), f"{folder}/{name}") for name in names if (match := form.fullmatch(name))
    )


def _minor(path: str, notes: list[str]) -> int | None:
    for line in sysfs.lines(path, notes) or ():
        if match := _MINOR.fullmatch(line.strip()):
            return int(match[1])
    return None
