"""Asks the kubelet which pods it runs, and which claims their containers use.

The service is v1.PodResourcesLister. The caller decides what to do with the answer, or without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

if TYPE_CHECKING:
    from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2

# Bytes that an answer may have. The kubelet sets the same limit for its own clients.
LARGEST = 16 << 20

# Seconds to wait for the kubelet.
TIMEOUT = 3.0

# Maps a pod, by namespace and name, to its claims, and each claim to the CDI ids of the pod's
# containers.
Pods = dict[tuple[str, str], dict[str, frozenset[str]]]

# Maps a claim, by namespace and name, to the pods that use it, each pod to its containers, and each
# container to the CDI ids that the kubelet lists for it.
Users = dict[tuple[str, str], dict[str, dict[str, frozenset[str]]]]


async def pods(socket: Path) -> Pods:
    """Returns all pods of the node. Raises ConnectionError if the kubelet cannot be asked.

    Kubelets before 1.34 list no claims. Init containers that have ended are not listed.
    """
    listed = await _list(socket)
    return {(pod.namespace, pod.name): _claims(pod) for pod in listed}


async def users(socket: Path) -> Users:
    """Returns the users of each claim. Raises ConnectionError if the kubelet cannot be asked.

    Kubelets up to 1.37 list all devices of a claim for each of its containers, even for a container
    that names only one of the claim's requests.
    """
    users: Users = {}
    for pod in await _list(socket):
        for container in pod.containers:
            for resource in container.dynamic_resources:
                pods = users.setdefault((pod.namespace, resource.claim_name), {})
                containers = pods.setdefault(pod.name, {})

                # A container that uses two requests may be listed twice.
                before = containers.get(container.name, frozenset())
                containers[container.name] = before | _ids(resource)
    return users


async def _list(socket: Path) -> Sequence[api_pb2.PodResources]:
    # These modules are loaded at the first call, since a node without claims never calls this.
    from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc

    # This uses its own pool of connections. In gRPC's shared pool, a failed call would make later
    # ones fail for a while.
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
    """Returns the claims of a pod. A claim of several containers has the ids of all of them."""
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
