"""The types by which the rest of the program knows hardware: Gpu, DeviceNode, Inventory.

All are frozen, sorted, comparable, plain data. This module does no I/O and does not know
Kubernetes. The plugin receives an Inventory, and nothing that reads the kernel's trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from . import values


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The folders where claimd sees the kernel's trees.

    A container may see the host's /dev as /host/dev. Paths that are handed to others are
    nevertheless paths of the host.
    """

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")

    # Where the host's root is, for files that are in none of the kernel's trees. Empty: our own
    # root.
    host: str = ""

    # Where the user space of NVIDIA's driver is on the host. Empty: in the first usual place.
    nvidia_driver: str = ""

    @staticmethod
    def in_folder(folder: Path) -> Roots:
        """Returns the roots of a tree that was written or captured in one folder."""
        return Roots(sys=folder / "sys", proc=folder / "proc", dev=folder / "dev", host=str(folder))


def name_of(address: str) -> str:
    """Returns the name of the GPU at a PCI address."""
    return f"gpu-{address.replace(':', '-').replace('.', '-')}"


def address_of(name: str) -> str:
    """Returns the PCI address of the GPU with this name, or of the GPU to which the named part
    belongs.
    """
    domain, bus, device, function = name.split("-")[1:5]
    return f"{domain}:{bus}:{device}.{function}"


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceNode:
    """A character device that a user of the GPU opens.

    The path is a path of the host. The numbers come from sysfs or procfs, not from /dev, and are
    valid for this boot only.
    """

    path: str
    major: int
    minor: int


# The capabilities of a vendor's user space that a container may want, in NVIDIA's words. A
# container always gets the first two.
COMPUTE, UTILITY = "compute", "utility"
GRAPHICS, VIDEO, DISPLAY, NGX = "graphics", "video", "display", "ngx"
CAPABILITIES = (COMPUTE, UTILITY, GRAPHICS, VIDEO, DISPLAY, NGX)


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mount:
    """A file of the host that a user of the GPU needs, and where a container sees it.

    `source` is the file's path on the host, without symbolic links, for the container runtime.
    """

    source: str
    target: str
    capability: str = COMPUTE  # one of CAPABILITIES


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """The way in which a container gets the vendor's libraries that belong to the host's driver."""

    how: str  # CDI, MOUNTED or NONE

    # A sentence for people: what was found, or what was looked for.
    reason: str

    # Device ids in the host's own CDI specs. Each of them brings all libraries; the first one is
    # used.
    host_cdi: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()  # sorted; empty with `host_cdi`


CDI, MOUNTED, NONE = "cdi", "mounted", "none"


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links of a vendor that join GPUs with each other, and the place of a GPU among them."""

    # The same text for all GPUs that are joined: xgmi-0x5d1ee1d6a7f4ae6c, or nvlink- with the
    # cluster and the clique. Empty if it is not known.
    domain: str = ""
    size: int | None = None  # the number of GPUs of the domain in this machine
    position: int | None = None  # of this GPU, from 1 on
    state: str | None = None  # of its registration with the fabric, in the vendor's words


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The state that an administrator has put the driver and the board into; None if unknown."""

    cuda: str | None = None  # the newest CUDA version that the driver serves: 13.0.0
    kernel_module: str | None = None  # open, proprietary, or proprietary-gsp
    gpu_direct: str | None = None  # how a network card reaches the memory: none, dmabuf, ...
    ecc: bool | None = None  # the memory has error correction, and it is on
    power_cap: int | None = None  # watts
    retired_pages: int | None = None  # pages of memory that are no longer used, or will not be


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The numbers of the engines that a MIG instance has next to its multiprocessors."""

    copy: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    optical_flow: int = 0


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a part of a GPU that can be allocated separately, as the kernel shows it.

    A fact that the kernel does not show is None, never a guess.
    """

    # gpu-0000-41-00-0. It comes from the PCI address, so it stays the same after a reboot, and when
    # another GPU is lost.
    name: str
    address: str  # 0000:41:00.0
    vendor: str  # nvidia, amd, intel
    vendor_id: int
    device_id: int
    driver: str  # the kernel driver it is bound to
    driver_version: str | None = None  # as the kernel prints it
    product: str | None = None
    uuid: str | None = None
    memory: int | None = None  # bytes
    numa_node: int | None = None
    pcie_root: str | None = None  # pci0000:40
    nodes: tuple[DeviceNode, ...] = ()  # sorted
    environment: tuple[tuple[str, str], ...] = ()  # variables for its user space, sorted
    notes: tuple[str, ...] = ()  # what could not be read, and why

    # gpu, DIVIDED (a GPU whose memory belongs to its parts), partition (made by the GPU's driver),
    # vf (a virtual function), VFIO (for virtual machines)
    kind: str = "gpu"
    parent: str | None = None  # of a part: the name of its GPU

    # How the GPU is partitioned, or what kind of part this is, in the vendor's words.
    profile: str | None = None

    # What it consumes of the counters of its GPU, sorted. The GPU itself consumes all of them.
    counters: tuple[tuple[str, int], ...] = ()

    family: str | None = None  # the name of the generation; "unknown" if no table has it
    architecture: str | None = None  # the compilers' name of it: sm_90, gfx942
    vbios: str | None = None
    integrated: bool | None = None  # its memory is a part of the machine's

    # Integrated, and the machine is built around it: an MI300A, a GB10.
    is_package: bool = False
    compute_units: int | None = None
    engines: Engines | None = None
    tiles: int | None = None
    link_width: int | None = None  # lanes that the link can have
    link_speed: int | None = None  # that a lane can have, in megatransfers a second

    # What the link has now. A GPU at rest lowers both to save power, so they do not make two
    # inventories different.
    link_width_now: int | None = field(default=None, compare=False)
    link_speed_now: int | None = field(default=None, compare=False)

    # The GPU sleeps, so its link was not read.
    is_asleep: bool = field(default=False, compare=False)

    # It showed the boot, and a screen is connected: a person may be looking at it.
    console: bool = False

    # A claim of this GPU binds it to vfio-pci, and its end gives the GPU back to its driver. It has
    # no nodes while its driver has it.
    is_bound_on_demand: bool = False

    carve_out: int | None = None  # bytes of the machine's memory that firmware keeps for it
    iommu_group: int | None = None
    most_virtual: int | None = None  # the most virtual functions that it can be divided into
    setup: Setup | None = None
    fabric: Fabric | None = None

    # Its own NUMA node, then the nearest other ones on the same socket.
    numa_nodes: tuple[int, ...] = ()

    # None if a container needs no libraries of the host.
    libraries: Libraries | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Skipped:
    """A display controller or accelerator that is not one of the GPUs, with the reason."""

    address: str
    reason: str

    # The reason is no fault: a server's own screen, a virtual one, or a rule of the configuration.
    expected: bool = False

    # The kernel lists the device, but files that tell what it is could not be read. It may be a
    # known GPU, and the error may pass.
    is_unread: bool = False


class NotUsable(Exception):
    """Raised for a function that is no usable GPU, or not now.

    The message is the reason, for people.
    """

    def __init__(self, reason: str, *, expected: bool = False, is_unread: bool = False) -> None:
        """Takes the reason; `expected` and `is_unread` as in Skipped."""
        super().__init__(reason)
        self.expected = expected
        self.is_unread = is_unread


UNKNOWN = "unknown"

# The kind of a GPU whose memory belongs to its parts. It stays in the Inventory, because claims
# that got all of it before it was divided keep it, and a monitor may look at it.
DIVIDED = "divided"

# The kind of a GPU that vfio-pci has, or will have once it is allocated.
VFIO = "vfio"

# The first words of a reason while the driver still sets the GPU up. The caller scans again soon.
NOT_READY = "not ready: "


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a GPU, made by the GPU's driver, that can be allocated separately."""

    suffix: str  # its name is that of the GPU, a hyphen, and this
    nodes: tuple[DeviceNode, ...]
    counters: tuple[tuple[str, int], ...]
    profile: str | None = None
    uuid: str | None = None
    memory: int | None = None
    compute_units: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    libraries: Libraries | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The facts of a Gpu that come from the vendor's kernel driver, not from PCI."""

    nodes: tuple[DeviceNode, ...]
    driver_version: str | None = None
    product: str | None = None
    uuid: str | None = None
    memory: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    profile: str | None = None
    counters: tuple[tuple[str, int], ...] = ()
    family: str | None = None
    architecture: str | None = None
    vbios: str | None = None
    integrated: bool | None = None
    compute_units: int | None = None
    tiles: int | None = None
    carve_out: int | None = None
    libraries: Libraries | None = None
    setup: Setup | None = None
    fabric: Fabric | None = None
    parts: tuple[Part, ...] = ()


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All GPUs of the node at one moment, sorted by name.

    Two inventories are equal if they show the same GPUs in the same state.
    """

    gpus: tuple[Gpu, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    _by_name: dict[str, Gpu] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update((gpu.name, gpu) for gpu in self.gpus)

    @staticmethod
    def from_unsorted(gpus: Iterable[Gpu], skipped: Iterable[Skipped] = ()) -> Inventory:
        """Returns an Inventory of GPUs that may come in any order."""
        by_name = sorted(gpus, key=lambda gpu: gpu.name)
        return Inventory(gpus=tuple(by_name), skipped=tuple(sorted(skipped)))

    def find_gpu(self, name: str) -> Gpu | None:
        """Returns the GPU or part with this name, or None if the inventory does not have it."""
        return self._by_name.get(name)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules for the GPUs that a scan takes.

    It takes GPUs that match a rule of `include`, or all GPUs if that is empty, and leaves out GPUs
    that match a rule of `exclude`.

    A rule is a PCI address (`0000:41:00.0`, with * and ? as in file names), a vendor (`nvidia`), a
    vendor and device id (`10de:2330`, * allowed), or `console` (the GPU whose screen shows the
    boot).
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    # Takes GPUs that vfio-pci has too, for virtual machines.
    vfio: bool = False

    # GPUs that match one of these are for virtual machines, whatever driver they have now.
    vfio_bind: tuple[str, ...] = ()
