"""The kubelets' part in work: claims are prepared and unprepared at a pace, on one node after the
other, and each call's time is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from plugin.kubelet.wire.dra.v1 import api_pb2, api_pb2_grpc
from tests.bench.api import Object
from tests.bench.errors import BenchError

CALL = 60.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """A claim, and the node that it is allocated on."""

    node: str
    claim: Object

    @property
    def name(self) -> str:
        return str(self.claim["metadata"]["name"])


@dataclass(kw_only=True)
class Kubelets:
    """`socket` says where a node's driver serves."""

    socket: Callable[[str], Path]
    prepared: dict[str, float] = field(default_factory=dict)  # by claim, seconds since 1970
    took: list[float] = field(default_factory=list)  # seconds of each prepare
    unprepared: int = 0
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)

    async def work(self, claims: Sequence[Work], rate: float, held: float) -> None:
        """All claims, so many a second begun, whether or not those before are done. Each is
        unprepared when it was held for so many seconds.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(claims):
                await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
                group.create_task(self._turn(one, held))
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _turn(self, one: Work, held: float) -> None:
        channel = self._channels.get(one.node)
        if channel is None:
            channel = grpc.aio.insecure_channel(f"unix:{self.socket(one.node)}")
            self._channels[one.node] = channel
        stub = api_pb2_grpc.DRAPluginStub(channel)
        meta = one.claim["metadata"]
        claim = api_pb2.Claim(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])

        began = time.monotonic()
        answer = await stub.NodePrepareResources(
            api_pb2.NodePrepareResourcesRequest(claims=[claim]), timeout=CALL
        )
        self.took.append(time.monotonic() - began)
        if answer.claims[meta["uid"]].error:
            raise BenchError(f"{one.node}: {answer.claims[meta['uid']].error}")
        self.prepared[one.name] = time.time()

        await asyncio.sleep(held)
        gone = await stub.NodeUnprepareResources(
            api_pb2.NodeUnprepareResourcesRequest(claims=[claim]), timeout=CALL
        )
        if gone.claims[meta["uid"]].error:
            raise BenchError(f"{one.node}: {gone.claims[meta['uid']].error}")
        self.unprepared += 1
