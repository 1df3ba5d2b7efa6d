"""The PCI bus: which display controllers and accelerators there are, and what PCI itself says of
them.

What a vendor's driver adds must not go in here.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import field

from . import failures, sysfs, values
from .gpu import Roots, Skipped

# A domain may have more than four digits.
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9]{1,3})(?:\.([0-9]))? GT/s(?: PCIe)?")

DISPLAY, ACCELERATOR = 0x03, 0x12  # base classes
_VGA = 0x0300
_MOST_LANES = 32  # a width of 255 says that there is no link

# Ports of switches in the packages of Instinct GPUs, which have the processors' vendor.
_IN_PACKAGE = ((0x1022, 0x14C7), (0x1022, 0x1500))


@values.dataclass(frozen=True, slots=True, kw_only=True)
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
    physical: str | None = None  # the function that this virtual one is of; empty if unreadable
    iommu_group: int | None = None
    link_width: int | None = None  # that the link can have, as the two below
    link_speed: int | None = None  # megatransfers a second
    link_width_now: int | None = None
    link_speed_now: int | None = None
    is_asleep: bool = False  # its link was not read, which would have woken it
    cache: sysfs.ScanCache = field(default_factory=sysfs.ScanCache, compare=False, repr=False)

    @property
    def base_class(self) -> int:
        """DISPLAY or ACCELERATOR."""
        return self.class_code >> 16

    @property
    def ids(self) -> str:
        """As people write them: 10de:2330."""
        return f"{self.vendor_id:04x}:{self.device_id:04x}"


@values.dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """A PCIe link: what it can be at most, and what it is now."""

    width: int | None = None
    speed: int | None = None
    width_now: int | None = None
    speed_now: int | None = None


_NO_LINK = _Link()


def functions(roots: Roots, *, with_link_now: bool = False) -> tuple[list[Function], list[Skipped]]:
    """Display controllers and accelerators by address, and what cannot be told to be one or not.

    What a link has now changes with the load: it is read where somebody wants to see it, and None
    elsewhere. Without a PCI bus there is one Skipped, with the address *. Raises LookFailedError if
    the folder of the bus is there and cannot be listed: then it is not known which devices exist.
    """
    folder = os.path.join(roots.sys, "bus/pci/devices")
    notes: list[str] = []
    addresses = sysfs.names(folder, notes)
    if addresses is None:
        if notes:
            raise failures.LookFailedError(notes[0])
        return [], [Skipped(address="*", reason=f"{folder}: missing: no PCI device can be seen")]

    cache = sysfs.ScanCache()
    found: list[Function] = []
    skipped: list[Skipped] = []
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            continue

        # Most devices of a machine are neither, and have only this one file read.
        notes = []
        path = f"{folder}/{address}"
        class_code = sysfs.hexadecimal(f"{path}/class", notes)
        if class_code is not None and class_code >> 16 not in (DISPLAY, ACCELERATOR):
            continue

        vendor_id = sysfs.hexadecimal(f"{path}/vendor", notes)
        device_id = sysfs.hexadecimal(f"{path}/device", notes)
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

    # One whose link to the physical function cannot be read is a virtual one all the same.
    noted = len(notes)
    physical = sysfs.link(f"{path}/physfn", notes)
    is_virtual = physical is not None or len(notes) > noted
    group = sysfs.link(f"{path}/iommu_group", notes)

    # A virtual function has no link of its own: these files say Unknown and 0. Of one that sleeps the
    # width (max_link_width, current_link_*) cannot be read without waking it and the ports before
    # it; all else that a scan reads is known to the kernel while it sleeps.
    target = sysfs.link(path, notes)
    is_asleep = not is_virtual and _is_asleep(path)
    link = _NO_LINK
    if not is_virtual and not is_asleep:
        link = _link(*ends(path, target, vendor_id), notes, with_now=with_link_now)

    driver = sysfs.link(f"{path}/driver", notes)
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
        driver=posixpath.basename(driver) if driver else None,
        numa_node=numa_node,
        pcie_root=_pcie_root(address, target),
        boot_vga=boot_vga,
        physical=_address(physical) if is_virtual else None,
        iommu_group=_group(group),
        link_width=link.width,
        link_speed=link.speed,
        link_width_now=link.width_now,
        link_speed_now=link.speed_now,
        is_asleep=is_asleep,
        cache=cache,
        notes=tuple(notes),
    )


def slot(address: str) -> str:
    """The slot of a function: its address without the function's number."""
    return address.rpartition(".")[0]


def _is_asleep(path: str) -> bool:
    """Whether the kernel has put the device to sleep since nobody uses it. Asking does not wake it."""
    return sysfs.text(f"{path}/power/runtime_status", []) in ("suspended", "suspending")


def _address(target: str | None) -> str:
    """The address that a link leads to; empty if it leads to none."""
    name = posixpath.basename(target) if target else ""
    return name if _ADDRESS.fullmatch(name) else ""


def _group(target: str | None) -> int | None:
    name = posixpath.basename(target) if target else ""
    return int(name) if name.isdecimal() and len(name) < 10 else None


def _pcie_root(address: str, target: str | None) -> str | None:
    """The root complex, by the rule that every DRA driver follows: one relative link, nothing
    resolved.
    """
    if target is None or target.startswith("/"):
        return None
    parts = posixpath.normpath(f"bus/pci/devices/{target}").split("/")
    if len(parts) < 3 or parts[0] != "devices" or parts[-1] != address:
        return None
    return parts[1] if parts[1].startswith("pci") else None


# ---------------------------------------------------------------- the link to the slot


def ends(path: str, target: str | None, vendor_id: int) -> tuple[str | None, str | None]:
    """The folder that tells of the link to the slot, and that of the port at the slot's end; None
    for what cannot be told. `target` is where the link on the bus leads.

    Some boards and packages have a switch before the GPU, whose own link is then inside of them;
    the first port below the root complex never is.
    """
    if target is None:
        return None, None
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


def _link(path: str | None, port: str | None, notes: list[str], *, with_now: bool) -> _Link:
    """The link to the slot. One that is inside the chip has neither width nor speed."""
    if path is None:
        return _NO_LINK

    # A GPU that hangs together with its processor by other means says that it has a lane or so, and
    # the port before it that it has none.
    if port is not None and not sysfs.decimal(f"{port}/current_link_width", []):
        return _NO_LINK

    return _Link(
        width=_link_width(f"{path}/max_link_width", notes),
        width_now=_link_width(f"{path}/current_link_width", notes) if with_now else None,
        speed=_link_speed(f"{path}/max_link_speed", notes),
        speed_now=_link_speed(f"{path}/current_link_speed", notes) if with_now else None,
    )


def _link_width(path: str, notes: list[str]) -> int | None:
    lanes = sysfs.decimal(path, notes)
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None


def _link_speed(path: str, notes: list[str]) -> int | None:
    """Megatransfers a second of a lane."""
    value = sysfs.text(path, notes)
    if value is None or value in ("Unknown", "Unknown speed"):
        return None
    match = _SPEED.fullmatch(value)
    if match is None:
        notes.append(f"{path}: {value[:40]!r} is not a link speed")
        return None
    return int(match[1]) * 1000 + int(match[2] or 0) * 100
