"""A fake function on the PCI bus: its model, its place, and the files that every function has.

This module contains facts about real trees: names, units, line ends, permissions, missing files.
The modules of the vendors add the files of their drivers. This module writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

DRM_MAJOR, VFIO_MAJOR = 226, 240
VFIO = "vfio-pci"

# Drivers that make no DRM nodes, and drivers that make a card without a render node.
_WITHOUT_DRM = ("", "virtio-pci")
_WITHOUT_RENDER = ("ast", "mgag200", "bochs-drm")

# Drivers that set no modes of screens by DRM. Their cards have no link named controlD.
_WITHOUT_MODES = ("nvidia",)
_WITH_FRAME_BUFFER = ("amdgpu", "i915", "xe", "nouveau")

_WRITABLE = frozenset(
    [
        "driver_override",
        "config",
        "enable",
        "msi_bus",
        "numa_node",
        "reset_method",
        "sriov_numvfs",
        "uevent",
    ]
)
_UNCORRECTABLE = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol "
    "UncorrIntErr BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked DMWrReqBlocked "
    "IDECheck MisIDETLP PCRC_CHECK TLPXlatBlocked"
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
    number: int = 0  # the device number of that port on its bus


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The facts that all GPUs of a model share."""

    name: str  # nvidia:h100
    title: str  # for people
    ids: str  # 10de:2330
    board: str = ""  # ids of the board; empty: the ids of the chip
    class_code: str = "030000"
    revision: str = "00"
    driver: str
    product: str = ""  # the driver's name of it; empty if the driver shows none
    memory: int = 0  # bytes; 0 if the driver does not show it
    vbios: str = ""
    sound: str = ""  # device id of the function for the sound of its screen
    speed: str = "16.0"  # of the board's link, in GT/s
    width: str = "16"
    port: str = "8086:352a"  # ids of the root port before it
    switch: Switch | None = None
    inner: tuple[str, str] | None = None  # speed and width behind the switch, if different
    coherent: bool = False  # in the processor's package, so its root port has no link
    on_arm: bool = False  # with an ARM processor, on which each root has its own PCI domain
    on_board: bool = False  # on the first root complex, without a port before it
    virtual: int = 0  # the most virtual functions
    is_gpu: bool = True  # False: a screen, which a scan skips

    @property
    def has_screen(self) -> bool:
        """True for a VGA controller, which may show the boot."""
        return self.class_code.startswith("0300")

    @property
    def own_link(self) -> tuple[str, str]:
        """The speed and width of the GPU's own link."""
        return self.inner or (self.speed, self.width)


@dataclass(slots=True)
class Numbers:
    """The numbers that DRM and the driver give to a function."""

    card: int = 0
    render: int = 0
    more_drm: list[tuple[int, int]] = field(default_factory=list)  # further cards and render nodes
    index: int = 0  # the driver's own number of the function
    first_part: int = 0  # the driver's number of its first partition
    firmware: str = ""  # the version that the driver loaded into it
    vfio: int = 0  # the minor number of its group's node, which is not the number of the group
    peers: tuple[str, ...] = ()  # the folders of the GPUs that the vendor's links join with it


@dataclass(slots=True, kw_only=True)
class Function:
    """A GPU or virtual function. `layout` fills in its place and its numbers."""

    model: Model
    driver: str  # empty: no driver
    console: bool = False
    screen: bool = False  # True if a screen is connected
    domain: int
    options: Mapping[str, str] = field(default_factory=dict)  # of its vendor
    virtual: int = 0  # the number of its virtual functions
    physical: Function | None = None  # of a virtual function
    index: int = 0  # of a virtual function among its siblings
    address: str = ""
    bridges: tuple[str, ...] = ("pci0000:00",)  # the root complex, and the ports below it
    numa: int = -1  # -1: unknown to the firmware
    numbers: Numbers = field(default_factory=Numbers)
    group: int = -1  # the IOMMU group; -1: none

    @property
    def drm(self) -> dict[str, int]:
        """The minor numbers of its DRM nodes, by name."""
        return drm_names(self.driver, self.numbers.card, self.numbers.render)

    @property
    def folder(self) -> str:
        """The path of its folder, relative to the root of the tree."""
        return "/".join(("sys/devices", *self.bridges, self.address))

    @property
    def sound(self) -> str:
        """The path of the function for the sound of its screen, or an empty string."""
        if not self.model.sound or self.physical is not None:
            return ""
        return f"{self.folder[:-1]}1"


@dataclass(slots=True, kw_only=True)
class Entries:
    """The files, links and nodes to write. Paths are relative to the root of the tree."""

    files: dict[str, str | bytes] = field(default_factory=dict)  # text without the last newline
    links: dict[str, str] = field(default_factory=dict)  # with their targets
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)  # major and minor number
    folders: list[str] = field(default_factory=list)  # to remove with the GPU
    majors: dict[str, int] = field(default_factory=dict)  # in /proc/devices, by name
    closed: list[str] = field(default_factory=list)  # unreadable files

    def add(self, other: Entries) -> None:
        """Adds all other entries. They may replace the values of files."""
        self.files |= other.files
        self.links |= other.links
        self.nodes |= other.nodes
        self.folders += other.folders
        self.majors |= other.majors
        self.closed += other.closed


class FakeVendor:
    """The files that a vendor's driver adds for its GPUs.

    A vendor's module has a subclass of this, which overrides what it needs. The same arguments give
    the same results.
    """

    models: Sequence[Model] = ()
    machines: Mapping[str, Sequence[str]] = MappingProxyType({})  # words by the name of a machine
    options: Mapping[str, str] = MappingProxyType({})  # meanings by `name=example`

    def check_options(self, model: Model, options: Mapping[str, str]) -> None:
        """Raises ValueError for options that the model cannot have. `refuse` makes the message."""

    def count_more_drm(self, function: Function) -> int:
        """Returns the number of further DRM cards that the driver makes for the function."""
        return 0

    def assign_numbers(self, functions: Sequence[Function], processors: int) -> None:
        """Sets the driver's numbers of all functions of the vendor, which are in the order of the
        bus.
        """

    def machine_entries(self, functions: Sequence[Function], processors: int) -> Entries:
        """Returns the files that the driver makes once for the whole machine."""
        return Entries()

    def function_entries(self, function: Function) -> Entries:
        """Returns the files that the driver makes for one function."""
        return Entries()


def refuse(name: str, value: object, expected: str) -> NoReturn:
    """Raises ValueError for a value that the description cannot have."""
    raise ValueError(f"{name}: {value!r} is not {expected}")


def number(name: str, value: object, base: int = 10) -> int:
    """Parses a number of zero or more. Raises ValueError for anything else."""
    try:
        found = int(str(value), base)
    except ValueError:
        found = -1
    return found if found >= 0 else refuse(name, value, "a number")


def mode_of_node(path: str) -> int:
    """Returns the permissions of a device node: only root opens the groups of vfio-pci."""
    return 0o600 if re.fullmatch(r"dev/vfio/[0-9]+", path) else 0o666


def mode_of(path: str) -> int:
    """Returns the permissions of a file, by its name."""
    return 0o644 if path.rpartition("/")[2] in _WRITABLE else 0o444


def drm_names(driver: str, card: int, render: int) -> dict[str, int]:
    """Returns the DRM nodes that a driver makes for a GPU, with these numbers."""
    if not has_drm(driver):
        return {}
    if not has_render(driver):
        return {f"card{card}": card}
    return {f"card{card}": card, f"renderD{render}": render}


def has_drm(driver: str) -> bool:
    """Returns True if the driver makes DRM nodes."""
    return driver not in _WITHOUT_DRM and not is_for_virtual_machines(driver)


def is_for_virtual_machines(driver: str) -> bool:
    """Returns True for vfio-pci and its variants."""
    return driver.replace("_", "-").endswith(VFIO)


def has_frame_buffer(driver: str) -> bool:
    """Returns True if the driver makes a frame buffer for the kernel's console on a screen."""
    return driver in _WITH_FRAME_BUFFER


def has_render(driver: str) -> bool:
    """Returns True if the driver makes a render node."""
    return driver not in _WITHOUT_RENDER and has_drm(driver)


# ---------------------------------------------------------------- files of every function


def function_entries(function: Function) -> Entries:
    """Returns the entries of PCI, DRM, IOMMU and VFIO for a function; not its link on the bus."""
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
    if function.drm and function.model.has_screen and function.driver not in _WITHOUT_MODES:
        # Older kernels had a node of this name. For old programs it now leads to the card.
        card = function.numbers.card
        entries.links[f"{folder}/drm/controlD{card + 64}"] = f"{folder}/drm/card{card}"
    if function.screen and function.drm:
        card = function.numbers.card
        connector = f"{folder}/drm/card{card}/card{card}-DP-1"
        entries.files[f"{connector}/status"] = "connected"
        if has_frame_buffer(function.driver):
            entries.files[f"{folder}/graphics/fb0/name"] = f"{function.driver}drmfb"
    _add_iommu(entries, function)
    return entries


def ports(function: Function) -> dict[str, dict[str, str | bytes]]:
    """Returns the files of the ports before a function, by folder. Functions may share a port."""
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
    """Adds the DRM nodes of a device and their links."""
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

    if is_for_virtual_machines(function.driver):
        device = f"sys/devices/virtual/vfio/{group}"
        entries.folders.append(device)
        minor = function.numbers.vfio
        entries.files[f"{device}/dev"] = f"{VFIO_MAJOR}:{minor}"
        entries.links[f"sys/class/vfio/{group}"] = device
        entries.nodes[f"dev/vfio/{group}"] = (VFIO_MAJOR, minor)


def _port_files(folder: str, vendor: str, device: str, class_code: str) -> dict[str, str | bytes]:
    return {
        f"{folder}/vendor": f"0x{vendor}",
        f"{folder}/device": f"0x{device}",
        f"{folder}/class": f"0x{class_code}",
    }


def _port_link(model: Model, depth: int) -> dict[str, str]:
    """Returns the link files of the port at a depth: 1 is the root port, 2 and 3 are a switch.

    Each port shows the link below it. Only the upper port of a switch shows the link above it.
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
    """Returns the four files of a link, for its current and its highest speed and width."""
    files = {}
    for which, (speed, width) in (("current", now), ("max", most)):
        files[f"{which}_link_speed"] = speed if speed == "Unknown" else f"{speed} GT/s PCIe"
        files[f"{which}_link_width"] = width
    return files


def _values(function: Function) -> dict[str, str | bytes]:
    """Returns the files that PCI makes in the folder of a function."""
    model = function.model
    values = _ids(function)
    if function.physical is not None:
        return values | link(now=("Unknown", "0"), most=model.own_link)

    values |= _power(function)
    values["config"] = _config(model)
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


def _power(function: Function) -> dict[str, str | bytes]:
    """Returns the files about the power of a function.

    vfio-pci lets a function sleep while no virtual machine has it open. A function that no driver
    has enabled is awake, and the kernel does not know its state.
    """
    if is_for_virtual_machines(function.driver):
        return {"power_state": "D3hot", "power/runtime_status": "suspended"}
    state = "D0" if _is_enabled(function) else "unknown"
    return {"power_state": state, "power/runtime_status": "active"}


def _is_enabled(function: Function) -> bool:
    """Returns True if the driver has enabled the function. vfio-pci does so when it is opened."""
    return bool(function.driver) and not is_for_virtual_machines(function.driver)


def _ids(function: Function) -> dict[str, str | bytes]:
    """Returns the files with the ids of the chip and the board."""
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
        "enable": "1" if _is_enabled(function) else "0",
        "modalias": modalias,
        "uevent": "\n".join(uevent),
    }


def _config(model: Model) -> bytes:
    """Returns the head of the configuration space: ids, command, status, revision, class."""
    vendor, device = (int(id_, 16).to_bytes(2, "little") for id_ in model.ids.split(":"))
    class_code = bytes.fromhex(model.class_code)[::-1]
    head = vendor + device + b"\x07\x04\x10\x00" + bytes.fromhex(model.revision) + class_code
    return head + bytes(64 - len(head))
