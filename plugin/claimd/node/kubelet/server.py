"""gRPC servers on unix sockets in folders that other processes use too.

A socket that a dead process left behind is removed. A socket on which a process answers is never
taken over. A socket of ours that was removed is created again. The callers decide which services a
server has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import grpc.aio

from claimd.common import errors

log = logging.getLogger(__name__)

# The type of a server, for callers that may not import grpc.
GrpcServer = grpc.aio.Server

# Seconds that running calls have when a socket must be created again. New clients cannot connect
# meanwhile.
MEND_DRAIN = 0.5

# Seconds to wait for another instance that creates or removes sockets, which takes a millisecond;
# and seconds between two tries.
LOCK_PATIENCE, LOCK_POLL = 1.0, 0.001

# The largest number of running calls on one connection, including health streams. gRPC tells the
# client the limit, and further calls wait in the client. So thousands of calls of one client do not
# delay the calls of another connection.
MOST_CALLS_A_CONNECTION = 512

# The number of calls that may have arrived without being accepted by our loop. Above its limit,
# gRPC cancels calls at random, and may cancel the kubelet's. With this limit it never does, and
# `Calls` refuses calls with a reason.
MOST_ARRIVED = 1 << 20

OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", MOST_CALLS_A_CONNECTION),
    # This protection would refuse most of the calls that wait at a client, without a reason.
    ("grpc.http.overload_protection", 0),
    ("grpc.server.max_pending_requests", MOST_ARRIVED),
    ("grpc.server.max_pending_requests_hard_limit", MOST_ARRIVED),
)


class Socket:
    """A server on a socket path. As an async context manager, it serves until the block ends."""

    def __init__(self, path: Path, add: Callable[[GrpcServer], None], drain: float) -> None:
        """Takes as `drain` the seconds that running calls have when the block ends."""
        self._path, self._add, self._drain = path, add, drain
        self._server: GrpcServer | None = None
        self._file: tuple[int, int] | None = None  # device and inode of our socket
        self._logged = ""  # the last reason why there is no server, which was logged
        self._changing = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        async with self._changing:
            await self._close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    async def mend(self) -> bool:
        """Creates the socket again if it is gone from its path; returns True if we listen there.

        Connected clients are served without the socket file, but new ones cannot connect. This may
        be called at any time. A failure is logged once, and the next call tries again.
        """
        async with self._changing:
            if not self._closed:
                await self._mend()
        return self._server is not None

    async def _mend(self) -> None:
        if self._server is not None:
            if self._file == _identity(self._path):
                return
            log.warning(
                "the socket %s was removed by another process; creating it again", self._path
            )

            # The old server must end first: it removes whatever is at the path when it ends.
            await self._close()

        try:
            await self._open()
        except errors.Fatal as fatal:
            # The same error would end the program at its start. Now it does not, because pods
            # depend on the program.
            if str(fatal) != self._logged:
                log.error("trying again: %s", fatal)
            self._logged = str(fatal)

    async def _open(self) -> None:
        self._server = await listen(self._path, self._add)
        self._file = _identity(self._path)
        self._logged = ""

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.stop(self._drain if self._closed else MEND_DRAIN)
            self._server = None


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns device and inode, which differ if another file is at the path; None if it is gone."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def listen(path: Path, add: Callable[[GrpcServer], None]) -> GrpcServer:
    """Starts a server with the services that `add` adds to it; returns the server.

    Clients may connect as soon as the socket exists, so everything that the services need must be
    ready before. Raises Fatal if another process serves there or the path cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)

        # No other instance may look at the path between our check and our bind.
        with _lock_folder(path.parent):
            _make_room(path)
            server = _bind(path, add)
    except OSError as error:
        raise errors.Fatal(
            f"cannot make room for the socket {path}: {error.strerror}; is kubelet-dir right?"
        ) from error
    await _start(server)
    return server


def _make_room(path: Path) -> None:
    """Removes a dead socket from the path. Raises Fatal if a process answers there."""
    if is_alive(path):
        raise errors.Fatal(
            f"somebody serves {path} already: another claimd with the same driver name? "
            "Two can live side by side only with --pod-uid, which gives each its own sockets"
        )
    path.unlink(missing_ok=True)


def _bind(path: Path, add: Callable[[GrpcServer], None]) -> GrpcServer:
    """Returns a server that is bound to the socket and not started yet."""
    server = grpc.aio.server(options=OPTIONS)
    add(server)

    # With this umask only root can connect from the first moment, and not only after a chmod.
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise errors.Fatal(f"cannot listen on {path}: {error}") from error
    finally:
        os.umask(before)
    return server


async def _start(server: GrpcServer) -> None:
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A server cannot be stopped while it starts. A server that is never stopped may block the
        # garbage collector for ever.
        await starting
        await server.stop(None)
        raise


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keeps other instances from creating or removing sockets in the folder during the block.

    A process between bind and listen refuses connections as a dead one does. Without the lock
    another instance could take its socket for a dead one, or miss a socket that is bound a moment
    later. An instance that hangs with the lock delays others only by LOCK_PATIENCE.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_PATIENCE
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_POLL)
        yield
    finally:
        # This releases the lock, too.
        os.close(descriptor)


def sweep(folder: Path, ours: Callable[[str], bool]) -> None:
    """Removes the sockets in the folder on which no process answers and for which `ours` is True.

    `ours` decides by the name of the file.
    """
    with contextlib.suppress(OSError), _lock_folder(folder):
        for name in sorted(os.listdir(folder)):
            path = folder / name
            if ours(name) and path.is_socket() and not is_alive(path):
                log.info("removing the socket of a dead predecessor: %s", path)

                # A socket that stays does no harm, except for lines in the kubelet's log.
                with contextlib.suppress(OSError):
                    path.unlink()


def is_alive(path: Path) -> bool:
    """Returns True if a process listens on the socket, or if that is in doubt.

    Only a refused connection or a missing file counts as dead.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        result = probe.connect_ex(str(path))
    return result not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR)
