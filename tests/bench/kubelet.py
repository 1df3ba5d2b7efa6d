"""The kubelet's part: registers the driver in a folder, calls it, and looks into its CDI folder as
a runtime would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import yaml

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as v1_grpc
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2 as v1beta1
from claimd.kubernetes.kubelet_api.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc

from .api import Object
from .errors import BenchError

CALL = 60.0  # seconds for a call
SERVICES: dict[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (v1, v1_grpc),
    "v1beta1.DRAPlugin": (v1beta1, v1beta1_grpc),
}


class Kubelet:
    """One driver's kubelet. `driver` is its name as soon as `register` has said yes."""

    def __init__(self, folder: Path, cdi: Path) -> None:
        self._registry, self._cdi = folder / "plugins_registry", cdi
        self._channel: grpc.Channel | None = None
        self._messages: Any = None
        self._stub: Any = None
        self.driver = ""

    def register(self) -> bool:
        """Whether a driver was there and is registered now."""
        for path in sorted(self._registry.glob("*.sock")):
            try:
                with grpc.insecure_channel(f"unix:{path}") as channel:
                    stub = api_pb2_grpc.RegistrationStub(channel)
                    offer = stub.GetInfo(api_pb2.InfoRequest(), timeout=2)
                    stub.NotifyRegistrationStatus(
                        api_pb2.RegistrationStatus(plugin_registered=True), timeout=2
                    )
            except grpc.RpcError:
                continue  # it does not serve yet
            self._dial(offer)
            return True
        return False

    def _dial(self, offer: api_pb2.PluginInfo) -> None:
        served = [name for name in SERVICES if name in offer.supported_versions]
        if not served:
            raise BenchError(
                f"{offer.name} serves {list(offer.supported_versions)}, the benchmark {list(SERVICES)}"
            )
        self._messages, services = SERVICES[served[0]]
        self._channel = grpc.insecure_channel(f"unix:{offer.endpoint}")
        self._stub = services.DRAPluginStub(self._channel)
        self.driver = offer.name

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def prepare(self, claims: Sequence[Object]) -> dict[str, list[str]]:
        """The CDI ids by the claim's uid. Every claim has to have some."""
        request = self._messages.NodePrepareResourcesRequest(
            claims=[self._ref(claim) for claim in claims]
        )
        answers = self._call(self._stub.NodePrepareResources, request)
        ids = {
            uid: [id_ for device in answer.devices for id_ in device.cdi_device_ids]
            for uid, answer in answers
        }
        for uid in map(_uid, claims):
            if not ids.get(uid):
                raise BenchError(
                    f"no device was prepared for claim {uid}: {dict(answers).get(uid)}"
                )
        return ids

    def unprepare(self, claims: Sequence[Object]) -> None:
        request = self._messages.NodeUnprepareResourcesRequest(
            claims=[self._ref(claim) for claim in claims]
        )
        answers = dict(self._call(self._stub.NodeUnprepareResources, request))
        for uid in map(_uid, claims):
            if uid not in answers or answers[uid].error:
                raise BenchError(f"claim {uid} was not unprepared: {answers.get(uid)}")

    def _ref(self, claim: Object) -> Any:
        meta = claim["metadata"]
        return self._messages.Claim(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])

    def _call(self, method: Any, request: Any) -> list[tuple[str, Any]]:
        try:
            return list(method(request, timeout=CALL).claims.items())
        except grpc.RpcError as error:
            raise BenchError(f"the driver's call failed: {error}") from error

    def check_prepared(self, ids: dict[str, list[str]]) -> None:
        """A runtime would find every id in a file of the CDI folder."""
        known = {
            f"{spec['kind']}={device['name']}"
            for _, text in self._files()
            for spec, device in _devices(text)
        }
        for uid, wanted in ids.items():
            for id_ in wanted:
                if id_ not in known:
                    raise BenchError(f"claim {uid} was given {id_}, which is in no CDI file")

    def check_gone(self, claims: Sequence[Object]) -> None:
        """No CDI file names a claim that was unprepared."""
        for name, text in self._files():
            for uid in map(_uid, claims):
                if uid in name or uid in text:
                    raise BenchError(f"claim {uid} was unprepared, and {name} still names it")

    def _files(self) -> list[tuple[str, str]]:
        """The specs; what begins with a dot is half written."""
        paths = [path for path in sorted(self._cdi.iterdir()) if path.suffix in (".json", ".yaml")]
        return [(path.name, path.read_text()) for path in paths if not path.name.startswith(".")]


def _uid(claim: Object) -> str:
    return str(claim["metadata"]["uid"])


def _devices(text: str) -> list[tuple[Object, Object]]:
    spec = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)
    return [(spec, device) for device in spec["devices"]]
