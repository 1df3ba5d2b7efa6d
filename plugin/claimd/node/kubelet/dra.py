"""NodePrepareResources and NodeUnprepareResources, in the versions v1 and v1beta1.

Translates between the kubelet's messages and the calls of `prepare.calls`, and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import grpc.aio

from claimd.common import log as logs
from claimd.common import names, pacing
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc

from ..prepare import calls
from ..prepare.call_time import CallTime
from ..prepared import ClaimRef, PreparedClaim

Context = grpc.aio.ServicerContext[Any, Any]

# Newest first: a kubelet takes the first one that it knows.
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


class DRAPlugin(v1_grpc.DRAPluginServicer):
    """Serves one version of the API. The versions differ only in share_id, which v1beta1 lacks."""

    def __init__(self, calls_: calls.Calls, messages: Any) -> None:
        self._calls = calls_
        self._messages = messages
        self._has_share_id = "share_id" in messages.Device.DESCRIPTOR.fields_by_name

    async def NodePrepareResources(
        self, request: v1.NodePrepareResourcesRequest, context: Context
    ) -> v1.NodePrepareResourcesResponse:
        self._begin(context)
        refs = await _read_refs(request.claims)
        outcomes = await self._calls.answer("prepare", refs, _call_time(context))

        response: v1.NodePrepareResourcesResponse = self._messages.NodePrepareResourcesResponse()
        for number, (uid, outcome) in enumerate(outcomes.items(), 1):
            entry = response.claims[uid]
            if outcome.prepared is not None:
                self._add_devices(entry, outcome.prepared)
            else:
                entry.error = outcome.error
            await pacing.give_way(number)
        return response

    async def NodeUnprepareResources(
        self, request: v1.NodeUnprepareResourcesRequest, context: Context
    ) -> v1.NodeUnprepareResourcesResponse:
        self._begin(context)
        refs = await _read_refs(request.claims)
        outcomes = await self._calls.answer("unprepare", refs, _call_time(context))

        response: v1.NodeUnprepareResourcesResponse
        response = self._messages.NodeUnprepareResourcesResponse()
        for number, (uid, outcome) in enumerate(outcomes.items(), 1):
            response.claims[uid].error = outcome.error
            await pacing.give_way(number)
        return response

    def _begin(self, context: Context) -> None:
        """Starts an operation: all log lines and reports of the call carry its id."""
        operation = logs.begin()

        # The reports of the call wait until the kubelet has its answer. The stubs of grpc give the
        # callback a type that no function has.
        context.add_done_callback(cast("Any", lambda _: self._calls.on_answered(operation)))

    def _add_devices(self, entry: v1.NodePrepareResourceResponse, prepared: PreparedClaim) -> None:
        for device in prepared.devices:
            cdi_ids = [names.cdi_id(prepared.uid, device.device, device.share_id)]
            if device.host_cdi:
                # The host's spec comes first, so that ours is applied last.
                cdi_ids.insert(0, device.host_cdi)
            added = entry.devices.add(
                request_names=device.requests,
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=cdi_ids,
            )
            if device.share_id and self._has_share_id:
                added.share_id = device.share_id


def add_to(server: grpc.aio.Server, calls_: calls.Calls) -> None:
    """Adds the service to the server, in every version."""
    v1_grpc.add_DRAPluginServicer_to_server(DRAPlugin(calls_, v1), server)
    v1beta1_grpc.add_DRAPluginServicer_to_server(cast("Any", DRAPlugin(calls_, v1beta1)), server)


async def _read_refs(claims: Iterable[Any]) -> list[ClaimRef]:
    refs = []
    for number, claim in enumerate(claims, 1):
        refs.append(ClaimRef(claim.namespace, claim.name, claim.uid))
        await pacing.give_way(number)
    return refs


def _call_time(context: Context) -> CallTime:
    return CallTime.starting_now(context.time_remaining())
