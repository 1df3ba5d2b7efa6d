"""gRPC servers on unix sockets that others may have left behind or still hold.

A socket of a dead predecessor is swept away; one that somebody answers on is never stolen; one of
ours that somebody takes away is made anew. What is served is decided by the callers.
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

# For those that may not import grpc.
GrpcServer = grpc.aio.Server

# Seconds for calls under way when a socket has to be made anew: meanwhile nobody else finds us.
MEND_DRAIN = 0.5
# Seconds for another instance that makes or removes sockets, which takes it a millisecond.
LOCK_PATIENCE, LOCK_POLL = 1.0, 0.001
# Calls under way at most on one connection, the streams of health among them. Further ones wait at
# the client, which hears of that from gRPC: a row of thousands does not stand before the calls of
# another connection.
MOST_CALLS_A_CONNECTION = 512
# Calls that have arrived and that our loop has not taken up yet. Past its limit gRPC cancels calls
# by chance, the kubelet's among them; with this one, calls are refused by us, with a reason.
MOST_ARRIVED = 1 << 20
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", MOST_CALLS_A_CONNECTION),
    # With it, a client whose calls wait has most of them refused, and reads no reason.
    ("grpc.http.overload_protection", 0),
    ("grpc.server.max_pending_requests", MOST_ARRIVED),
    ("grpc.server.max_pending_requests_hard_limit", MOST_ARRIVED),
)


class Socket:
    """A server on a path, used as a context: it serves and may be mended until the end of that."""

    def __init__(self, path: Path, add: Callable[[GrpcServer], None], drain: float) -> None:
        """`drain` is how many seconds the calls under way have at the end."""
        self._path, self._add, self._drain = path, add, drain
        self._server: GrpcServer | None = None
        self._file: tuple[int, int] | None = None  # what we have made at the path
        self._logged = ""  # the last reason why there is no server
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
        """Listens anew if the socket is gone from its path; whether we listen there.

        Whoever is connected was served all the same, but nobody else would find us. May be called
        at any time; what cannot be mended now is logged once, and tried again by the next call.
        """
        async with self._changing:
            if not self._closed:
                await self._mend()
        return self._server is not None

    async def _mend(self) -> None:
        if self._server is not None:
            if self._file == _identity(self._path):
                return
            log.warning("the socket %s was taken away by somebody; it is made anew", self._path)
            # First, since its end takes away whatever is at the path.
            await self._close()

        try:
            await self._open()
        except errors.Fatal as fatal:
            # At the start this ends the program. By now pods depend on us.
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
    """What is another when somebody has put something else there."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def listen(path: Path, add: Callable[[GrpcServer], None]) -> GrpcServer:
    """A started server, with what `add` adds to it.

    The socket may be dialled from the moment it exists, so what the services need must be there
    before. Fatal if somebody serves there already or the path cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(path.parent):
            _make_room(path)
            server = _bound(path, add)
    except OSError as error:
        raise errors.Fatal(
            f"cannot make room for the socket {path}: {error.strerror}; is kubelet-dir right?"
        ) from error
    await _start(server)
    return server


def _make_room(path: Path) -> None:
    """Fatal if somebody serves there."""
    if is_alive(path):
        raise errors.Fatal(
            f"somebody serves {path} already: another claimd with the same driver name? "
            "Two can live side by side only with --pod-uid, which gives each its own sockets"
        )
    path.unlink(missing_ok=True)


def _bound(path: Path, add: Callable[[GrpcServer], None]) -> GrpcServer:
    """A server that is to be started, with its socket."""
    server = grpc.aio.server(options=OPTIONS)
    add(server)
    # The socket is root's alone from its first moment, not only after a chmod.
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
        # One that is half started cannot be stopped, and one that is not stopped may hold up the
        # garbage collector for ever.
        await starting
        await server.stop(None)
        raise


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other instance makes or removes a socket in the folder meanwhile.

    One that is between bind and listen refuses callers as the dead do, and one that looks before
    another has bound sees nobody there. Who stands still with the lock holds nobody up for long.
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
        os.close(descriptor)


def sweep(folder: Path, ours: Callable[[str], bool]) -> None:
    """Removes the sockets in the folder that are ours by name and that nobody answers on."""
    with contextlib.suppress(OSError), _alone_in(folder):
        for name in sorted(os.listdir(folder)):
            path = folder / name
            if ours(name) and path.is_socket() and not is_alive(path):
                log.info("removing the socket of a dead predecessor: %s", path)
                # One that stays harms nobody but the kubelet's log.
                with contextlib.suppress(OSError):
                    path.unlink()


def is_alive(path: Path) -> bool:
    """Whether somebody listens.

    Only a plain refusal or absence counts as no: a doubt leaves the socket alone.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        result = probe.connect_ex(str(path))
    return result not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR)
