"""Plays the kubelet on the plugin's sockets, for clusters without a node."""

from __future__ import annotations

from pathlib import Path

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as dra
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as dra_grpc
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2 as registration
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from tests.cluster.deadline import wait_for

# The kubelet's deadline for a call.
CALL_SECONDS = 45


class Kubelet:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("plugins", "plugins_registry"):
            (root / name).mkdir(parents=True)
        self._endpoint = ""

    def register(self) -> registration.PluginInfo:
        """Finds the plugin's socket, asks for its PluginInfo, and tells it that it is registered."""
        folder = self.root / "plugins_registry"
        (socket,) = wait_for(
            "a registration socket", lambda: list(folder.glob("*.sock")), seconds=20
        )
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            stub = registration_grpc.RegistrationStub(channel)
            info: registration.PluginInfo = stub.GetInfo(
                registration.InfoRequest(), timeout=20, wait_for_ready=True
            )
            stub.NotifyRegistrationStatus(
                registration.RegistrationStatus(plugin_registered=True), timeout=20
            )
        self._endpoint = info.endpoint
        return info

    def prepare(self, namespace: str, name: str, uid: str) -> list[dra.Device]:
        request = dra.NodePrepareResourcesRequest(
            claims=[dra.Claim(namespace=namespace, name=name, uid=uid)]
        )
        with grpc.insecure_channel(f"unix://{self._endpoint}") as channel:
            stub = dra_grpc.DRAPluginStub(channel)
            answer = stub.NodePrepareResources(request, timeout=CALL_SECONDS).claims[uid]
        assert not answer.error, answer.error
        return list(answer.devices)

    def unprepare(self, namespace: str, name: str, uid: str) -> None:
        request = dra.NodeUnprepareResourcesRequest(
            claims=[dra.Claim(namespace=namespace, name=name, uid=uid)]
        )
        with grpc.insecure_channel(f"unix://{self._endpoint}") as channel:
            stub = dra_grpc.DRAPluginStub(channel)
            answer = stub.NodeUnprepareResources(request, timeout=CALL_SECONDS).claims[uid]
        assert not answer.error, answer.error
