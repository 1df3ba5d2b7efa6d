"""The service v1.PodResourcesLister: lists the devices of each container, as a real kubelet does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc

from .claim_info import DeviceUse

Uses = Callable[[Document, Document], Iterable[DeviceUse]]  # takes a pod and its container


class PodResources(api_pb2_grpc.PodResourcesListerServicer):
    """Answers List from the claims' info."""

    def __init__(self, active_pods: Callable[[], Sequence[Document]], uses: Uses) -> None:
        """Creates the lister; `active_pods` returns the pods that have not ended."""
        self._active_pods, self._uses = active_pods, uses

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: Any
    ) -> api_pb2.ListPodResourcesResponse:
        response = api_pb2.ListPodResourcesResponse()
        for pod in self._active_pods():
            metadata = pod["metadata"]
            entry = response.pod_resources.add(
                name=metadata["name"], namespace=metadata["namespace"]
            )
            for container in _lasting_containers(pod):
                self._add_claims(entry.containers.add(name=container["name"]), pod, container)
        return response

    def _add_claims(self, entry: Any, pod: Document, container: Document) -> None:
        by_claim: dict[str, Any] = {}
        for use in self._uses(pod, container):
            if use.claim.uid not in by_claim:
                by_claim[use.claim.uid] = entry.dynamic_resources.add(
                    claim_name=use.claim.name, claim_namespace=use.claim.namespace
                )
            resource = by_claim[use.claim.uid].claim_resources.add(
                driver_name=use.driver,
                pool_name=use.prepared.pool,
                device_name=use.prepared.device,
            )
            for name in use.prepared.cdi:
                resource.cdi_devices.add(name=name)


def _lasting_containers(pod: Document) -> Iterable[Document]:
    """Yields sidecars and main containers; the service does not list other init containers."""
    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield container
    yield from pod["spec"]["containers"]


async def serve(path: Path, lister: PodResources) -> grpc.aio.Server:
    """Returns a started server, and replaces a socket that an earlier kubelet has left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(lister, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server
