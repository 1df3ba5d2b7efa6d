"""Asks the kubelet which pods it has and which claims their containers were given (service
v1.PodResourcesLister).

What follows from the answer, or from having none, is decided by the caller.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

if TYPE_CHECKING:
    from .wire.podresources.v1 import api_pb2

LARGEST = 16 << 20  # bytes of an answer, as kubelets allow it
PATIENCE = 3.0  # seconds


async def pods(socket: Path) -> dict[tuple[str, str], dict[str, frozenset[str]]]:
    """By pod, namespace and name: by claim the CDI ids that its containers were given.
    ConnectionError if the kubelet cannot be asked. Kubelets before 1.34 name no claims; init
    containers that have ended are not looked at.
    """
    # Loaded when first needed: a node without claims never asks.
    from .wire.podresources.v1 import api_pb2, api_pb2_grpc

    # A pool of its own: in the common one the failure of an earlier call would stand for a while.
    options = [("grpc.max_receive_message_length", LARGEST), ("grpc.use_local_subchannel_pool", 1)]
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            stub = api_pb2_grpc.PodResourcesListerStub(channel)
            answer = await stub.List(api_pb2.ListPodResourcesRequest(), timeout=PATIENCE)
    except grpc.aio.AioRpcError as error:
        raise ConnectionError(f"{socket}: {error.code().name}: {error.details()}") from error
    return {(pod.namespace, pod.name): _claims(pod) for pod in answer.pod_resources}


def _claims(pod: api_pb2.PodResources) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for container in pod.containers:
        for given in container.dynamic_resources:
            ids = {
                device.name for resource in given.claim_resources for device in resource.cdi_devices
            }
            found[given.claim_name] = found.get(given.claim_name, frozenset()) | ids
    return found
