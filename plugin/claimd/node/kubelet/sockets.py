"""The two sockets that the kubelet uses: the DRA socket, and the one for registration.

The kubelet requires the order in which they are opened and closed. `calls` and `streams` answer the
requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from claimd.common import names, pacing

from ..config import Config
from ..folder_watch import FolderWatch
from ..prepare import calls
from . import dra, health, registration, self_check, server

log = logging.getLogger(__name__)

# Seconds after which we say that the kubelet should have registered us.
REGISTRATION_PATIENCE = 30.0

# Seconds in which ready answers are still sent after we are told to stop.
DRAIN = 0.5


class KubeletSockets:
    """Serves the kubelet inside the block of `open`. `registered` is set after a registration."""

    def __init__(
        self,
        config: Config,
        calls_: calls.Calls,
        streams: health.Streams,
        on_registered: Callable[[], None],
    ) -> None:
        """Takes `on_registered`, which is called each time the kubelet registers us, also after its
        restart.
        """
        self.registered = asyncio.Event()
        self._config = config
        self._calls = calls_
        self._streams = streams
        self._on_registered = on_registered
        self._dra_path, self._registration_path = socket_paths(config)
        self._registrar = registration.Registration(
            config.driver_name,
            self._dra_path,
            (*dra.SERVICES, *health.SERVICES),
            self._note_registered,
        )
        self._sockets: tuple[server.Socket, ...] = ()

        # Says whether both sockets answer.
        self.check = self_check.SelfCheck((self._dra_path, self._registration_path))
        self._watch = FolderWatch(
            (self._dra_path.parent, self._registration_path.parent), self._mend
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Opens both sockets for the duration of the block.

        At the end, running calls are answered within the grace period of the settings. Raises Fatal
        if a path cannot be used.
        """
        self._sweep()
        dra_socket = server.Socket(
            self._dra_path, self._add_services, self._config.stop_grace + DRAIN
        )
        registration_socket = server.Socket(
            self._registration_path,
            lambda grpc_server: registration.add_to(grpc_server, self._registrar),
            DRAIN,
        )

        # The kubelet may call as soon as it sees the registration socket. So this socket is opened
        # last, and closed first.
        async with dra_socket, registration_socket:
            self._sockets = (dra_socket, registration_socket)
            yield
            self._streams.close()

            # From now on new calls are refused, so that the kubelet asks another instance. Running
            # calls are answered: a kubelet whose connection breaks tries again only after a minute.
            finishing = asyncio.create_task(self._calls.finish(self._config.stop_grace))
        await finishing

    async def watch(self) -> None:
        """Opens a socket again whenever somebody removes it. Runs until cancelled."""
        await self._watch.run()

    async def await_registration(self) -> None:
        """Waits until the kubelet has registered us, and warns from time to time."""
        while not self.registered.is_set():
            if not await pacing.wait(self.registered, REGISTRATION_PATIENCE):
                log.warning(
                    "not registered after %.0f s: %s; is %s the registry folder of a running "
                    "kubelet, under the same path as on the host?",
                    REGISTRATION_PATIENCE,
                    self._registrar.last_seen,
                    names.registry_folder(self._config.kubelet_dir),
                )

    def _note_registered(self) -> None:
        self.registered.set()
        self._on_registered()

    def _add_services(self, grpc_server: server.GrpcServer) -> None:
        dra.add_to(grpc_server, self._calls)
        health.add_to(grpc_server, self._streams)

    def _sweep(self) -> None:
        """Removes the sockets of dead predecessors from both folders."""
        driver = self._config.driver_name
        server.sweep(self._dra_path.parent, names.is_dra_socket)
        server.sweep(
            self._registration_path.parent,
            lambda name: names.is_registration_socket(name, driver),
        )

    async def _mend(self) -> bool:
        """Returns True if both sockets are there; the kubelet finds us by their paths."""
        mended = [await socket.mend() for socket in self._sockets]
        return all(mended)


def socket_paths(config: Config) -> tuple[Path, Path]:
    """Returns the paths of the DRA socket and of the registration socket.

    Raises UsageError if a path is too long for a socket.
    """
    place = config.kubelet_dir, config.driver_name, config.pod_uid
    return names.dra_socket(*place), names.registration_socket(*place)
