"""Sends uevents with any content through the kernel, as a driver would. Needs root."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from claimd_devices import uevents

_KOBJECT_UEVENT = 15


def broadcast(action: str, path: str, subsystem: str, **more: str) -> None:
    text = uevents.message(action, path, subsystem, **more)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _KOBJECT_UEVENT) as sender:
        sender.bind((0, 0))
        sender.sendto(struct.pack("IHHII", 16 + len(text), 16, 1, 1, 0) + text, (0, 0))


def _why_not() -> str:
    if os.geteuid() != 0:
        return "having the kernel announce an event takes root"
    try:
        broadcast("change", "/devices/virtual/claimd", "claimd")
    except OSError as error:
        return f"the kernel announces no event for us: {error}"
    return ""


needs_broadcast = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")
