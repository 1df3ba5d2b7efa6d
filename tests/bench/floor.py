"""The floor: the least that a prepare in Python can be, as a driver that takes turns with the others.

It reads the claim, syncs a checkpoint with its folder, writes a CDI file and answers. It has no
plan, no lock, no second instance, no metadata, no status, no health and no log; a claim that is asked
for again is prepared again. What it takes belongs to Python, gRPC, TLS and the disk; what claimd
takes beyond that is claimd's own.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio

from claimd.common import durable
from claimd.kubernetes.kube import auth, client
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2, api_pb2_grpc
from claimd.node import event_loop
from claimd.node.kubelet import registration

if TYPE_CHECKING:  # an environment that runs claimd has not what the benchmark needs
    from .turn import Driver

MOST = 128  # devices: it has one slice
NAME = "floor"
DRIVER = "floor.claimd.dev"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def driver(own: Driver) -> Driver:
    """By the interpreter, bytecode and sources of claimd."""
    python = own.command[0]
    words = ("{node}", "{kubelet}", "{cdi}", "{kubeconfig}", "{devices}")
    command = (python, "-m", "tests.bench.floor", *words)
    return dataclasses.replace(own, name=NAME, command=command, most=MOST, version="")


class Floor(api_pb2_grpc.DRAPluginServicer):
    def __init__(self, node: str, kubelet: Path, cdi: Path, client_: client.Client) -> None:
        self._node, self._cdi, self._client = node, cdi, client_
        self._checkpoints = durable.Folder(kubelet / "plugins" / DRIVER)
        self._checkpoints.make()

    async def publish(self, devices: int) -> None:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"floor-{self._node}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": self._node,
                "pool": {"name": self._node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
            },
        }
        await self._client.request("POST", SLICES, body=json.dumps(body).encode())

    async def NodePrepareResources(
        self, request: api_pb2.NodePrepareResourcesRequest, context: Any
    ) -> api_pb2.NodePrepareResourcesResponse:
        response = api_pb2.NodePrepareResourcesResponse()
        devices = await asyncio.gather(*map(self._prepare, request.claims))
        for claim, given in zip(request.claims, devices, strict=True):
            response.claims[claim.uid].devices.extend(given)
        return response

    async def _prepare(self, asked: api_pb2.Claim) -> list[api_pb2.Device]:
        answer = await self._client.request("GET", CLAIMS.format(asked.namespace, asked.name))
        claim = json.loads(answer)
        assert claim["metadata"]["uid"] == asked.uid
        results = claim["status"]["allocation"]["devices"]["results"]

        checkpoint = json.dumps({"uid": asked.uid, "results": results}).encode()
        await durable.in_thread(lambda: self._checkpoints.write(f"{asked.uid}.json", checkpoint))
        kind = "claimd.dev/floor"
        named = {f"{asked.uid}-{result['device']}": result for result in results}
        nodes = {"deviceNodes": [{"path": "/dev/null"}]}
        spec = {
            "cdiVersion": "0.6.0",
            "kind": kind,
            "devices": [{"name": name, "containerEdits": nodes} for name in named],
        }
        path = self._spec(asked.uid)
        durable.replace(path, json.dumps(spec).encode(), temporary=f"{path}.new", sync=False)
        return [
            api_pb2.Device(
                request_names=[result["request"]],
                pool_name=result["pool"],
                device_name=result["device"],
                cdi_device_ids=[f"{kind}={name}"],
            )
            for name, result in named.items()
        ]

    async def NodeUnprepareResources(
        self, request: api_pb2.NodeUnprepareResourcesRequest, context: Any
    ) -> api_pb2.NodeUnprepareResourcesResponse:
        response = api_pb2.NodeUnprepareResourcesResponse()
        await asyncio.gather(*(self._unprepare(claim.uid) for claim in request.claims))
        for claim in request.claims:
            response.claims[claim.uid].error = ""
        return response

    async def _unprepare(self, uid: str) -> None:
        Path(self._spec(uid)).unlink(missing_ok=True)
        await durable.in_thread(lambda: self._checkpoints.remove(f"{uid}.json"))

    def _spec(self, uid: str) -> str:
        return f"{self._cdi}/floor-{uid}.json"


async def serve(words: Mapping[str, str]) -> None:
    kubelet, node = Path(words["kubelet"]), words["node"]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client_ = client.Client(auth.client_config(words["kubeconfig"], kubelet), agent=NAME, limit=8)
    floor = Floor(node, kubelet, Path(words["cdi"]), client_)

    endpoint = kubelet / "plugins" / DRIVER / "dra.sock"
    servers = [grpc.aio.server(), grpc.aio.server()]
    api_pb2_grpc.add_DRAPluginServicer_to_server(floor, servers[0])
    registered = registration.Registration(DRIVER, endpoint, ("v1.DRAPlugin",), lambda: None)
    registration.add_to(servers[1], registered)
    places = (endpoint, kubelet / "plugins_registry" / f"{DRIVER}-reg.sock")
    for server, place in zip(servers, places, strict=True):
        server.add_insecure_port(f"unix:{place}")
        await server.start()
    await floor.publish(int(words["devices"]))

    await stop.wait()
    for server in reversed(servers):
        await server.stop(1.0)
    await client_.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description=__doc__)
    for word in ("node", "kubelet", "cdi", "kubeconfig", "devices"):
        parser.add_argument(word)
    with asyncio.Runner(loop_factory=event_loop.Loop) as runner:
        runner.run(serve(vars(parser.parse_args())))


if __name__ == "__main__":
    main()
