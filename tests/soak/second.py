"""A second kubelet's calls to the plugin's sockets, with claims that are allocated by hand, beside
the real kubelet.

Real pods cost half a second of this machine each; these cost the plugin the same and the machine
next to nothing. Its devices are of a vendor that no real pod asks for, so that the scheduler never
takes one of them.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as dra
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as dra_grpc
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2 as registration
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from tests.cluster.objects import DRIVER, claim, devices, request
from tests.soak import folders
from tests.soak.api import CONFLICT, GONE, RESOURCES, Api, Away, Object

CALL = 45.0  # a kubelet's patience
KIND = "claimd.dev/claim"


class Refused(Exception):
    """The plugin's own words, or gRPC's."""


class Kubelet:
    """Finds the plugin as a kubelet does: by the sockets in the registry, the one that came last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[
            tuple[str, int], str
        ] = {}  # registration socket → DRA socket, oldest first
        self._ways: dict[str, grpc.Channel] = {}

    def prepare(self, claim_: Object, seconds: float = CALL) -> list[str]:
        """The CDI ids."""
        answer = self._call(
            "NodePrepareResources",
            dra.NodePrepareResourcesRequest(claims=[_ref(claim_)]),
            claim_,
            seconds,
        )
        return sorted(id_ for device in answer.devices for id_ in device.cdi_device_ids)

    def unprepare(self, claim_: Object) -> None:
        self._call(
            "NodeUnprepareResources",
            dra.NodeUnprepareResourcesRequest(claims=[_ref(claim_)]),
            claim_,
            CALL,
        )

    def _call(self, name: str, message: Any, claim_: Object, seconds: float) -> Any:
        stub = dra_grpc.DRAPluginStub(self._way())
        try:
            answer = getattr(stub, name)(message, timeout=seconds).claims[claim_["metadata"]["uid"]]
        except grpc.RpcError as error:
            raise Refused(f"{name}: {error.code()}: {error.details()}") from error
        if answer.error:
            raise Refused(f"{name}: {answer.error}")
        return answer

    def _way(self) -> grpc.Channel:
        with self._lock:
            there = {}
            for path in folders.REGISTRY.glob(f"{DRIVER}*.sock"):
                try:
                    there[str(path), path.stat().st_ino] = path
                except FileNotFoundError:
                    continue
            self._known = {key: endpoint for key, endpoint in self._known.items() if key in there}
            for key in there.keys() - self._known.keys():
                if endpoint := _asked(there[key]):
                    self._known[key] = endpoint
            if not self._known:
                raise Refused("no plugin is registered")
            endpoint = list(self._known.values())[-1]
            if endpoint not in self._ways:
                self._ways[endpoint] = grpc.insecure_channel(f"unix://{endpoint}")
            return self._ways[endpoint]


def _asked(path: Path) -> str:
    """Its DRA socket, once it serves that too: a kubelet as well calls nobody to whom it has no
    connection yet.
    """
    try:
        with grpc.insecure_channel(f"unix://{path}") as way:
            offer = registration_grpc.RegistrationStub(way).GetInfo(
                registration.InfoRequest(), timeout=5
            )
        with grpc.insecure_channel(f"unix://{offer.endpoint}") as way:
            grpc.channel_ready_future(way).result(timeout=5)
    except (grpc.RpcError, grpc.FutureTimeoutError):
        return ""
    return str(offer.endpoint)


def _ref(claim_: Object) -> dra.Claim:
    meta = claim_["metadata"]
    return dra.Claim(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


@dataclass(kw_only=True)
class Claims:
    """Claims that are allocated by hand, and taken away as a cluster does it."""

    api: Api
    namespace: str
    node: str

    def make(self, name: str, device: str) -> Object:
        where = f"{RESOURCES}/namespaces/{self.namespace}/resourceclaims"
        claim_ = self.api.surely(
            "POST", where, claim(name, devices(request(device_class=f"amd.{DRIVER}")))
        )
        here = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        chosen = {"request": "gpu", "driver": DRIVER, "pool": self.node, "device": device}
        claim_["status"] = {
            "allocation": {
                "devices": {"results": [chosen]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
            },
            # no pod: the claim controller would look for it and take the allocation back
            "reservedFor": [
                {
                    "apiGroup": "soak.claimd.dev",
                    "resource": "loads",
                    "name": name,
                    "uid": f"load-{name}",
                }
            ],
        }
        return self.api.surely("PUT", f"{where}/{name}/status", claim_)

    def remove(self, claim_: Object) -> None:
        path = (
            f"{RESOURCES}/namespaces/{self.namespace}/resourceclaims/{claim_['metadata']['name']}"
        )
        while True:
            fresh = self.api.surely("GET", path, but=(GONE,))
            if fresh["kind"] != "ResourceClaim":
                return
            answer = self.api.surely(
                "PUT", f"{path}/status", {**fresh, "status": {}}, but=(GONE, CONFLICT)
            )
            if answer["kind"] == "ResourceClaim":
                self.api.surely("DELETE", path, but=(GONE,))
                return


def in_cdi(uid: str, ids: list[str]) -> bool:
    """Whether a runtime would find these now."""
    glance = folders.Eye().look(0)
    held = glance.specs.get(uid)
    return (
        held is not None
        and {f"{KIND}={uid}-{device}" for device, _ in held.devices} == set(ids)
        and bool(ids)
    )


@dataclass(kw_only=True)
class Calls:
    """A steady rate of prepare, again, unprepare."""

    claims: Claims
    kubelet: Kubelet
    devices: list[str]
    rate: float
    seed: int
    done: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def start(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="calls")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        chance, began, number = random.Random(self.seed), time.monotonic(), 0
        free = list(self.devices)
        under_way: list[tuple[str, Future[None]]] = []
        with ThreadPoolExecutor(8) as pool:
            while not self._stop.wait(0.02):
                for device, future in [each for each in under_way if each[1].done()]:
                    under_way.remove((device, future))
                    free.append(device)
                while free and number < (time.monotonic() - began) * self.rate / 60:
                    number += 1
                    device = free.pop(0)
                    under_way.append(
                        (
                            device,
                            pool.submit(self._one, f"c{number:04}", device, chance.uniform(0, 3)),
                        )
                    )

    def _one(self, name: str, device: str, hold: float) -> None:
        try:
            claim_ = self.claims.make(name, device)
            uid = claim_["metadata"]["uid"]
            began = time.monotonic()
            ids = self.kubelet.prepare(claim_)
            self.seconds.append(time.monotonic() - began)
            if not in_cdi(uid, ids):
                self.failures.append(f"{name} was given {ids}, its CDI file has not the same")
            time.sleep(hold)  # its use
            if (again := self.kubelet.prepare(claim_)) != ids:
                self.failures.append(f"{name} was given {ids}, and then {again}")
            self.kubelet.unprepare(claim_)
            if uid in folders.Eye().look(0).specs:
                self.failures.append(f"{name} was unprepared and has a CDI file")
            self.claims.remove(claim_)
            self.done += 1
        except (Refused, Away) as error:
            self.failures.append(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001 - told in the report
            self.failures.append(f"{name}: {error!r}")
