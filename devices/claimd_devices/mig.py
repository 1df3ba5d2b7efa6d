"""MIG: the instances that an NVIDIA GPU is divided into, by the driver's capability files.

The files tell which instances exist and what opens them. The number of a GPU instance tells how
much of the memory it has, since the driver has numbers apart for each size; how many of the GPU's
slices compute in it is told only where its size leaves no choice. The rest NVML alone knows, so it
must not be guessed.
"""

from __future__ import annotations

import re

from . import sysfs, values
from .gpu import DIVIDED, DeviceNode, Gpu, NotUsable, Part, Roots, name_of

COUNTER = "instances"
_GPU_INSTANCE, _COMPUTE_INSTANCE = re.compile(r"gi([0-9]{1,4})"), re.compile(r"ci([0-9]{1,4})")
_MINOR = re.compile(r"DeviceFileMinor:\s*([0-9]{1,7})")

# Into how many instances of the same size the memory can be divided, by the first of the numbers
# that the driver gives those: 0 has all of it, 1 and 2 a half, 3 to 6 a quarter, the others an
# eighth.
_DIVISORS = {0: 1, 1: 2, 3: 4, 7: 8}
_NUMBERS = range(15)


# Into how many of its smallest instances the memory of a GPU can be divided.
_SMALLEST_BY_ARCHITECTURE = {"sm_80": 8, "sm_90": 8, "sm_100": 8, "sm_103": 8}
_SMALLEST_BY_ID = {0x20B7: 4}  # an A30

# Generations of which some can be divided: those, and the large ones of sm_120.
_ARCHITECTURES = (*_SMALLEST_BY_ARCHITECTURE, "sm_120")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What the names of profiles need to know of the GPU."""

    memory: int | None  # bytes that are soldered on it
    smallest: int | None  # into how many of its smallest instances it can be divided

    @staticmethod
    def from_ids(device_id: int, architecture: str | None, memory: int | None) -> Board:
        """By its PCI device id and what compilers call it."""
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
    """One for each compute instance that exists; none if the GPU is not divided.

    Who uses one opens the GPU's nodes, which are `common`, and those of two capabilities, of major
    number `major`. An instance whose capabilities cannot be read is left out and noted. Raises
    NotUsable if that leaves none: it is not known then whether the GPU is whole.
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

            # Several in one GPU instance have its memory in common: none of them has an own amount.
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
        raise NotUsable(f"whether it is divided by MIG cannot be read: {'; '.join(damage)}")
    notes += damage
    return tuple(instances)


def part_name(address: str, gpu_instance: int, compute_instance: int) -> str:
    """The name of the device that an instance is."""
    return f"{name_of(address)}-{_suffix(gpu_instance, compute_instance)}"


def is_in_instance(gpu: Gpu, gpu_instance: int) -> bool:
    """Returns True if the device is a part of this GPU instance."""
    prefix = f"{name_of(gpu.address)}-{_suffix(gpu_instance, 0).rpartition('-')[0]}-"
    return gpu.name.startswith(prefix)


def may_divide(gpu: Gpu) -> bool:
    """Whether it is a GPU that MIG can divide, by what its generation is, or an instance of one."""
    if gpu.vendor != "nvidia" or gpu.kind not in ("gpu", DIVIDED, "partition"):
        return False
    return gpu.architecture in _ARCHITECTURES or gpu.kind != "gpu"


def _suffix(gpu_instance: int, compute_instance: int) -> str:
    return f"mig-{gpu_instance}-{compute_instance}"


def _divisor(gpu_instance: int) -> int | None:
    """What part of the memory a GPU instance of this number has: 8 is an eighth."""
    if gpu_instance not in _NUMBERS:
        return None
    return _DIVISORS[max(first for first in _DIVISORS if first <= gpu_instance)]


def _memory(board: Board, gpu_instance: int) -> int | None:
    divisor = _divisor(gpu_instance)
    if board.memory is None or divisor is None:
        return None
    return board.memory // divisor


def _profile(board: Board, gpu_instance: int) -> str | None:
    """NVIDIA's name of an instance of the smallest size, which has one slice that computes.

    All others may have more slices or fewer, and may be shared by several compute instances. With a
    part for video or without (+me): the kernel does not tell.
    """
    divisor = _divisor(gpu_instance)
    if board.memory is None or divisor is None or divisor != board.smallest:
        return None

    # NVIDIA rounds the share of the GiB that the board is sold with.
    gibibytes = (2 * (board.memory >> 30) + divisor) // (2 * divisor)
    return f"1g.{gibibytes}gb"


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
