"""NodePrepareResources and NodeUnprepareResources, v1 and v1beta1.

Requests in, the driver's answers out. Work goes on when the kubelet gives up on a call: it will call again and find it done. No decision
is made here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast

import grpc.aio

from .. import log as logs
from .. import names
from ..prepare import driver
from ..prepared import PreparedClaim
from .wire.dra.v1 import api_pb2 as v1
from .wire.dra.v1 import api_pb2_grpc as v1_grpc
from .wire.dra.v1beta1 import api_pb2 as v1beta1
from .wire.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

# Newer first: kubelets take the first that they know.
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
# Seconds that a kubelet waits for an answer.
CALL_TIMEOUT = 45.0

T = TypeVar("T")


class Calls:
    """The calls under way, whichever version they came by."""

    def __init__(self, driver_: driver.Driver) -> None:
        self._driver = driver_
        self._tasks: set[asyncio.Task[Any]] = set()

    async def prepare(
        self, claims: Iterable[Any], context: Context
    ) -> dict[str, PreparedClaim | str]:
        """What the driver says to each claim, by uid: see Driver.prepare."""
        remaining = context.time_remaining()
        seconds = CALL_TIMEOUT if remaining is None else min(remaining, CALL_TIMEOUT)
        deadline = asyncio.get_running_loop().time() + seconds

        answers = await self._shielded("prepare", self._driver.prepare(_refs(claims), deadline))
        for uid, answer in answers.items():
            if isinstance(answer, str):
                log.warning("claim uid %s was not prepared: %s", uid, answer)
        return answers

    async def unprepare(self, claims: Iterable[Any]) -> dict[str, str | None]:
        """Likewise; None for a claim that is unprepared, else why it is not."""
        answers = await self._shielded("unprepare", self._driver.unprepare(_refs(claims)))
        for uid, error in answers.items():
            if error:
                log.warning("claim uid %s was not unprepared: %s", uid, error)
        return answers

    async def finish(self, timeout: float) -> None:
        """Lets the calls under way come to their end, for so many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def _shielded(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, which a kubelet that hangs up does not stop.

        Half of a prepare is worth nothing. The whole of it is the answer to the next call.
        """
        logs.begin()
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            log.warning(
                "the kubelet gave up on a %s call; "
                "the work goes on and the next call finds it done",
                name,
            )
            raise


class DRAPlugin(v1_grpc.DRAPluginServicer):
    """Serves every version: their messages differ only in share_id, which v1beta1 lacks."""

    def __init__(self, calls: Calls, messages: Any) -> None:
        self._calls = calls
        self._messages = messages
        self._has_share_id = "share_id" in messages.Device.DESCRIPTOR.fields_by_name

    async def NodePrepareResources(
        self, request: v1.NodePrepareResourcesRequest, context: Context
    ) -> v1.NodePrepareResourcesResponse:
        answers = await self._calls.prepare(request.claims, context)

        response: v1.NodePrepareResourcesResponse = self._messages.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
            else:
                self._add_devices(entry, uid, answer)
        return response

    async def NodeUnprepareResources(
        self, request: v1.NodeUnprepareResourcesRequest, context: Context
    ) -> v1.NodeUnprepareResourcesResponse:
        answers = await self._calls.unprepare(request.claims)

        response: v1.NodeUnprepareResourcesResponse
        response = self._messages.NodeUnprepareResourcesResponse()
        for uid, error in answers.items():
            response.claims[uid].error = error or ""
        return response

    def _add_devices(
        self, entry: v1.NodePrepareResourceResponse, uid: str, prepared: PreparedClaim
    ) -> None:
        for device in prepared.devices:
            cdi_ids = [names.cdi_id(uid, device.device, device.share_id)]
            if device.host_cdi:
                # The host's spec first, so that ours is applied last.
                cdi_ids.insert(0, device.host_cdi)
            added = entry.devices.add(
                request_names=device.requests,
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=cdi_ids,
            )
            if device.share_id and self._has_share_id:
                added.share_id = device.share_id


def add_to(server: grpc.aio.Server, calls: Calls) -> None:
    v1_grpc.add_DRAPluginServicer_to_server(DRAPlugin(calls, v1), server)
    v1beta1_grpc.add_DRAPluginServicer_to_server(cast("Any", DRAPlugin(calls, v1beta1)), server)


def _refs(claims: Iterable[Any]) -> list[driver.ClaimRef]:
    return [driver.ClaimRef(claim.namespace, claim.name, claim.uid) for claim in claims]
