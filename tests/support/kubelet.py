"""Plays the kubelet: finds a registration socket, registers the plugin, and calls it, as a real one
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc


class Kubelet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "plugins_registry").mkdir(parents=True, exist_ok=True)
        (folder / "plugins").mkdir(exist_ok=True)

    async def info(self, timeout: float = 50) -> tuple[Path, api_pb2.PluginInfo]:
        """Waits for the first registration socket that answers."""
        deadline = time.monotonic() + timeout
        while True:
            for path in sorted((self.folder / "plugins_registry").glob("*.sock")):
                with contextlib.suppress(grpc.RpcError):
                    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                        return path, await api_pb2_grpc.RegistrationStub(channel).GetInfo(
                            api_pb2.InfoRequest(), timeout=5
                        )
            assert time.monotonic() < deadline, "no plugin offered itself for registration"
            await asyncio.sleep(0.01)

    async def notify(self, path: Path, error: str = "") -> None:
        """Dials until somebody listens, as a kubelet does at the event of a socket's creation."""
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            status = api_pb2.RegistrationStatus(plugin_registered=not error, error=error)
            await api_pb2_grpc.RegistrationStub(channel).NotifyRegistrationStatus(
                status, timeout=20, wait_for_ready=True
            )

    async def register(self, timeout: float = 50) -> api_pb2.PluginInfo:
        path, info = await self.info(timeout)
        await self.notify(path)
        return info


class Caller:
    """Calls one plugin, in v1 by default."""

    def __init__(
        self, channel: grpc.aio.Channel, messages: Any = v1, services: Any = v1_grpc
    ) -> None:
        self._messages = messages
        self._stub = services.DRAPluginStub(channel)

    async def prepare(self, *claims: dict[str, Any], timeout: float = 45) -> Any:
        request = self._messages.NodePrepareResourcesRequest(
            claims=[self._ref(claim) for claim in claims]
        )
        return (await self._stub.NodePrepareResources(request, timeout=timeout)).claims

    async def unprepare(self, *claims: dict[str, Any], timeout: float = 45) -> Any:
        request = self._messages.NodeUnprepareResourcesRequest(
            claims=[self._ref(claim) for claim in claims]
        )
        return (await self._stub.NodeUnprepareResources(request, timeout=timeout)).claims

    def _ref(self, claim: dict[str, Any]) -> Any:
        meta = claim["metadata"]
        return self._messages.Claim(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


@contextlib.asynccontextmanager
async def calling(
    endpoint: str, messages: Any = v1, services: Any = v1_grpc
) -> AsyncIterator[Caller]:
    async with grpc.aio.insecure_channel(f"unix:{endpoint}") as channel:
        yield Caller(channel, messages, services)
