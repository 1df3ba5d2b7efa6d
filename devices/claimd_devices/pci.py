"""The PCI bus: its display controllers and accelerators, with the facts that PCI itself shows.

Facts that a vendor's driver adds do not belong in this module.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import field, replace

from . import failures, sysfs, values
from .gpu import Roots, Skipped

# A domain may have more than four digits.
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9]{1,3})(?:\.([0-9]))? GT/s(?: PCIe)?")

DISPLAY, ACCELERATOR = 0x03, 0x12  # base classes
_VGA = 0x0300
_MOST_LANES = 32  # a width of 255 means that there is no link

# Switch ports inside the packages of Instinct GPUs. They have the vendor id of AMD's processors.
_IN_PACKAGE = ((0x1022, 0x14C7), (0x1022, 0x1500))


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A PCIe link. Widths are in lanes, speeds in megatransfers a second of one lane."""

    width: int | None = None  # that the link can have
    speed: int | None = None
    width_now: int | None = None
    speed_now: int | None = None

    # The device sleeps. Its link was not read, which would have woken it.
    is_asleep: bool = False


_NO_LINK = Link()


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A display controller or accelerator. A virtual function of SR-IOV is one as well."""

    address: str
    folder: str  # the path of its files, as we see it
    class_code: int
    vendor_id: int
    device_id: int
    driver: str | None  # None: bound to no driver; "" if that cannot be read
    numa_node: int | None
    pcie_root: str | None
    boot_vga: bool
    notes: tuple[str, ...]

    # Of a virtual function: the address of its physical function, or "" if that cannot be read.
    physical: str | None = None

    iommu_group: int | None = None
    most_virtual: int | None = None  # the most virtual functions that it can have
    link: Link = _NO_LINK
    cache: sysfs.ScanCache = field(default_factory=sysfs.ScanCache, compare=False, repr=False)

    @property
    def base_class(self) -> int:
        """The base class: DISPLAY or ACCELERATOR."""
        return self.class_code >> 16

    @property
    def ids(self) -> str:
        """The vendor and device id, as people write them: 10de:2330."""
        return f"{self.vendor_id:04x}:{self.device_id:04x}"


def functions(
    roots: Roots, *, with_link_now: bool = False, kept: sysfs.Kept | None = None
) -> tuple[list[Function], list[Skipped]]:
    """Returns the display controllers and accelerators by address, and the unreadable devices.

    A device is unreadable if its class or its ids cannot be read. The current width and speed of
    the links change with the load; they are read only with `with_link_now`. If there is no PCI bus,
    the result is one Skipped with the address *. Raises LookFailedError if the folder of the bus is
    there and cannot be listed: then it is not known which devices exist.
    """
    folder = os.path.join(roots.sys, "bus/pci/devices")
    notes: list[str] = []
    addresses = sysfs.names(folder, notes)
    if addresses is None:
        # A note means any error but ENOENT. A machine without a PCI bus has no such folder.
        if notes:
            raise failures.LookFailedError(notes[0])
        return [], [Skipped(address="*", reason=f"{folder}: missing: no PCI device can be seen")]

    cache = sysfs.ScanCache(kept)
    found: list[Function] = []
    skipped: list[Skipped] = []
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            continue

        # Of most devices only this one file is read, because their class is another one.
        notes = []
        path = f"{folder}/{address}"
        class_code = sysfs.hexadecimal(f"{path}/class", notes)
        if class_code is not None and class_code >> 16 not in (DISPLAY, ACCELERATOR):
            continue

        vendor_id = sysfs.hexadecimal(f"{path}/vendor", notes)
        device_id = sysfs.hexadecimal(f"{path}/device", notes)

        # Here None means that a file is not there, as while the device is being removed, or that it
        # is not readable. Both may pass, so the watch believes them only after several scans.
        if class_code is None or vendor_id is None or device_id is None:
            reason = "; ".join(notes) or "class, vendor or device missing"
            reason = f"cannot tell what it is: {reason}"
            skipped.append(Skipped(address=address, reason=reason, is_unread=True))
            continue
        ids = class_code, vendor_id, device_id
        found.append(_function(path, ids, cache, notes, with_link_now=with_link_now))
    return found, skipped


def _function(
    path: str,
    ids: tuple[int, int, int],
    cache: sysfs.ScanCache,
    notes: list[str],
    *,
    with_link_now: bool,
) -> Function:
    address = posixpath.basename(path)
    class_code, vendor_id, device_id = ids

    # A function is virtual also if its link to the physical function exists and cannot be read.
    # Only a missing link, which gives no note, means that the function is not virtual.
    noted = len(notes)
    physical = sysfs.link(f"{path}/physfn", notes)
    is_virtual = physical is not None or len(notes) > noted
    group = sysfs.link(f"{path}/iommu_group", notes)

    # A virtual function has no link of its own: the files of its link contain Unknown and 0. To
    # read the link of a sleeping device (max_link_width, current_link_*) would wake the device and
    # the ports before it. The kernel knows all other facts of a sleeping device.
    target = sysfs.link(path, notes)
    link = _NO_LINK
    if not is_virtual and _is_asleep(path):
        link = Link(is_asleep=True)
    elif not is_virtual:
        link = _link(*ends(path, target, vendor_id), notes, with_now=with_link_now)

    # If there is no note, the link is missing: no driver is bound.
    noted = len(notes)
    driver = sysfs.link(f"{path}/driver", notes)
    if driver is None and len(notes) > noted:
        driver = ""

    # How many virtual functions a device can have is a fact of its hardware and its driver.
    most_virtual = None
    if not is_virtual:
        most_virtual = cache.read_seldom(
            f"{address} virtual",
            (vendor_id, device_id, driver),
            lambda notes: _most_virtual(path, notes),
            notes,
        )

    # The kernel writes -1 if the firmware does not tell the node.
    numa_node = sysfs.decimal(f"{path}/numa_node", notes)
    if numa_node is not None and numa_node < 0:
        numa_node = None

    # Only VGA controllers have the file.
    boot_vga = class_code >> 8 == _VGA and sysfs.decimal(f"{path}/boot_vga", notes) == 1
    return Function(
        address=address,
        folder=path,
        class_code=class_code,
        vendor_id=vendor_id,
        device_id=device_id,
        driver=posixpath.basename(driver) if driver is not None else None,
        numa_node=numa_node,
        pcie_root=_pcie_root(address, target),
        boot_vga=boot_vga,
        physical=_address(physical) if is_virtual else None,
        iommu_group=_group(group),
        most_virtual=most_virtual,
        link=link,
        cache=cache,
        notes=tuple(notes),
    )


def _most_virtual(path: str, notes: list[str]) -> int | None:
    """Returns the most virtual functions that a device can have; None if it can have none.

    The kernel answers from its own memory, so the read wakes no device.
    """
    file = f"{path}/sriov_totalvfs"

    # Few devices have the file, and this question is cheaper than an open that fails.
    if not os.access(file, os.F_OK):
        return None
    return sysfs.decimal(file, notes) or None


def with_link_of_sleeper(function: Function) -> Function:
    """Returns a sleeping function with its link. Newer kernels wake the function for this read.

    Scans that share `kept` read the link at most every five minutes.
    """
    if not function.link.is_asleep:
        return function

    def read_link(notes: list[str]) -> Link:
        target = sysfs.link(function.folder, notes)
        places = ends(function.folder, target, function.vendor_id)
        return replace(_link(*places, notes, with_now=False), is_asleep=True)

    notes = list(function.notes)
    bind = (function.vendor_id, function.device_id, function.driver)
    link = function.cache.read_seldom(f"{function.address} link", bind, read_link, notes)
    return replace(function, link=link, notes=tuple(notes))


def slot(address: str) -> str:
    """Returns the slot of a function: its address without the function number."""
    return address.rpartition(".")[0]


def _is_asleep(path: str) -> bool:
    """Returns True if the kernel has suspended the unused device. The read does not wake the
    device.

    If the file is missing or unreadable, the device counts as awake.
    """
    return sysfs.text(f"{path}/power/runtime_status", []) in ("suspended", "suspending")


def _address(target: str | None) -> str:
    """Returns the PCI address to which a link leads; empty if it leads to no PCI device."""
    name = posixpath.basename(target) if target else ""
    return name if _ADDRESS.fullmatch(name) else ""


def _group(target: str | None) -> int | None:
    """Returns the number of the IOMMU group to which a link leads.

    None if there is no such link.
    """
    name = posixpath.basename(target) if target else ""
    return int(name) if name.isdecimal() and len(name) < 10 else None


def _pcie_root(address: str, target: str | None) -> str | None:
    """Returns the PCIe root complex, such as pci0000:40, from the target of the link on the bus.

    All DRA drivers use this rule, so that their attribute has the same value: the target is one
    relative link, and no link in it is resolved.
    """
    if target is None or target.startswith("/"):
        return None
    parts = posixpath.normpath(f"bus/pci/devices/{target}").split("/")
    if len(parts) < 3 or parts[0] != "devices" or parts[-1] != address:
        return None
    return parts[1] if parts[1].startswith("pci") else None


# ---------------------------------------------------------------- the link to the slot


def ends(path: str, target: str | None, vendor_id: int) -> tuple[str | None, str | None]:
    """Returns the folders of the two ends of the link to the slot: the lower end, then the upper
    port.

    `target` is the target of the device's link on the bus. Some boards and packages have a switch
    before the GPU, so that the GPU's own link is inside the board, and the switch has the link to
    the slot. The first port below the root complex is never part of a board. A folder is None if
    the file that would tell it is missing or unreadable.
    """
    if target is None:
        return None, None

    # Climbs from the GPU towards the root complex, past the ports that belong to the same board.
    bus = posixpath.dirname(path)
    above = posixpath.normpath(target).split("/")[:-1]
    while len(above) > 1 and _ADDRESS.fullmatch(above[-1]) and _ADDRESS.fullmatch(above[-2]):
        port = f"{bus}/{above[-1]}"
        port_vendor = sysfs.hexadecimal(f"{port}/vendor", [])
        if port_vendor is None:
            return None, None
        if port_vendor != vendor_id:
            port_device = sysfs.hexadecimal(f"{port}/device", [])
            if (port_vendor, port_device) not in _IN_PACKAGE:
                break
        path = port
        above.pop()

    if above and _ADDRESS.fullmatch(above[-1]):
        return path, f"{bus}/{above[-1]}"
    return path, None


def _link(path: str | None, port: str | None, notes: list[str], *, with_now: bool) -> Link:
    """Returns the link to the slot. A link inside the chip has neither width nor speed."""
    if path is None:
        return _NO_LINK

    # A GPU in the package of a processor is connected to it by other means. Such a GPU shows a link
    # of one lane or so, but the port before it shows none.
    if port is not None and not sysfs.decimal(f"{port}/current_link_width", []):
        return _NO_LINK

    return Link(
        width=_link_width(f"{path}/max_link_width", notes),
        width_now=_link_width(f"{path}/current_link_width", notes) if with_now else None,
        speed=_link_speed(f"{path}/max_link_speed", notes),
        speed_now=_link_speed(f"{path}/current_link_speed", notes) if with_now else None,
    )


def _link_width(path: str, notes: list[str]) -> int | None:
    """Returns the number of lanes; None if there is no link, or its file cannot be read."""
    lanes = sysfs.decimal(path, notes)
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None


def _link_speed(path: str, notes: list[str]) -> int | None:
    """Returns the speed of a lane in megatransfers a second.

    None if the kernel does not know it.
    """
    value = sysfs.text(path, notes)
    if value is None or value in ("Unknown", "Unknown speed"):
        return None
    match = _SPEED.fullmatch(value)
    if match is None:
        notes.append(f"{path}: {value[:40]!r} is not a link speed")
        return None
    return int(match[1]) * 1000 + int(match[2] or 0) * 100
