"""Asks the kubelet which pods it has and which claims their containers were given.

The service is v1.PodResourcesLister. What follows from the answer, or from having none, is decided
by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

if TYPE_CHECKING:
    from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2

# Bytes of an answer, as kubelets allow it.
LARGEST = 16 << 20
TIMEOUT = 3.0

# A pod, as namespace and name, to its claims, each with the CDI ids that its containers were given.
Pods = dict[tuple[str, str], dict[str, frozenset[str]]]

# A claim, as namespace and name, to the pods and containers that use it, each with the CDI ids that
# the kubelet names for it.
Users = dict[tuple[str, str], dict[str, dict[str, frozenset[str]]]]


async def pods(socket: Path) -> Pods:
    """All pods of the node; ConnectionError if the kubelet cannot be asked.

    Kubelets before 1.34 name no claims. Init containers that have ended are not among them.
    """
    found = await _list(socket)
    return {(pod.namespace, pod.name): _claims(pod) for pod in found}


async def users(socket: Path) -> Users:
    """Which pods and containers use which claim; ConnectionError as above.

    Kubelets up to 1.37 name all devices of the claim, also for a container that uses one of its
    requests alone.
    """
    found: Users = {}
    for pod in await _list(socket):
        for container in pod.containers:
            for resource in container.dynamic_resources:
                pods = found.setdefault((pod.namespace, resource.claim_name), {})
                containers = pods.setdefault(pod.name, {})
                # A container that uses two requests may be named twice.
                before = containers.get(container.name, frozenset())
                containers[container.name] = before | _ids(resource)
    return found


async def _list(socket: Path) -> Sequence[api_pb2.PodResources]:
    # Loaded when first needed: a node without claims never asks.
    from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc

    # A pool of its own: in the common one the failure of an earlier call would stand for a while.
    options = [
        ("grpc.max_receive_message_length", LARGEST),
        ("grpc.use_local_subchannel_pool", True),
    ]
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            stub = api_pb2_grpc.PodResourcesListerStub(channel)
            response = await stub.List(api_pb2.ListPodResourcesRequest(), timeout=TIMEOUT)
    except grpc.aio.AioRpcError as error:
        raise ConnectionError(f"{socket}: {error.code().name}: {error.details()}") from error
    return response.pod_resources


def _claims(pod: api_pb2.PodResources) -> dict[str, frozenset[str]]:
    """A claim that several containers use has the ids of all of them."""
    claims: dict[str, frozenset[str]] = {}
    for container in pod.containers:
        for resource in container.dynamic_resources:
            before = claims.get(resource.claim_name, frozenset())
            claims[resource.claim_name] = before | _ids(resource)
    return claims


def _ids(resource: api_pb2.DynamicResource) -> frozenset[str]:
    ids: set[str] = set()
    for claim in resource.claim_resources:
        ids.update(device.name for device in claim.cdi_devices)
    return frozenset(ids)
