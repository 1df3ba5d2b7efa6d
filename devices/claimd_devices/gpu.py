"""What the rest of the program knows of hardware: Gpu, DeviceNode, Inventory.

Frozen, sorted, comparable, plain data: no I/O here, and no Kubernetes word. An Inventory crosses to
the other side; nothing that reads the trees does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from . import values


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the kernel's trees are for us.

    A container may see the host's /dev as /host/dev: names that are handed to others are the host's
    all the same.
    """

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    host: str = ""  # the host's root, for what is no tree of the kernel's; empty: our own root
    nvidia_driver: str = ""  # where NVIDIA's user space lies on the host; empty: looked for

    @staticmethod
    def in_folder(folder: Path) -> Roots:
        """The roots of a tree that was written or captured under one folder."""
        return Roots(sys=folder / "sys", proc=folder / "proc", dev=folder / "dev", host=str(folder))


def name_of(address: str) -> str:
    """The name of the GPU at a PCI address."""
    return f"gpu-{address.replace(':', '-').replace('.', '-')}"


def address_of(name: str) -> str:
    """The PCI address of the GPU with this name; of a part's name, its GPU's."""
    domain, bus, device, function = name.split("-")[1:5]
    return f"{domain}:{bus}:{device}.{function}"


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceNode:
    """A character device that a user of the GPU opens.

    The path is the host's; the numbers come from the kernel, not from /dev, and are valid for this
    boot only.
    """

    path: str
    major: int
    minor: int


# What a container may want of a vendor's user space; the first two always. In NVIDIA's words.
COMPUTE, UTILITY = "compute", "utility"
GRAPHICS, VIDEO, DISPLAY, NGX = "graphics", "video", "display", "ngx"
CAPABILITIES = (COMPUTE, UTILITY, GRAPHICS, VIDEO, DISPLAY, NGX)


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mount:
    """A file of the host that a user of the GPU needs, and where a container sees it.

    `source` is its path for who mounts it, on the host and free of links; no path of ours.
    """

    source: str
    target: str
    capability: str = COMPUTE  # what it is for: one of CAPABILITIES


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """How a container gets the libraries of the vendor that belong to the host's driver."""

    how: str  # CDI, MOUNTED or NONE
    reason: str  # for people: what was found, or what was looked for
    # Ids in CDI specs of the host's, each of which brings them all. The first is the one to give.
    host_cdi: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()  # sorted; empty with `host_cdi`


CDI, MOUNTED, NONE = "cdi", "mounted", "none"


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a part of one that can be given away by itself, as the kernel shows it.

    What the kernel does not tell is None, never a guess.
    """

    # gpu-0000-41-00-0: from the PCI address, so it survives reboots and the loss of a neighbour.
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
    environment: tuple[tuple[str, str], ...] = ()  # what its user space wants to find, sorted
    notes: tuple[str, ...] = ()  # what could not be read, and why

    # gpu, DIVIDED (what is left of one whose parts are given away), partition (made by its driver),
    # vf (a virtual function), VFIO (for virtual machines)
    kind: str = "gpu"
    parent: str | None = None  # the name of the GPU that it is a part of
    profile: str | None = None  # how it is partitioned, or what part it is, in the vendor's words

    # What it takes of its GPU's counters, sorted; the GPU itself takes all there is.
    counters: tuple[tuple[str, int], ...] = ()

    family: str | None = None  # the generation, as people call it; "unknown" where the table ends
    architecture: str | None = None  # what compilers call it: sm_90, gfx942
    vbios: str | None = None
    integrated: bool | None = None  # its memory is a part of the machine's
    is_package: bool = False  # as well, but the machine is built around it: an MI300A, a GB10
    compute_units: int | None = None
    tiles: int | None = None
    link_width: int | None = None  # lanes that the link can have
    link_speed: int | None = None  # a lane's, in megatransfers a second, that the link can have

    # What the link has now. It saves power when the GPU rests: that is no difference between two
    # inventories.
    link_width_now: int | None = field(default=None, compare=False)
    link_speed_now: int | None = field(default=None, compare=False)
    is_asleep: bool = field(default=False, compare=False)  # so its link was not looked at

    console: bool = False  # it showed the boot, and a screen is on it: somebody looks at it
    # Whoever is given it has it bound to vfio-pci before, and given back to its driver after. Until
    # then it has no nodes.
    is_bound_on_demand: bool = False
    carve_out: int | None = None  # bytes of the machine's memory that firmware keeps for it
    iommu_group: int | None = None
    numa_nodes: tuple[int, ...] = ()  # its own and those as near to it as any other on its socket
    libraries: Libraries | None = None  # None where a container needs none of the host's


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Skipped:
    """A display controller or accelerator that is no Gpu of ours, and why."""

    address: str
    reason: str

    # Nothing is wrong: a server's own screen, a virtual one, or a rule of the configuration.
    expected: bool = False

    # The kernel lists the device, and its ids could not be read: it may be a GPU of ours.
    is_unread: bool = False


class NotUsable(Exception):
    """This function is no Gpu, or not now. The message is the reason that people read."""

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        """`expected`: nothing is wrong with it, as in Skipped."""
        super().__init__(reason)
        self.expected = expected


UNKNOWN = "unknown"

# A GPU whose memory belongs to its parts. It stays known: claims that were given all of it before it
# was divided keep it, and a monitor may look at it.
DIVIDED = "divided"
VFIO = "vfio"  # a GPU that vfio-pci holds, or will hold for whoever is given it
NOT_READY = "not ready: "  # how the reason begins when the driver is still at it: look again soon


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a GPU that its driver made and that can be given away by itself."""

    suffix: str  # of its name, behind the GPU's
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
    """What a vendor's kernel driver tells of one GPU: the part of a Gpu that is not PCI's."""

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
    parts: tuple[Part, ...] = ()


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All GPUs of the node at one moment, sorted by name. Two that are equal show the same."""

    gpus: tuple[Gpu, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    _by_name: dict[str, Gpu] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update((gpu.name, gpu) for gpu in self.gpus)

    @staticmethod
    def from_unsorted(gpus: Iterable[Gpu], skipped: Iterable[Skipped] = ()) -> Inventory:
        """An Inventory of GPUs in any order."""
        by_name = sorted(gpus, key=lambda gpu: gpu.name)
        return Inventory(gpus=tuple(by_name), skipped=tuple(sorted(skipped)))

    def find_gpu(self, name: str) -> Gpu | None:
        """The GPU or part of this name."""
        return self._by_name.get(name)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which GPUs to take: what matches `include`, or all if it is empty, but not what is in `exclude`.

    A rule is a PCI address (`0000:41:00.0`, with * and ? as in file names), a vendor (`nvidia`), a
    vendor and device id (`10de:2330`, * allowed), or `console` (the GPU whose screen shows the
    boot).
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    vfio: bool = False  # take GPUs that vfio-pci holds as well, for virtual machines
    vfio_bind: tuple[str, ...] = ()  # these are for virtual machines, whatever driver they have now
