"""The PCI bus: which display controllers and accelerators there are, and what PCI itself says of them.

What a vendor's driver adds must not go in here.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass

from . import sysfs
from .gpu import Roots, Skipped

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")  # a domain may have more than four digits
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # base classes
_VGA = 0x0300


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


def functions(roots: Roots) -> tuple[list[Function], list[Skipped]]:
    """Display controllers and accelerators by address, and what cannot be told to be one or not."""
    folder = os.path.join(roots.sys, "bus/pci/devices")
    found: list[Function] = []
    skipped: list[Skipped] = []
    notes: list[str] = []
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
        found.append(_function(folder, address, (class_code, vendor_id, device_id), notes))
    return found, skipped


def _function(folder: str, address: str, ids: tuple[int, int, int], notes: list[str]) -> Function:
    path = f"{folder}/{address}"
    class_code, vendor_id, device_id = ids
    driver = sysfs.link(f"{path}/driver", notes)
    numa_node = sysfs.decimal(f"{path}/numa_node", notes)
    pcie_root = _pcie_root(address, sysfs.link(path, notes))
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
        notes=tuple(notes),
    )


def _pcie_root(address: str, target: str | None) -> str | None:
    """The root complex, by the rule that every DRA driver follows: one relative link, nothing resolved."""
    if target is None or target.startswith("/"):
        return None
    parts = posixpath.normpath(f"bus/pci/devices/{target}").split("/")
    if len(parts) < 3 or parts[0] != "devices" or not parts[1].startswith("pci") or parts[-1] != address:
        return None
    return parts[1]
