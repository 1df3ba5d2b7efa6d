"""Registration: tells the kubelet the plugin's name and services, and learns if it is accepted.

The caller decides which services to advertise, and what follows from a registration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio

from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Registration(api_pb2_grpc.RegistrationServicer):
    """The service that the kubelet calls to register the plugin.

    The kubelet first asks for the plugin's name and services, then reports whether it has
    registered the plugin. It does so at its own start and whenever the plugin's socket appears.
    `last_seen` says how far the registration has come, for messages about a kubelet that does not
    register the plugin. It is empty after a registration.
    """

    def __init__(
        self,
        driver: str,
        endpoint: Path,
        services: tuple[str, ...],
        on_registered: Callable[[], None],
    ) -> None:
        self._info = api_pb2.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=services
        )
        self._on_registered = on_registered
        self.last_seen = "the kubelet has not asked yet"

    async def GetInfo(self, request: api_pb2.InfoRequest, context: Context) -> api_pb2.PluginInfo:
        self.last_seen = "the kubelet asked who we are, but did not say what became of it"
        return self._info

    async def NotifyRegistrationStatus(
        self, request: api_pb2.RegistrationStatus, context: Context
    ) -> api_pb2.RegistrationStatusResponse:
        if request.plugin_registered:
            log.info("registered with the kubelet as %s", self._info.name)
            self.last_seen = ""
            self._on_registered()
        else:
            self.last_seen = f"the kubelet refused us: {request.error}"
            log.error(
                "the kubelet refused to register us: %s (we offered %s at %s); it will try again",
                request.error,
                ", ".join(self._info.supported_versions),
                self._info.endpoint,
            )
        return api_pb2.RegistrationStatusResponse()


def add_to(server: grpc.aio.Server, servicer: Registration) -> None:
    """Adds the service to the server."""
    api_pb2_grpc.add_RegistrationServicer_to_server(servicer, server)
