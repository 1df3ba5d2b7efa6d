"""The kubelets' part in work: claims are prepared and unprepared at a pace, on one node after the
other, and each call's time is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2, api_pb2_grpc
from tests.bench.api import Object
from tests.bench.errors import BenchError

CALL = 60.0  # seconds
PATIENCE, AGAIN = 90.0, 2.0  # seconds until a claim has failed, and until it is tried again


@dataclass(frozen=True, kw_only=True)
class Work:
    """A claim, and the node that it is allocated on."""

    node: str
    claim: Object

    @property
    def name(self) -> str:
        return str(self.claim["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.claim["metadata"]["uid"])


@dataclass(kw_only=True)
class Kubelets:
    """`socket` says where a node's driver serves."""

    socket: Callable[[str], Path]
    prepared: dict[str, float] = field(default_factory=dict)  # by claim, seconds since 1970
    took: list[float] = field(default_factory=list)  # seconds of each prepare
    refused: int = 0  # calls that were answered with an error
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)

    async def work(self, claims: Sequence[Work], rate: float, held: float) -> None:
        """All claims, so many a second begun, whether or not those before are done. Each is
        unprepared when it was held for so many seconds. A BenchError if one is refused for too long.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        failed: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for number, work_ in enumerate(claims):
                    await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
                    group.create_task(self._turn(work_, held))
        except* (BenchError, grpc.RpcError) as several:
            failed = several.exceptions[0]
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
        if failed is not None:
            raise BenchError(f"claims: {failed}")

    async def _turn(self, work_: Work, held: float) -> None:
        began = time.monotonic()
        await self._until_done(self._prepare, work_)
        self.took.append(time.monotonic() - began)
        self.prepared[work_.name] = time.time()
        await asyncio.sleep(held)
        await self._until_done(self._unprepare, work_)

    async def _until_done(self, call: Callable[[Work], Awaitable[str]], work_: Work) -> None:
        """Tries again as the kubelet does, which counts."""
        end = time.monotonic() + PATIENCE
        while error := await call(work_):
            if time.monotonic() > end:
                raise BenchError(f"{work_.node}: {error}")
            self.refused += 1
            await asyncio.sleep(AGAIN)

    async def _prepare(self, work_: Work) -> str:
        request = api_pb2.NodePrepareResourcesRequest(claims=[_reference(work_)])
        answer = await self._stub(work_).NodePrepareResources(request, timeout=CALL)
        return str(answer.claims[work_.uid].error)

    async def _unprepare(self, work_: Work) -> str:
        request = api_pb2.NodeUnprepareResourcesRequest(claims=[_reference(work_)])
        answer = await self._stub(work_).NodeUnprepareResources(request, timeout=CALL)
        return str(answer.claims[work_.uid].error)

    def _stub(self, work_: Work) -> api_pb2_grpc.DRAPluginStub:
        channel = self._channels.get(work_.node)
        if channel is None:
            channel = grpc.aio.insecure_channel(f"unix:{self.socket(work_.node)}")
            self._channels[work_.node] = channel
        return api_pb2_grpc.DRAPluginStub(channel)


def _reference(work_: Work) -> api_pb2.Claim:
    meta = work_.claim["metadata"]
    return api_pb2.Claim(namespace=meta["namespace"], name=meta["name"], uid=work_.uid)
