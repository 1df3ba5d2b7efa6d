"""The kubelet's calls NodePrepareResources and NodeUnprepareResources. Checks the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc

from .plugins import Plugin

_BY_VERSION: dict[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (v1, v1_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (v1beta1, v1beta1_grpc.DRAPluginStub),
}


class CallError(Exception):
    """The driver has not completed its task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """A claim as a driver receives it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device as a driver answered it, unchecked as in a real kubelet.

    The fields have these names in the kubelet's checkpoint.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()  # empty if it belongs to every request
    cdi: tuple[str, ...] = ()  # qualified names
    share: str = ""  # the share id


async def prepare(
    plugin: Plugin, claims: Sequence[ClaimRef], timeout: float
) -> tuple[dict[str, list[PreparedDevice]], str]:
    """Returns the prepared devices by the claim's uid, and the fault in the rest of the answer.

    Raises CallError if there is no answer at all.
    """
    messages, _ = _BY_VERSION[plugin.version]
    request = messages.NodePrepareResourcesRequest(
        claims=[_claim(messages, claim) for claim in claims]
    )
    answers, problem = await _call(plugin, "NodePrepareResources", request, claims, timeout)
    prepared = {uid: _devices(answer) for uid, answer in answers.items()}
    return prepared, problem


async def unprepare(plugin: Plugin, claims: Sequence[ClaimRef], timeout: float) -> None:
    """Unprepares the claims. Raises CallError unless the driver has succeeded for all of them."""
    messages, _ = _BY_VERSION[plugin.version]
    request = messages.NodeUnprepareResourcesRequest(
        claims=[_claim(messages, claim) for claim in claims]
    )
    _, problem = await _call(plugin, "NodeUnprepareResources", request, claims, timeout)
    if problem:
        raise CallError(problem)


async def _call(
    plugin: Plugin, method: str, request: Any, claims: Sequence[ClaimRef], timeout: float
) -> tuple[dict[str, Any], str]:
    """Returns the good answers by the claim's uid up to the first bad one, and the fault of that
    one.
    """
    _, stub = _BY_VERSION[plugin.version]
    try:
        response = await getattr(stub(plugin.channel), method)(request, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise CallError(
            f"{method}: {plugin.driver}: {error.code().name}: {error.details()}"
        ) from error
    except asyncio.CancelledError as error:
        # gRPC also raises this when the channel is closed, because the driver has gone away.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CallError(
            f"{method}: {plugin.driver}: CANCELLED: the connection was closed"
        ) from error

    requested = {claim.uid: claim for claim in claims}
    good: dict[str, Any] = {}
    for uid, answer in response.claims.items():
        if uid not in requested:
            problem = f"answered for a claim that was not asked for: {uid}"
            return good, f"{method} of {plugin.driver} {problem}"
        if answer.error:
            name = requested[uid].name
            problem = f"failed for ResourceClaim {name}: {plugin.driver}: {answer.error}"
            return good, f"{method} {problem}"
        good[uid] = answer

    missing = len(requested) - len(response.claims)
    if missing:
        return good, f"{method} of {plugin.driver} skipped {missing} ResourceClaims"
    return good, ""


def _claim(messages: Any, claim: ClaimRef) -> Any:
    return messages.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _devices(answer: Any) -> list[PreparedDevice]:
    return [
        PreparedDevice(
            pool=device.pool_name,
            device=device.device_name,
            requests=tuple(device.request_names),
            cdi=tuple(device.cdi_device_ids),
            share=getattr(device, "share_id", ""),  # v1beta1 does not have it
        )
        for device in answer.devices
    ]
