"""The PCI bus: which display controllers and accelerators there are, and what PCI itself says of
them.

What a vendor's driver adds must not go in here.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, field

from . import sysfs
from .gpu import Roots, Skipped

_ADDRESS = re.compile(
    r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)  # a domain may have more than four digits
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # base classes
_VGA = 0x0300
# Ports of switches in the packages of Instinct GPUs, which have the processors' vendor.
_IN_PACKAGE = ((0x1022, 0x14C7), (0x1022, 0x1500))
_SPEED = re.compile(r"([0-9]{1,3})(?:\.([0-9]))? GT/s(?: PCIe)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One display controller or accelerator. It may be a virtual function: PCI makes no difference."""

    address: str
    folder: str  # where its files are for us
    class_code: int
    vendor_id: int
    device_id: int
    driver: str | None  # None: bound to none
    numa_node: int | None
    pcie_root: str | None
    boot_vga: bool
    notes: tuple[str, ...]
    physical: str | None = (
        None  # the address of the function that this virtual one is a part of; empty if unreadable
    )
    iommu_group: int | None = None
    link_width: int | None = None  # that the link can have, as the two below
    link_speed: int | None = None  # megatransfers a second
    link_width_now: int | None = None
    link_speed_now: int | None = None
    cache: sysfs.ScanCache = field(
        default_factory=sysfs.ScanCache, compare=False, repr=False
    )  # by all of one scan


def functions(roots: Roots) -> tuple[list[Function], list[Skipped]]:
    """Display controllers and accelerators by address, and what cannot be told to be one or not."""
    folder = os.path.join(roots.sys, "bus/pci/devices")
    found: list[Function] = []
    skipped: list[Skipped] = []
    notes: list[str] = []
    cache = sysfs.ScanCache()
    addresses = sysfs.names(folder, notes)
    if addresses is None:
        reason = notes[0] if notes else f"{folder}: missing"
        return [], [Skipped(address="*", reason=f"{reason}: no PCI device can be seen")]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            continue
        notes = []
        path = f"{folder}/{address}"
        class_code = sysfs.hexadecimal(f"{path}/class", notes)
        if class_code is not None and class_code >> 16 not in (_DISPLAY, _ACCELERATOR):
            continue
        vendor_id = sysfs.hexadecimal(f"{path}/vendor", notes)
        device_id = sysfs.hexadecimal(f"{path}/device", notes)
        if class_code is None or vendor_id is None or device_id is None:
            reason = "; ".join(notes) or "class, vendor or device missing"
            skipped.append(Skipped(address=address, reason=f"cannot tell what it is: {reason}"))
            continue
        found.append(
            _function(f"{folder}/{address}", (class_code, vendor_id, device_id), cache, notes)
        )
    return found, skipped


def _function(
    path: str, ids: tuple[int, int, int], cache: sysfs.ScanCache, notes: list[str]
) -> Function:
    address = posixpath.basename(path)
    class_code, vendor_id, device_id = ids
    said = len(notes)
    physical = sysfs.link(f"{path}/physfn", notes)
    virtual = physical is not None or len(notes) > said
    group = sysfs.link(f"{path}/iommu_group", notes)
    # A virtual function has no link of its own: these files say Unknown and 0.
    target = sysfs.link(path, notes)
    link = _link(*(ends(path, target, vendor_id) if not virtual else (None, None)), notes)
    driver = sysfs.link(f"{path}/driver", notes)
    numa_node = sysfs.decimal(f"{path}/numa_node", notes)
    pcie_root = _pcie_root(address, target)
    return Function(
        address=address,
        folder=path,
        class_code=class_code,
        vendor_id=vendor_id,
        device_id=device_id,
        driver=posixpath.basename(driver) if driver else None,
        numa_node=numa_node if numa_node is not None and numa_node >= 0 else None,
        pcie_root=pcie_root,
        # Only VGA controllers have the file.
        boot_vga=class_code >> 8 == _VGA and sysfs.decimal(f"{path}/boot_vga", notes) == 1,
        physical=(_address(physical) or "") if virtual else None,
        iommu_group=_group(group),
        link_width=link[0],
        link_speed=link[1],
        link_width_now=link[2],
        link_speed_now=link[3],
        cache=cache,
        notes=tuple(notes),
    )


def _address(target: str | None) -> str | None:
    name = posixpath.basename(target) if target else ""
    return name if _ADDRESS.fullmatch(name) else None


def _group(target: str | None) -> int | None:
    name = posixpath.basename(target) if target else ""
    return int(name) if name.isdecimal() and len(name) < 10 else None


def ends(path: str, target: str | None, vendor_id: int) -> tuple[str | None, str | None]:
    """The folder that tells of the link to the slot, and that of the port at the slot's end; None
    for what cannot be told. `target` is where the link on the bus leads.

    Some boards and packages have a switch before the GPU, whose own link is then inside of them;
    the first port below the root complex never is.
    """
    bus = posixpath.dirname(path)
    if target is None:
        return None, None
    above = posixpath.normpath(target).split("/")[:-1]
    while len(above) > 1 and _ADDRESS.fullmatch(above[-1]) and _ADDRESS.fullmatch(above[-2]):
        vendor = sysfs.hexadecimal(f"{bus}/{above[-1]}/vendor", [])
        if vendor is None:
            return None, None
        if (
            vendor != vendor_id
            and (vendor, sysfs.hexadecimal(f"{bus}/{above[-1]}/device", [])) not in _IN_PACKAGE
        ):
            break
        path = f"{bus}/{above.pop()}"
    return path, f"{bus}/{above[-1]}" if above and _ADDRESS.fullmatch(above[-1]) else None


_Link = tuple[int | None, int | None, int | None, int | None]


def _link(path: str | None, port: str | None, notes: list[str]) -> _Link:
    """Width and speed of the link, as they can be and as they are. One that is inside the chip has
    none.
    """
    if path is None:
        return None, None, None, None
    # A GPU that hangs together with its processor by other means says that it has a lane or so, and
    # the port before it
    # that it has none.
    if port is not None and not sysfs.decimal(f"{port}/current_link_width", []):
        return None, None, None, None
    width, now = (
        sysfs.decimal(f"{path}/{which}_link_width", notes) for which in ("max", "current")
    )
    return (
        width if width and 0 < width <= 32 else None,  # 255: there is no link
        _speed(f"{path}/max_link_speed", notes),
        now if now and 0 < now <= 32 else None,
        _speed(f"{path}/current_link_speed", notes),
    )


def _speed(path: str, notes: list[str]) -> int | None:
    value = sysfs.text(path, notes)
    if value is None or value in ("Unknown", "Unknown speed"):
        return None
    match = _SPEED.fullmatch(value)
    if match is None:
        notes.append(f"{path}: {value[:40]!r} is not a link speed")
        return None
    return int(match[1]) * 1000 + int(match[2] or 0) * 100


def _pcie_root(address: str, target: str | None) -> str | None:
    """The root complex, by the rule that every DRA driver follows: one relative link, nothing
    resolved.
    """
    if target is None or target.startswith("/"):
        return None
    parts = posixpath.normpath(f"bus/pci/devices/{target}").split("/")
    if (
        len(parts) < 3
        or parts[0] != "devices"
        or not parts[1].startswith("pci")
        or parts[-1] != address
    ):
        return None
    return parts[1]
