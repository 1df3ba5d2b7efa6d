"""Receives the kernel's uevents of the PCI bus and of DRM in the event loop.

An event means "look again". One kind of event says more, because no file shows it: that a GPU
hangs. This module does not read the kernel's trees. A fake tree has a folder with a socket for each
listener; code that changes the tree sends them messages in the kernel's form.
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

SOCKETS = ".claimd-uevents"  # a folder of a fake tree, next to sys/
_SUBSYSTEMS = ("pci", "drm")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/|$)")
_LARGEST = 8192  # the most bytes of an event

# Seconds until the kernel's events are tried again, doubled each time up to the second figure.
RETRY = 5.0
SLOWEST_RETRY = 600.0
_SEND_TIMEOUT = 1.0  # seconds for a listener that does not read


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Uevent:
    """A uevent of the kernel."""

    action: str
    subsystem: str
    path: str  # below /sys
    wedged: str = ""  # ways to recover a GPU that hangs, with commas

    @property
    def address(self) -> str:
        """The address of the nearest PCI function in the path; empty if the path has none."""
        addresses = _ADDRESS.findall(self.path)
        return addresses[-1] if addresses else ""


OnUevent = Callable[[Uevent], None]

# How pyudev raises the errors ENOMEM, EINVAL and EOVERFLOW of libudev. Other errors are OSErrors.
_PYUDEV_ERRORS = (MemoryError, ValueError, OverflowError)


# ---------------------------------------------------------------- listening


@contextmanager
def listening(
    on_change: Callable[[], None],
    on_uevent: OnUevent = lambda _: None,
    roots: Roots | None = None,
) -> Iterator[bool]:
    """Calls `on_uevent` with each event, and `on_change` after a burst of them, within the block.

    Both run in the running event loop. Yields False, and logs the reason, if the kernel's events
    cannot be received now. It is tried again within the block. Until then a caller that also scans
    periodically sees changes later.
    """
    with contextlib.ExitStack() as stack:
        if roots is not None:
            folder = roots.sys.parent / SOCKETS
            stack.enter_context(_listening_to_fakes(folder, on_change, on_uevent))

        kernel = _KernelEvents(on_change, on_uevent)
        stack.callback(kernel.close)
        yield kernel.open()


def _monitor() -> Any:
    """Returns a started monitor of pyudev, which has no types."""
    # Imported late, because libudev needs 3 MB and may be absent, and few commands watch.
    import pyudev

    # The source "udev" sends nothing in a container, nor on a host without udevd.
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    for subsystem in _SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor


class _KernelEvents:
    """Receives the kernel's events. While that fails, it tries again after RETRY, and then later."""

    def __init__(self, on_change: Callable[[], None], on_uevent: OnUevent) -> None:
        self._on_change, self._on_uevent = on_change, on_uevent
        self._loop = asyncio.get_running_loop()
        self._retry = RETRY
        self._timer: asyncio.TimerHandle | None = None
        self._monitor: Any = None

        # A second descriptor of pyudev's socket, by which `_is_overflow` gets the socket's error.
        self._shared: socket.socket | None = None

    def open(self) -> bool:
        """Starts to receive events. Returns False, and logs the first reason, if it failed."""
        try:
            self._monitor = _monitor()
            self._shared = socket.socket(fileno=os.dup(self._monitor.fileno()))
        except (ImportError, OSError, *_PYUDEV_ERRORS) as error:
            # There is no libudev, or the socket could not be made. Both may be an error of ours:
            # libudev is not found without descriptors either.
            self._retry_later("kernel uevents cannot be heard", error)
            return False
        self._loop.add_reader(self._shared, self._drain, self._shared)
        self._retry = RETRY
        return True

    def close(self) -> None:
        """Receives no more events."""
        if self._timer is not None:
            self._timer.cancel()
        if self._shared is not None:
            self._loop.remove_reader(self._shared)
            self._shared.close()
        self._shared = self._monitor = self._timer = None

    def _retry_later(self, what: str, error: Exception) -> None:
        if self._retry == RETRY:
            _log.warning("%s, changes are seen by the clock alone: %s", what, error)
        self.close()
        self._timer = self._loop.call_later(self._retry, self._open_again)
        self._retry = min(self._retry * 2, SLOWEST_RETRY)

    def _open_again(self) -> None:
        if self.open():
            _log.info("kernel uevents are heard again")

            # Events that came meanwhile are lost, so a scan is needed.
            self._on_change()

    def _drain(self, shared: socket.socket) -> None:
        has_events = False
        try:
            while (device := self._monitor.poll(timeout=0)) is not None:
                has_events = True
                self._on_uevent(_from_pyudev(device))
        except (OSError, *_PYUDEV_ERRORS) as error:
            # The lost events may have reported changes, so a scan is needed.
            has_events = True
            if not _is_overflow(error, shared):
                # A broken socket stays readable, and would wake the loop for ever.
                self._retry_later("kernel uevents are lost", error)
        if has_events:
            self._on_change()


def _is_overflow(error: Exception, shared: socket.socket) -> bool:
    """Returns True if the socket's buffer was full, so that events are lost and later ones come.

    pyudev does not pass the kernel's ENOBUFS on, so the error is read from the socket, which also
    clears it.
    """
    pending = shared.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.ENOBUFS in (getattr(error, "errno", None), pending)


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
    """Receives the events of a fake tree, if there is a folder for its sockets."""
    path = folder / os.urandom(4).hex()
    with contextlib.ExitStack() as stack:
        try:
            events = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            stack.enter_context(events)
            events.bind(str(path))
        except OSError as error:
            # ENOENT means that the tree has no such folder, as on every real machine.
            if error.errno != errno.ENOENT:
                _log.info(
                    "faults of `claimd fake` are seen by the clock alone: %s: %s", folder, error
                )
            yield
            return

        def drain() -> None:
            # The last error is that there are no more events.
            with contextlib.suppress(OSError):
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


# ---------------------------------------------------------------- sending


def broadcast(tree: Path, message: bytes) -> int:
    """Sends a message to all listeners of a fake tree. Returns how many of them got it.

    Removes the sockets of listeners that have died. Waits one second for a listener that does not
    read.
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
                # The socket is gone, or its listener does not read, or we could not look.
                _log.info("%s: not told: %s", path, error)
    return count


def message(action: str, path: str, subsystem: str, **more: str) -> bytes:
    """Returns an event in the kernel's form."""
    fields = {"ACTION": action, "DEVPATH": path, "SUBSYSTEM": subsystem, **more}
    rows = [f"{action}@{path}", *(f"{key}={value}" for key, value in fields.items())]
    return "\0".join([*rows, ""]).encode()


def parse(content: bytes) -> Uevent:
    """Parses an event in the kernel's form. Fields that it does not have are empty."""
    fields = dict(row.partition("=")[::2] for row in content.decode(errors="replace").split("\0"))
    return Uevent(
        action=fields.get("ACTION", ""),
        subsystem=fields.get("SUBSYSTEM", ""),
        path=fields.get("DEVPATH", ""),
        wedged=fields.get("WEDGED", ""),
    )
