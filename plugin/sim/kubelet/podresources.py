"""Tells whoever asks on the node what its pods were given (service v1.PodResourcesLister), as a
kubelet does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from ...api.document import Document
from ...kubelet.wire.podresources.v1 import api_pb2, api_pb2_grpc
from .claims import Use

Uses = Callable[[Document, Document], Iterable[Use]]  # of a pod's container


class PodResources(api_pb2_grpc.PodResourcesListerServicer):
    """`pods` are those that have not ended."""

    def __init__(self, pods: Callable[[], Sequence[Document]], uses: Uses) -> None:
        self._pods, self._uses = pods, uses

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: Any
    ) -> api_pb2.ListPodResourcesResponse:
        answer = api_pb2.ListPodResourcesResponse()
        for pod in self._pods():
            row = answer.pod_resources.add(
                name=pod["metadata"]["name"], namespace=pod["metadata"]["namespace"]
            )
            beside = (
                c
                for c in pod["spec"].get("initContainers") or ()
                if c.get("restartPolicy") == "Always"
            )
            for container in (*beside, *pod["spec"]["containers"]):
                told = row.containers.add(name=container["name"])
                claims: dict[str, Any] = {}
                for use in self._uses(pod, container):
                    if use.ref.uid not in claims:
                        claims[use.ref.uid] = told.dynamic_resources.add(
                            claim_name=use.ref.name, claim_namespace=use.ref.namespace
                        )
                    given = claims[use.ref.uid].claim_resources.add(
                        driver_name=use.driver,
                        pool_name=use.given.pool,
                        device_name=use.given.device,
                    )
                    for id_ in use.given.cdi:
                        given.cdi_devices.add(name=id_)
        return answer


async def serve(path: Path, lister: PodResources) -> grpc.aio.Server:
    """A started server. What an earlier kubelet has left at the path is swept away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(lister, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server
