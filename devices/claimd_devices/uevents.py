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
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import values
from .gpu import Roots

_log = logging.getLogger("claimd.devices")

SOCKETS = ".claimd-uevents"  # beside a fake tree's sys/
_SUBSYSTEMS = ("pci", "drm")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/|$)")
_LARGEST = 8192  # bytes of an event
_SEND_TIMEOUT = 1.0  # seconds for a listener that does not read


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Uevent:
    """What an event says."""

    action: str
    subsystem: str
    path: str  # below /sys
    wedged: str = ""  # ways to recover a GPU that hangs, with commas

    @property
    def address(self) -> str:
        """The PCI function's that it is about, or the one above it; empty if there is none."""
        addresses = _ADDRESS.findall(self.path)
        return addresses[-1] if addresses else ""


OnUevent = Callable[[Uevent], None]


# ---------------------------------------------------------------- listening


@contextmanager
def listening(
    on_change: Callable[[], None],
    on_uevent: OnUevent = lambda _: None,
    roots: Roots | None = None,
) -> Iterator[bool]:
    """Calls `on_change` from the running loop after events, and `on_uevent` with each, until the
    block ends.

    False, and a log line with the reason, where events cannot be heard: nothing is lost but speed,
    if somebody looks by the clock as well.
    """
    with contextlib.ExitStack() as stack:
        if roots is not None:
            folder = roots.sys.parent / SOCKETS
            stack.enter_context(_listening_to_fakes(folder, on_change, on_uevent))

        try:
            monitor = _monitor()
        except (ImportError, OSError) as error:
            _log.warning(
                "kernel uevents cannot be heard, changes are seen by the clock alone: %s", error
            )
            yield False
            return
        stack.enter_context(_listening_to_kernel(monitor, on_change, on_uevent))
        yield True


def _monitor() -> Any:
    """A started monitor of pyudev, which has no types."""
    # Not above, since libudev costs 3 MB and may be absent: commands that do not watch do without.
    import pyudev

    # Not the source "udev": it is silent in a container and where no udevd runs.
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    for subsystem in _SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor


@contextmanager
def _listening_to_kernel(
    monitor: Any, on_change: Callable[[], None], on_uevent: OnUevent
) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    # Shares pyudev's socket, to ask what is wrong with it.
    with socket.socket(fileno=os.dup(monitor.fileno())) as shared:

        def drain() -> None:
            heard = False
            try:
                while (device := monitor.poll(timeout=0)) is not None:
                    heard = True
                    on_uevent(_from_pyudev(device))
            except OSError as error:
                # What was lost may be a change.
                heard = True
                if not _is_overflow(error, shared):
                    loop.remove_reader(shared)  # else this would wake us for ever
                    _log.warning(
                        "kernel uevents are lost, changes are seen by the clock alone: %s", error
                    )
            if heard:
                on_change()

        loop.add_reader(shared, drain)
        try:
            yield
        finally:
            loop.remove_reader(shared)


def _is_overflow(error: OSError, shared: socket.socket) -> bool:
    """Whether there were more events than the socket holds, which passes.

    pyudev says of the kernel's ENOBUFS only that something is wrong; asking the socket clears it.
    """
    pending = shared.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.ENOBUFS in (error.errno, pending)


def _from_pyudev(device: Any) -> Uevent:
    return Uevent(
        action=device.action or "",
        subsystem=device.subsystem or "",
        path=device.device_path,
        wedged=device.properties.get("WEDGED", ""),
    )


@contextmanager
def _listening_to_fakes(
    folder: Path, on_change: Callable[[], None], on_uevent: OnUevent
) -> Iterator[None]:
    """Listens in the folder of a fake tree as well, if there is one."""
    path = folder / os.urandom(4).hex()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as events:
        try:
            events.bind(str(path))
        except OSError as error:
            if error.errno != errno.ENOENT:
                _log.info(
                    "faults of `claimd fake` are seen by the clock alone: %s: %s", folder, error
                )
            yield
            return

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    on_uevent(parse(events.recv(_LARGEST)))
            on_change()

        loop = asyncio.get_running_loop()
        loop.add_reader(events, drain)
        try:
            yield
        finally:
            loop.remove_reader(events)
            with contextlib.suppress(OSError):
                path.unlink()


# ---------------------------------------------------------------- telling


def broadcast(tree: Path, message: bytes) -> int:
    """Tells all that listen at a fake tree, as the kernel would. Returns how many they were.

    Sockets of listeners that died are removed; one that does not read is waited for a second.
    """
    count = 0
    for path in sorted((tree / SOCKETS).glob("*")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_TIMEOUT)
            try:
                sender.connect(str(path))
                sender.send(message)
                count += 1
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    path.unlink()
            except OSError as error:
                _log.info("%s: not told: %s", path, error)
    return count


def message(action: str, path: str, subsystem: str, **more: str) -> bytes:
    """An event in the kernel's own form."""
    fields = {"ACTION": action, "DEVPATH": path, "SUBSYSTEM": subsystem, **more}
    rows = [f"{action}@{path}", *(f"{key}={value}" for key, value in fields.items())]
    return "\0".join([*rows, ""]).encode()


def parse(content: bytes) -> Uevent:
    """An event in the kernel's own form; what it does not say is empty."""
    fields = dict(row.partition("=")[::2] for row in content.decode(errors="replace").split("\0"))
    return Uevent(
        action=fields.get("ACTION", ""),
        subsystem=fields.get("SUBSYSTEM", ""),
        path=fields.get("DEVPATH", ""),
        wedged=fields.get("WEDGED", ""),
    )
