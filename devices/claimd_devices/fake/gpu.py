"""One fake function on the PCI bus: its model, its place, and what every such function has in the
trees.

Facts about real trees only: names, units, line ends, permissions, what is missing. What one
vendor's driver adds is that vendor's; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

DRM_MAJOR, VFIO_MAJOR = 226, 240
VFIO = "vfio-pci"

# Drivers that make no DRM nodes, and those that make a card without a render node.
_WITHOUT_DRM = ("", VFIO, "virtio-pci")
_WITHOUT_RENDER = ("ast", "mgag200", "bochs-drm")

_WITH_FRAME_BUFFER = ("amdgpu", "i915", "xe", "nouveau")

_WRITABLE = frozenset(
    ["driver_override", "config", "enable", "msi_bus", "numa_node", "reset_method", "sriov_numvfs"]
)
_UNCORRECTABLE = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol "
    "UncorrIntErr BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked"
)
_AER = {
    "correctable": (
        "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF TOTAL_ERR_COR"
    ),
    "nonfatal": f"{_UNCORRECTABLE} TOTAL_ERR_NONFATAL",
    "fatal": f"{_UNCORRECTABLE} TOTAL_ERR_FATAL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A PCIe switch on the board or in the package, between the slot and the GPU."""

    upstream: str  # ids of the port towards the slot
    downstream: str  # ids of the port towards the GPU
    number: int = 0  # of the latter on its bus


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What PCI says of all GPUs of a kind."""

    name: str  # nvidia:h100
    title: str  # what people call it
    ids: str  # 10de:2330
    board: str = ""  # ids of the board; empty: those of the chip
    class_code: str = "030000"
    revision: str = "00"
    driver: str
    product: str = ""  # what its driver calls it; empty where the driver tells no name
    memory: int = 0  # bytes; 0 where the driver does not tell
    vbios: str = ""
    sound: str = ""  # device id of the function beside it that makes the sound of its screen
    speed: str = "16.0"  # GT/s of the link that the board has
    width: str = "16"
    port: str = "8086:352a"  # ids of the root port before it
    switch: Switch | None = None
    inner: tuple[str, str] | None = None  # speed and width behind the switch, if these are others
    coherent: bool = False  # a part of the processor's package: its root port has no link
    on_arm: bool = False  # at a processor of ARM's, of which each root has a domain of its own
    on_board: bool = False  # on the first root complex, with no port before it
    virtual: int = 0  # functions that it can have
    is_gpu: bool = True  # else a screen, which a scan leaves alone

    @property
    def has_screen(self) -> bool:
        """Whether it is a VGA controller, which may be the one that shows the boot."""
        return self.class_code.startswith("0300")

    @property
    def own_link(self) -> tuple[str, str]:
        """Speed and width of the link that the GPU itself has."""
        return self.inner or (self.speed, self.width)


@dataclass(slots=True, kw_only=True)
class Function:
    """One GPU or virtual function, with its place and its numbers once these are known."""

    model: Model
    driver: str  # empty: bound to none
    console: bool = False
    screen: bool = False  # one is connected
    domain: int
    options: Mapping[str, str] = field(default_factory=dict)  # those of its vendor
    virtual: int = 0  # functions made of it
    physical: Function | None = None  # that this virtual one is made of
    index: int = 0  # among those
    address: str = ""
    bridges: tuple[str, ...] = ("pci0000:00",)  # the root complex, and the ports below it
    numa: int = -1  # -1: the firmware does not tell
    card: int = 0  # DRM's numbers for it
    render: int = 0
    more_drm: list[tuple[int, int]] = field(default_factory=list)  # further cards and render nodes
    number: int = 0  # its vendor's driver's own count
    first_part: int = 0  # that count for its partitions
    group: int = -1  # of the IOMMU; -1: there is none

    @property
    def drm(self) -> dict[str, int]:
        """Minor numbers by the names of its nodes."""
        return drm_names(self.driver, self.card, self.render)

    @property
    def folder(self) -> str:
        """Its own folder, from the tree's root."""
        return "/".join(("sys/devices", *self.bridges, self.address))

    @property
    def sound(self) -> str:
        """The folder of the function beside it that makes the sound of its screen, if any."""
        if not self.model.sound or self.physical is not None:
            return ""
        return f"{self.folder[:-1]}1"


@dataclass(slots=True, kw_only=True)
class Entries:
    """What is written into a tree. Paths are from its root."""

    files: dict[str, str | bytes] = field(default_factory=dict)  # text without its newline
    links: dict[str, str] = field(default_factory=dict)  # to which path
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)  # major and minor number
    folders: list[str] = field(default_factory=list)  # that go away with their GPU
    majors: dict[str, int] = field(default_factory=dict)  # in /proc/devices, by who has them
    closed: list[str] = field(default_factory=list)  # files that nobody may read

    def add(self, other: Entries) -> None:
        """All of the other as well, which may put another value in a file's place."""
        self.files |= other.files
        self.links |= other.links
        self.nodes |= other.nodes
        self.folders += other.folders
        self.majors |= other.majors
        self.closed += other.closed


class FakeVendor:
    """What the trees have of one vendor's GPUs, beyond what all have.

    A vendor's module has a subclass of this, which overrides what it needs. Whatever is asked twice
    is answered the same.
    """

    models: Sequence[Model] = ()
    machines: Mapping[str, Sequence[str]] = MappingProxyType({})  # the words that a name stands for
    options: Mapping[str, str] = MappingProxyType({})  # `name=example` with what it means

    def check_options(self, model: Model, options: Mapping[str, str]) -> None:
        """ValueError, best by `refuse`, for options that the model cannot have."""

    def count_more_drm(self, function: Function) -> int:
        """How many cards DRM counts for the function after its own."""
        return 0

    def assign_numbers(self, functions: Sequence[Function], processors: int) -> None:
        """Gives the machine's functions, in the order of the bus, the numbers of their driver."""

    def machine_entries(self, functions: Sequence[Function], processors: int) -> Entries:
        """What the driver makes once, for all the machine's functions."""
        return Entries()

    def function_entries(self, function: Function) -> Entries:
        """What the driver makes for one function."""
        return Entries()


def refuse(name: str, value: object, expected: str) -> NoReturn:
    """ValueError for a word that cannot be written."""
    raise ValueError(f"{name}: {value!r} is not {expected}")


def number(name: str, value: object, base: int = 10) -> int:
    """A number of zero or more; ValueError if it is none."""
    try:
        found = int(str(value), base)
    except ValueError:
        found = -1
    return found if found >= 0 else refuse(name, value, "a number")


def mode_of(path: str) -> int:
    """Permissions of a file, by its name."""
    return 0o644 if path.rpartition("/")[2] in _WRITABLE else 0o444


def drm_names(driver: str, card: int, render: int) -> dict[str, int]:
    """The DRM nodes that a driver makes of a GPU, of the numbers that are its turn."""
    if driver in _WITHOUT_DRM:
        return {}
    if not has_render(driver):
        return {f"card{card}": card}
    return {f"card{card}": card, f"renderD{render}": render}


def has_drm(driver: str) -> bool:
    """Whether the driver takes a number of DRM's."""
    return driver not in _WITHOUT_DRM


def has_frame_buffer(driver: str) -> bool:
    """Whether it makes the frame buffer of the kernel's console, once it has seen a screen."""
    return driver in _WITH_FRAME_BUFFER


def has_render(driver: str) -> bool:
    """Whether it takes one for a render node as well."""
    return driver not in _WITHOUT_RENDER and has_drm(driver)


# ---------------------------------------------------------------- what every function has


def function_entries(function: Function) -> Entries:
    """What PCI, DRM, the IOMMU and VFIO show of a function; the link on the bus aside."""
    folder = function.folder
    entries = Entries(folders=[folder])
    for name, value in _values(function).items():
        entries.files[f"{folder}/{name}"] = value

    if function.driver:
        entries.links[f"{folder}/driver"] = f"sys/bus/pci/drivers/{function.driver}"
        entries.links[f"sys/bus/pci/drivers/{function.driver}/{function.address}"] = folder
    if function.physical is not None:
        entries.links[f"{folder}/physfn"] = function.physical.folder
        entries.links[f"{function.physical.folder}/virtfn{function.index}"] = folder
    if function.sound:
        vendor = function.model.ids[:4]
        entries.folders.append(function.sound)
        entries.files |= _port_files(function.sound, vendor, function.model.sound, "040300")

    add_drm(entries, folder, function.drm)
    if function.screen and function.drm:
        connector = f"{folder}/drm/card{function.card}/card{function.card}-DP-1"
        entries.files[f"{connector}/status"] = "connected"
        if has_frame_buffer(function.driver):
            entries.files[f"{folder}/graphics/fb0/name"] = f"{function.driver}drmfb"
    _add_iommu(entries, function)
    return entries


def ports(function: Function) -> dict[str, dict[str, str | bytes]]:
    """The ports before a function, by folder, with their files. Others may be behind them too."""
    if function.physical is not None:
        return {}
    model = function.model
    ids = [model.port]
    if model.switch is not None:
        ids += [model.switch.upstream, model.switch.downstream]

    found = {}
    for depth, port_ids in enumerate(ids, 1):
        if depth < len(function.bridges):
            folder = "/".join(("sys/devices", *function.bridges[: depth + 1]))
            files = _port_files(folder, port_ids[:4], port_ids[5:], "060400")
            for name, value in _port_link(model, depth).items():
                files[f"{folder}/{name}"] = value
            found[folder] = files
    return found


def add_drm(entries: Entries, device: str, names: Mapping[str, int]) -> None:
    """The DRM nodes of a device, with their links."""
    for name, minor in names.items():
        entries.files[f"{device}/drm/{name}/dev"] = f"{DRM_MAJOR}:{minor}"
        entries.links[f"sys/class/drm/{name}"] = f"{device}/drm/{name}"
        entries.links[f"{device}/drm/{name}/device"] = device
        entries.nodes[f"dev/dri/{name}"] = (DRM_MAJOR, minor)


def _add_iommu(entries: Entries, function: Function) -> None:
    group = function.group
    if group < 0:
        return
    folder = f"sys/kernel/iommu_groups/{group}"
    entries.folders.append(folder)
    entries.links[f"{function.folder}/iommu_group"] = folder
    entries.links[f"{folder}/devices/{function.address}"] = function.folder

    if function.driver == VFIO:
        device = f"sys/devices/virtual/vfio/{group}"
        entries.folders.append(device)
        entries.files[f"{device}/dev"] = f"{VFIO_MAJOR}:{group}"
        entries.links[f"sys/class/vfio/{group}"] = device
        entries.nodes[f"dev/vfio/{group}"] = (VFIO_MAJOR, group)


def _port_files(folder: str, vendor: str, device: str, class_code: str) -> dict[str, str | bytes]:
    return {
        f"{folder}/vendor": f"0x{vendor}",
        f"{folder}/device": f"0x{device}",
        f"{folder}/class": f"0x{class_code}",
    }


def _port_link(model: Model, depth: int) -> dict[str, str]:
    """What the port at this depth says of the link below it; the one at a switch's upper end, of
    the link above it.
    """
    slot = model.speed, model.width
    if depth == 1 and model.coherent:
        return link(now=("Unknown", "0"), most=("32.0", "16"))
    if depth == 1:
        return link(now=slot, most=(model.speed, "16"))
    if depth == 2:
        return link(now=slot, most=slot)
    return link(now=model.own_link, most=model.own_link)


def link(now: tuple[str, str], most: tuple[str, str]) -> dict[str, str]:
    """The four files of a link, of its speed and width now and at most."""
    files = {}
    for which, (speed, width) in (("current", now), ("max", most)):
        files[f"{which}_link_speed"] = speed if speed == "Unknown" else f"{speed} GT/s PCIe"
        files[f"{which}_link_width"] = width
    return files


def _values(function: Function) -> dict[str, str | bytes]:
    """Files of the function's folder that PCI makes."""
    model = function.model
    values = _ids(function)
    if function.physical is not None:
        return values | link(now=("Unknown", "0"), most=model.own_link)

    values |= {"power_state": "D0", "power/runtime_status": "active", "config": _config(model)}
    if len(function.bridges) > 1:
        now = (model.speed, "1") if model.coherent else model.own_link
        values |= link(now=now, most=model.own_link)
        for name, counters in _AER.items():
            values[f"aer_dev_{name}"] = "\n".join(f"{counter} 0" for counter in counters.split())
    if model.has_screen:
        values["boot_vga"] = "1" if function.console else "0"
    if model.virtual:
        values |= {
            "sriov_totalvfs": str(model.virtual),
            "sriov_numvfs": str(function.virtual),
            "sriov_offset": "1",
            "sriov_stride": "1",
            "sriov_drivers_autoprobe": "1",
            "sriov_vf_device": model.ids[5:],
        }
    return values


def _ids(function: Function) -> dict[str, str | bytes]:
    """What the chip and the board say that they are."""
    model = function.model
    board = model.board or model.ids
    vendor, device, board_vendor, board_device = (
        id_.upper() for id_ in (*model.ids.split(":"), *board.split(":"))
    )
    kind = model.class_code
    modalias = (
        f"pci:v0000{vendor}d0000{device}sv0000{board_vendor}sd0000{board_device}"
        f"bc{kind[:2]}sc{kind[2:4]}i{kind[4:]}"
    )
    uevent = [
        f"PCI_CLASS={kind.lstrip('0').upper()}",
        f"PCI_ID={vendor}:{device}",
        f"PCI_SUBSYS_ID={board_vendor}:{board_device}",
        f"PCI_SLOT_NAME={function.address}",
        f"MODALIAS={modalias}",
    ]
    if function.driver:
        uevent.insert(0, f"DRIVER={function.driver}")
    return {
        "vendor": f"0x{model.ids[:4]}",
        "device": f"0x{model.ids[5:]}",
        "subsystem_vendor": f"0x{board[:4]}",
        "subsystem_device": f"0x{board[5:]}",
        "class": f"0x{kind}",
        "revision": f"0x{model.revision}",
        "numa_node": str(function.numa),
        "driver_override": "(null)",
        "enable": "1",
        "modalias": modalias,
        "uevent": "\n".join(uevent),
    }


def _config(model: Model) -> bytes:
    """The head of PCI's configuration space: ids, command, status, revision, class."""
    vendor, device = (int(id_, 16).to_bytes(2, "little") for id_ in model.ids.split(":"))
    class_code = bytes.fromhex(model.class_code)[::-1]
    head = vendor + device + b"\x07\x04\x10\x00" + bytes.fromhex(model.revision) + class_code
    return head + bytes(64 - len(head))
