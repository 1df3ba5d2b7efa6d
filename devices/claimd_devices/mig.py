"""Reads the MIG instances of an NVIDIA GPU from the driver's capability files.

The files show which instances exist and which nodes open them. The number of a GPU instance tells
its share of the memory, because the driver has a range of numbers for each size. The number of
compute slices follows only from the smallest size. Only NVML knows more, so other facts stay
unknown.
"""

from __future__ import annotations

import re

from . import sysfs, values
from .gpu import DIVIDED, DeviceNode, Gpu, NotUsable, Part, Roots, name_of

COUNTER = "instances"
_GPU_INSTANCE, _COMPUTE_INSTANCE = re.compile(r"gi([0-9]{1,4})"), re.compile(r"ci([0-9]{1,4})")
_MINOR = re.compile(r"DeviceFileMinor:\s*([0-9]{1,7})")

# The divisor of the memory, by the first number of the range: GPU instance 0 has all memory, 1 and
# 2 have a half, 3 to 6 a quarter, and the others an eighth.
_DIVISORS = {0: 1, 1: 2, 3: 4, 7: 8}
_NUMBERS = range(15)


# The number of smallest instances into which a GPU can be divided.
_SMALLEST_BY_ARCHITECTURE = {"sm_80": 8, "sm_90": 8, "sm_100": 8, "sm_103": 8}
_SMALLEST_BY_ID = {
    0x20B6: 4, 0x20B7: 4,  # A30
    0x2BB1: 4, 0x2BB4: 4, 0x2BB5: 4,  # RTX PRO 6000 Blackwell
    0x2BB3: 2, 0x2C31: 2, 0x2C3A: 2,  # RTX PRO 5000 and 4500 Blackwell
}  # fmt: skip

# Architectures with GPUs that MIG can divide: these, and large GPUs of sm_120.
_ARCHITECTURES = (*_SMALLEST_BY_ARCHITECTURE, "sm_120")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The facts of a GPU from which the names of profiles follow."""

    memory: int | None  # bytes on the board
    smallest: int | None  # the number of smallest instances into which it can be divided

    @staticmethod
    def from_ids(device_id: int, architecture: str | None, memory: int | None) -> Board:
        """Returns the facts of a GPU by its PCI device id and its architecture."""
        smallest = _SMALLEST_BY_ARCHITECTURE.get(architecture or "")
        return Board(memory=memory, smallest=_SMALLEST_BY_ID.get(device_id, smallest))


def parts(
    roots: Roots,
    gpu_minor: int,
    board: Board,
    common: tuple[DeviceNode, ...],
    major: int | None,
    notes: list[str],
) -> tuple[Part, ...]:
    """Returns a part for each compute instance; empty if the GPU is not divided.

    A program opens an instance by the nodes of the GPU, which are `common`, and by two capability
    nodes with the major number `major`. An instance whose capabilities cannot be read is left out
    and noted. Raises NotUsable if files cannot be read and no instance is left, because the GPU may
    be divided nevertheless.
    """
    folder = f"{roots.proc}/driver/nvidia/capabilities/gpu{gpu_minor}/mig"
    damage: list[str] = []
    instances = []
    for gpu_instance, outer in _instances(folder, _GPU_INSTANCE, damage):
        inside = _instances(outer, _COMPUTE_INSTANCE, damage)
        for compute_instance, inner in inside:
            capabilities = _capabilities(outer, inner, major, damage)
            if capabilities is None:
                continue

            # Several compute instances in one GPU instance share its memory; none has its own
            # amount.
            is_alone = len(inside) == 1
            profile = _profile(board, gpu_instance)
            instances.append(
                Part(
                    suffix=_suffix(gpu_instance, compute_instance),
                    nodes=tuple(sorted({*common, *capabilities})),
                    counters=((COUNTER, 1),),
                    profile=profile or f"gi{gpu_instance}/ci{compute_instance}",
                    memory=_memory(board, gpu_instance) if is_alone else None,
                )
            )

    if damage and not instances:
        reason = f"whether it is divided by MIG cannot be read: {'; '.join(damage)}"
        raise NotUsable(reason, is_unread=True)
    notes += damage
    return tuple(instances)


def part_name(address: str, gpu_instance: int, compute_instance: int) -> str:
    """Returns the device name of an instance."""
    return f"{name_of(address)}-{_suffix(gpu_instance, compute_instance)}"


def is_in_instance(gpu: Gpu, gpu_instance: int) -> bool:
    """Returns True if the device is a part of this GPU instance."""
    return gpu.name.startswith(part_name(gpu.address, gpu_instance, 0).removesuffix("0"))


def instance_number(gpu: Gpu) -> int | None:
    """Returns the number of the GPU instance that the device is a part of; None for other GPUs."""
    _, separator, suffix = gpu.name.partition("-mig-")
    return int(suffix.partition("-")[0]) if separator else None


def may_divide(gpu: Gpu) -> bool:
    """Returns True if MIG may divide the GPU, by its architecture, or if it is an instance."""
    if gpu.vendor != "nvidia" or gpu.kind not in ("gpu", DIVIDED, "partition"):
        return False
    return gpu.architecture in _ARCHITECTURES or gpu.kind != "gpu"


def _suffix(gpu_instance: int, compute_instance: int) -> str:
    return f"mig-{gpu_instance}-{compute_instance}"


def _divisor(gpu_instance: int) -> int | None:
    """Returns the divisor of the memory for a GPU instance's number: 8 is an eighth of it."""
    if gpu_instance not in _NUMBERS:
        return None
    return _DIVISORS[max(first for first in _DIVISORS if first <= gpu_instance)]


def _memory(board: Board, gpu_instance: int) -> int | None:
    divisor = _divisor(gpu_instance)
    if board.memory is None or divisor is None:
        return None
    return board.memory // divisor


def _profile(board: Board, gpu_instance: int) -> str | None:
    """Returns NVIDIA's name of an instance of the smallest size, which has one compute slice.

    None for larger instances: their number of slices may vary, and several compute instances may
    share them. The kernel does not show whether the instance has the media extensions (+me).
    """
    divisor = _divisor(gpu_instance)
    if board.memory is None or divisor is None or divisor != board.smallest:
        return None

    # NVIDIA rounds the share to the nearest GiB.
    gibibytes = (2 * (board.memory >> 30) + divisor) // (2 * divisor)
    return f"1g.{gibibytes}gb"


def _instances(folder: str, form: re.Pattern[str], notes: list[str]) -> list[tuple[int, str]]:
    """Returns the number and the folder of each instance in `folder`, sorted by number."""
    instances = []

    # A missing folder means that there are no instances. An unreadable one is noted, and `parts`
    # then raises NotUsable if it knows no other instance.
    for name in sysfs.names(folder, notes) or ():
        match = form.fullmatch(name)
        if match is not None:
            instances.append((int(match[1]), f"{folder}/{name}"))
    return sorted(instances)


def _capabilities(
    outer: str, inner: str, major: int | None, notes: list[str]
) -> list[DeviceNode] | None:
    """Returns the nodes that open the GPU instance and its compute instance; None if unreadable."""
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
