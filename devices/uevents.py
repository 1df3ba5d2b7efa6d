"""The kernel's own word that something changed on the PCI bus or in DRM: its uevents, heard in the event loop.

An event means only "look again": what it says is thrown away, and nothing here reads the trees.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_log = logging.getLogger("claimd.devices")
_SUBSYSTEMS = ("pci", "drm")


@contextmanager
def listening(look: Callable[[], None]) -> Iterator[bool]:
    """Calls `look` from the running loop after events, until the block ends. False, and a log line with the reason,
    where events cannot be heard: nothing is lost but speed, if somebody looks by the clock as well.
    """
    try:
        monitor = _monitor()
    except (ImportError, OSError) as error:
        _log.warning("kernel uevents cannot be heard, changes are seen by the clock alone: %s", error)
        yield False
        return
    loop = asyncio.get_running_loop()
    # Shares pyudev's socket, to ask what is wrong with it.
    with socket.socket(fileno=os.dup(monitor.fileno())) as events:

        def drain() -> None:
            heard = False
            try:
                while monitor.poll(timeout=0) is not None:
                    heard = True
            except OSError as error:
                heard = True
                # pyudev says of the kernel's ENOBUFS (more events than the socket holds) only that something is wrong;
                # asking the socket clears it. Anything else would wake us for ever.
                if errno.ENOBUFS not in (error.errno, events.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                    loop.remove_reader(events)
                    _log.warning("kernel uevents are lost, changes are seen by the clock alone: %s", error)
            if heard:
                look()

        loop.add_reader(events, drain)
        try:
            yield True
        finally:
            loop.remove_reader(events)


def _monitor() -> Any:
    """A started monitor of pyudev, which has no types."""
    import pyudev  # here, since libudev costs 3 MB and may be absent: commands that do not watch do without

    # Not the source "udev": it is silent in a container and where no udevd runs.
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    for subsystem in _SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor
