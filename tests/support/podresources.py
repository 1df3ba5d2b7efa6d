"""Plays the kubelet that is asked what its pods were given: its podresources service on a unix
socket.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc.aio

from claimd.kubernetes.kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from tests.support import sockets


class PodResources(api_pb2_grpc.PodResourcesListerServicer):
    def __init__(self) -> None:
        self.pods: dict[
            str, dict[str, list[str]]
        ] = {}  # by name of a pod in "default": by claim its CDI ids
        self.asked = 0
        self.trouble: grpc.StatusCode | None = None

    def runs(self, pod: str, **claims: Iterable[str]) -> None:
        """A pod that was given CDI ids by these claims."""
        self.pods[pod] = {name: list(ids) for name, ids in claims.items()}

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: Any
    ) -> api_pb2.ListPodResourcesResponse:
        self.asked += 1
        if self.trouble is not None:
            await context.abort(self.trouble, "ordered by a test")
        answer = api_pb2.ListPodResourcesResponse()
        for name, claims in self.pods.items():
            pod = answer.pod_resources.add(name=name, namespace="default")
            pod.containers.add(name="sidecar")
            container = pod.containers.add(name="main")
            for claim, ids in claims.items():
                given = container.dynamic_resources.add(claim_name=claim, claim_namespace="default")
                for id_ in ids:
                    given.claim_resources.add(driver_name="d").cdi_devices.add(name=id_)
        return answer


@contextlib.asynccontextmanager
async def serve(path: Path) -> AsyncIterator[PodResources]:
    servicer = PodResources()
    async with sockets.serving(
        path, lambda server: api_pb2_grpc.add_PodResourcesListerServicer_to_server(servicer, server)
    ):
        yield servicer
