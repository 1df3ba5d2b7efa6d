"""gRPC servers on unix sockets that others may have left behind or still hold.

A socket of a dead predecessor is swept away; one that somebody answers on is never stolen; one of
ours that somebody takes away is made anew. What is served is decided by the callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self

import grpc.aio

from .. import errors

log = logging.getLogger(__name__)

# For those that may not import grpc.
GrpcServer = grpc.aio.Server

# Seconds for calls under way on a socket that somebody has taken away.
MEND_DRAIN = 0.5
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
    """A server on a path, used as a context: it serves and may be mended until the end of that.

    The path appears once it can be dialled: the kubelet dials what appears, and another instance
    removes what refuses.
    """

    def __init__(self, path: Path, add: Callable[[GrpcServer], None], drain: float) -> None:
        """`add` adds the services to a server; `drain` is how many seconds the calls under way have
        at the end.
        """
        self._path, self._add, self._drain = path, add, drain
        self._server: GrpcServer | None = None
        self._file: tuple[int, int] | None = None  # what we have made at the path
        self._logged = ""  # the last reason why we are not there
        self._changing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Fatal if somebody serves there already or the path cannot be used."""
        self._server = await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._changing:
            if self._is_there():
                self._path.unlink(missing_ok=True)
            if self._server is not None:
                server, self._server = self._server, None
                await server.stop(self._drain)

    async def mend(self) -> bool:
        """Listens anew if the socket is gone from its path; whether we listen there.

        Whoever is connected was served all the same, but nobody else would find us. May be called
        at any time; what cannot be mended now is logged once, and tried again by the next call.
        """
        async with self._changing:
            if self._server is not None and not self._is_there():
                await self._mend(self._server)
            return self._server is not None and self._is_there()

    async def _mend(self, lost: GrpcServer) -> None:
        try:
            self._server = await self._listen()
        except errors.Fatal as fatal:
            # At the start this ends the program. By now pods depend on us.
            if str(fatal) != self._logged:
                log.error("the socket %s is gone, trying again: %s", self._path, fatal)
            self._logged = str(fatal)
            return

        log.warning("the socket %s was taken away by somebody and has been made anew", self._path)
        self._logged = ""
        await lost.stop(MEND_DRAIN)

    async def _listen(self) -> GrpcServer:
        """A started server, at our path."""
        if is_alive(self._path):
            raise errors.Fatal(
                f"somebody serves {self._path} already: another claimd with the same driver name? "
                "Two can live side by side only with --pod-uid, which gives each its own sockets"
            )
        # A kubelet ignores such a name. What a death leaves there, our next start takes away.
        hidden = self._path.with_name(f".{self._path.stem}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            hidden.unlink(missing_ok=True)
        except OSError as error:
            raise errors.Fatal(
                f"cannot make room for the socket {self._path}: {error.strerror}; "
                "is kubelet-dir right?"
            ) from error

        server = grpc.aio.server(options=OPTIONS)
        try:
            self._add(server)
            _bind(server, hidden)
            await server.start()
            hidden.rename(self._path)
        except (OSError, RuntimeError) as error:
            await server.stop(None)
            raise errors.Fatal(f"cannot listen on {self._path}: {error}") from error
        except BaseException:
            await server.stop(None)
            raise

        self._file = _identity(self._path)
        return server

    def _is_there(self) -> bool:
        """Whether what is at the path is what we have made."""
        return self._file is not None and self._file == _identity(self._path)


def _bind(server: GrpcServer, path: Path) -> None:
    """The socket is root's alone from its first moment, not only after a chmod."""
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    finally:
        os.umask(before)


def _identity(path: Path) -> tuple[int, int] | None:
    """What is another when somebody has put something else there."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
