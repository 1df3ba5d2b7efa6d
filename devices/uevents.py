"""The kernel's own word that something changed on the PCI bus or in DRM: its uevents, heard in the
event loop.

An event means "look again", but for what the kernel says in no file: that a GPU hangs. Nothing here
reads the trees. A fake tree has a folder for sockets of those who listen: whoever changes it tells
them as the kernel would.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .gpu import Roots

_log = logging.getLogger("claimd.devices")
_SUBSYSTEMS = ("pci", "drm")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/|$)")
SOCKETS = ".claimd-uevents"  # beside a fake tree's sys/


@dataclass(frozen=True, slots=True, kw_only=True)
class Uevent:
    """What an event says. `address` is the PCI function's that it is about, or the one above it."""

    action: str
    subsystem: str
    path: str  # below /sys
    wedged: str = ""  # ways to recover a GPU that hangs, with commas

    @property
    def address(self) -> str:
        found = _ADDRESS.findall(self.path)
        return found[-1] if found else ""


OnUevent = Callable[[Uevent], None]


@contextmanager
def listening(
    on_change: Callable[[], None], on_uevent: OnUevent = lambda _: None, roots: Roots | None = None
) -> Iterator[bool]:
    """Calls `on_change` from the running loop after events, and `on_uevent` with each, until the block ends.
    False, and a log line with the reason, where events cannot be heard: nothing is lost but speed,
    if somebody looks by the clock as well.
    """
    with contextlib.ExitStack() as stack:
        if roots is not None:
            stack.enter_context(_injected(roots.sys.parent / SOCKETS, on_change, on_uevent))
        try:
            monitor = _monitor()
        except (ImportError, OSError) as error:
            _log.warning(
                "kernel uevents cannot be heard, changes are seen by the clock alone: %s", error
            )
            yield False
            return
        with _kernel(monitor, on_change, on_uevent):
            yield True


@contextmanager
def _kernel(monitor: Any, on_change: Callable[[], None], on_uevent: OnUevent) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # Shares pyudev's socket, to ask what is wrong with it.
    with socket.socket(fileno=os.dup(monitor.fileno())) as events:

        def drain() -> None:
            heard = False
            try:
                while (device := monitor.poll(timeout=0)) is not None:
                    heard = True
                    on_uevent(
                        Uevent(
                            action=device.action or "",
                            subsystem=device.subsystem or "",
                            path=device.device_path,
                            wedged=device.properties.get("WEDGED", ""),
                        )
                    )
            except OSError as error:
                heard = True
                # pyudev says of the kernel's ENOBUFS (more events than the socket holds) only that
                # something is wrong;
                # asking the socket clears it. Anything else would wake us for ever.
                if errno.ENOBUFS not in (
                    error.errno,
                    events.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
                ):
                    loop.remove_reader(events)
                    _log.warning(
                        "kernel uevents are lost, changes are seen by the clock alone: %s", error
                    )
            if heard:
                on_change()

        loop.add_reader(events, drain)
        try:
            yield
        finally:
            loop.remove_reader(events)


@contextmanager
def _injected(folder: Path, on_change: Callable[[], None], on_uevent: OnUevent) -> Iterator[None]:
    """Listens in the folder as well, if there is one."""
    path = folder / secrets.token_hex(4)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as events:
        try:
            events.bind(str(path))
        except OSError as error:
            if error.errno != errno.ENOENT:
                _log.info(
                    "orders of `claimd fake` are seen by the clock alone: %s: %s", folder, error
                )
            yield
            return
        loop = asyncio.get_running_loop()

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    on_uevent(parse(events.recv(8192)))
            on_change()

        loop.add_reader(events, drain)
        try:
            yield
        finally:
            loop.remove_reader(events)
            with contextlib.suppress(OSError):
                path.unlink()


def broadcast(folder: Path, message: bytes) -> int:
    """Tells all that listen at a fake tree, as the kernel would. Returns how many they were."""
    told = 0
    for path in sorted((folder / SOCKETS).glob("*")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)
            try:
                sender.connect(str(path))
                sender.send(message)
                told += 1
            except ConnectionRefusedError:  # its listener died
                with contextlib.suppress(OSError):
                    path.unlink()
            except OSError as error:
                _log.info("%s: not told: %s", path, error)
    return told


def message(action: str, path: str, subsystem: str, **more: str) -> bytes:
    """An event in the kernel's own form."""
    fields = {"ACTION": action, "DEVPATH": path, "SUBSYSTEM": subsystem, **more}
    return "\0".join(
        (f"{action}@{path}", *(f"{key}={value}" for key, value in fields.items()), "")
    ).encode()


def parse(text: bytes) -> Uevent:
    fields = dict(part.partition("=")[::2] for part in text.decode(errors="replace").split("\0"))
    return Uevent(
        action=fields.get("ACTION", ""),
        subsystem=fields.get("SUBSYSTEM", ""),
        path=fields.get("DEVPATH", ""),
        wedged=fields.get("WEDGED", ""),
    )


def _monitor() -> Any:
    """A started monitor of pyudev, which has no types."""
    # here, since libudev costs 3 MB and may be absent: commands that do not watch do without
    import pyudev

    # Not the source "udev": it is silent in a container and where no udevd runs.
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    for subsystem in _SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor
