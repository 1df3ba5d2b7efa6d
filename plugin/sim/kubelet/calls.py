"""NodePrepareResources and NodeUnprepareResources as the kubelet calls them, and what it checks in
the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio

from ...kubelet.wire.dra.v1 import api_pb2 as v1
from ...kubelet.wire.dra.v1 import api_pb2_grpc as v1_grpc
from ...kubelet.wire.dra.v1beta1 import api_pb2 as v1beta1
from ...kubelet.wire.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from .plugins import Instance

_BY_VERSION: dict[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (v1, v1_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (v1beta1, v1beta1_grpc.DRAPluginStub),
}


class CallError(Exception):
    """The driver did not do what it was asked for, or not all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A claim as a driver hears of it."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One device as a driver answered. Nothing of it is checked: a kubelet does not either."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()  # none: for whoever uses the claim
    cdi: tuple[str, ...] = ()
    share: str = ""


async def prepare(
    instance: Instance, claims: Sequence[Ref], timeout: float
) -> tuple[dict[str, list[Given]], str]:
    """By claim the devices, as far as the answer is good; and what is wrong with the rest of it."""
    messages, _ = _BY_VERSION[instance.version]
    request = messages.NodePrepareResourcesRequest(
        claims=[_claim(messages, claim) for claim in claims]
    )
    answers, trouble = await _ask(instance, "NodePrepareResources", request, claims, timeout)
    return {
        uid: [
            Given(
                pool=device.pool_name,
                device=device.device_name,
                requests=tuple(device.request_names),
                cdi=tuple(device.cdi_device_ids),
                share=getattr(device, "share_id", ""),
            )
            for device in answer.devices
        ]
        for uid, answer in answers.items()
    }, trouble


async def unprepare(instance: Instance, claims: Sequence[Ref], timeout: float) -> None:
    messages, _ = _BY_VERSION[instance.version]
    request = messages.NodeUnprepareResourcesRequest(
        claims=[_claim(messages, claim) for claim in claims]
    )
    _, trouble = await _ask(instance, "NodeUnprepareResources", request, claims, timeout)
    if trouble:
        raise CallError(trouble)


async def _ask(
    instance: Instance, method: str, request: Any, claims: Sequence[Ref], timeout: float
) -> tuple[dict[str, Any], str]:
    _, stub = _BY_VERSION[instance.version]
    try:
        response = await getattr(stub(instance.channel), method)(request, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise CallError(
            f"{method}: {instance.driver}: {error.code().name}: {error.details()}"
        ) from error
    asked = {claim.uid: claim for claim in claims}
    good: dict[str, Any] = {}
    for uid, answer in response.claims.items():
        if uid not in asked:
            return (
                good,
                f"{method} of {instance.driver} answered for a claim that was not asked for: {uid}",
            )
        if answer.error:
            claim = asked[uid]
            return (
                good,
                f"{method} failed for ResourceClaim {claim.name}: {instance.driver}: {answer.error}",
            )
        good[uid] = answer
    missing = len(asked) - len(response.claims)
    return (
        good,
        f"{method} of {instance.driver} skipped {missing} ResourceClaims" if missing else "",
    )


def _claim(messages: Any, claim: Ref) -> Any:
    return messages.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)
