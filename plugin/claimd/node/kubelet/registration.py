"""Registration: tells the kubelet who we are, and learns what the kubelet made of it.

Advertises exactly what is served. What follows from being registered is up to the caller.
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
    """The kubelet asks who we are, then says whether it has registered us.

    It does so whenever it starts, and whenever our socket appears. `last_seen` says how far that
    has come, for the message to whoever waits in vain; it is empty once we are registered.
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
                "the kubelet refused to register us: %s (we offered %s at %s); "
                "it tries again by itself",
                request.error,
                ", ".join(self._info.supported_versions),
                self._info.endpoint,
            )
        return api_pb2.RegistrationStatusResponse()


def add_to(server: grpc.aio.Server, servicer: Registration) -> None:
    api_pb2_grpc.add_RegistrationServicer_to_server(servicer, server)
