"""gRPC servers on unix sockets that others may have left behind or still hold.

A socket of a dead predecessor is swept away; one that somebody answers on is never stolen. What is served is decided by
the callers.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import grpc.aio

from .. import errors

log = logging.getLogger(__name__)


async def listen(path: Path, add: Callable[[grpc.aio.Server], None]) -> grpc.aio.Server:
    """A started server. The socket can be dialled from the moment it exists, so what it needs must be there before."""
    if is_alive(path):
        raise errors.Fatal(
            f"somebody serves {path} already: another claimd with the same driver name? "
            "Two can live side by side only with --pod-uid, which gives each its own sockets"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise errors.Fatal(f"cannot make room for the socket {path}: {error}; is kubelet-dir right?") from error
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add(server)
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise errors.Fatal(f"cannot listen on {path}: {error}") from error
    finally:
        os.umask(before)
    await server.start()
    return server


def sweep(folder: Path, ours: Callable[[str], bool]) -> None:
    """Removes the sockets in the folder that are ours by name and that nobody answers on."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in sorted(names):
        path = folder / name
        if ours(name) and path.is_socket() and not is_alive(path):
            log.info("removing the socket of a dead predecessor: %s", path)
            with contextlib.suppress(OSError):  # it stays a dead one, and harms nobody but the kubelet's log
                path.unlink()


def is_alive(path: Path) -> bool:
    """Whether somebody listens. Only a plain refusal or absence counts as no: a doubt leaves the socket alone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        result = probe.connect_ex(str(path))
    return result not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR)
