"""Makes the kernel announce a PCI device again, which gives real events."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def announce(times: int = 1) -> None:
    """Makes the kernel send `change` events of a real PCI device to all listeners on this machine."""
    path = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))[0]
    for _ in range(times):
        path.write_text("change")


def _why_not() -> str:
    files = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    if not files:
        return "this machine shows no PCI device"
    if not os.access(files[0], os.W_OK):
        return "asking the kernel for an event takes root and a writable /sys"
    return ""


needs_kernel_events = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")
