"""A guest as a node of a cluster: `claimd run` in the guest, and on this machine the simulated API
server and the part of the kubelet.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2 as dra
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2_grpc as dra_grpc
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc
from tests.bench import api

from . import guest, kernel
from .packages import MachineError

NAME = "machine"
DRIVER = "gpu.claimd.dev"
KUBELET, CDI, LOG = "/var/lib/kubelet", "/var/run/cdi", "/tmp/claimd.log"
START = 150.0  # seconds until claimd must offer itself
CALL = 100.0
BRIEF = 6.0  # seconds of a call that must be refused

Object = dict[str, Any]


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[Path]:
    """Runs the simulated API server without TLS. Yields its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "claimd", "sim", "--http", "--kubeconfig", str(kubeconfig)]
    paths = f"{kernel.ROOT}/plugin:{kernel.ROOT}/devices"
    with (folder / "sim.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": paths}
        )
        try:
            end = time.monotonic() + 60
            while not kubeconfig.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise MachineError((folder / "sim.log").read_text())
                time.sleep(0.05)
            yield kubeconfig
        finally:
            process.kill()
            process.wait()


def launch(
    machine: guest.Guest,
    kubeconfig: str,
    settings: Mapping[str, object],
    *flags: str,
    program: Sequence[str] = ("-m", "claimd"),
) -> None:
    """Starts `claimd run` in a guest. The agent keeps its process as `claimd`.

    `kubeconfig` is the file's text. `program` is what Python runs.
    """
    machine.python(f"open('/tmp/kubeconfig', 'w').write({kubeconfig!r})")
    given = {"kubeconfig": "/tmp/kubeconfig", "log-format": "text", **settings}
    command = ["python3", *program, "run", *(f"--{key}={value}" for key, value in given.items())]
    machine.python(
        "import subprocess\n"
        f"log = open({LOG!r}, 'ab')\n"
        f"kept['claimd'] = subprocess.Popen({[*command, *flags]!r}, stdout=log, stderr=log)\n"
    )


class Node:
    """One node. `flags` are settings of `claimd run`."""

    def __init__(self, machine: guest.Guest, kubeconfig: Path, *flags: str) -> None:
        self.guest = machine
        self.api = api.connect(kubeconfig)
        self._kubeconfig = kubeconfig.read_text().replace("127.0.0.1", guest.HOST)
        self._flags = flags
        self._numbers = itertools.count(1)
        self._channel: grpc.Channel | None = None
        self._plugin: Any = None
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
        self.api("POST", "/api/v1/nodes", node, but=(409,))

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.api.close()

    # ------------------------------------------------------------------ claimd

    def start(self) -> None:
        """Starts claimd and registers it."""
        folders = f"{KUBELET}/plugins_registry {KUBELET}/plugins {CDI}"
        self.guest.run(f"mkdir -p {folders}", check=True)
        # Changes must be seen by the kernel's events, not by the clock.
        settings = {"node-name": NAME, "rescan": "3600"}
        launch(self.guest, self._kubeconfig, settings, *self._flags)
        self.register()

    def end(self, signal: str = "TERM") -> None:
        """Ends claimd."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.guest.python(
            "import signal\n"
            f"kept['claimd'].send_signal(signal.SIG{signal})\n"
            "kept['claimd'].wait(50)\n"
        )

    def register(self) -> None:
        """Plays the kubelet that finds the socket of registration."""
        listing = f"ls {KUBELET}/plugins_registry"

        def offer() -> api_pb2.PluginInfo | None:
            for name in self.guest.run(listing).output.split():
                local = self.guest.forward(f"{KUBELET}/plugins_registry/{name}")
                channel = grpc.insecure_channel(f"unix:{local}")
                with contextlib.suppress(grpc.RpcError), channel:
                    stub = api_pb2_grpc.RegistrationStub(channel)
                    info = stub.GetInfo(api_pb2.InfoRequest(), timeout=10)
                    status = api_pb2.RegistrationStatus(plugin_registered=True)
                    stub.NotifyRegistrationStatus(status, timeout=10)
                    return info
            return None

        try:
            info = self.guest.wait_for("claimd offers itself", offer, START)
        except MachineError as error:
            raise MachineError(f"{error}\n{self.log()}") from error
        self._channel = grpc.insecure_channel(f"unix:{self.guest.forward(info.endpoint)}")
        self._plugin = dra_grpc.DRAPluginStub(self._channel)

    def log(self) -> str:
        """Returns claimd's log."""
        return self.guest.run(f"cat {LOG}").output

    def wait_for_line(self, text: str, timeout: float = 60.0) -> str:
        """Waits until claimd's log has a line with this text, and returns the line."""

        def line() -> str:
            found = [one for one in self.log().splitlines() if text in one]
            return found[-1] if found else ""

        try:
            return self.guest.wait_for(f"a line with {text!r}", line, timeout)
        except MachineError as error:
            raise MachineError(f"{error}\n{self.log()}") from error

    # ------------------------------------------------------------------ the cluster

    def devices(self) -> dict[str, Object]:
        """Returns the published devices by name."""
        slices = self.api("GET", f"{api.RESOURCES}/resourceslices")["items"]
        found = {}
        for slice_ in slices:
            for device in slice_["spec"].get("devices", ()):
                found[device["name"]] = device
        return found

    def wait_for_devices(self, *names: str, timeout: float = 60.0) -> dict[str, Object]:
        """Waits until exactly these devices are published."""

        def published() -> dict[str, Object] | None:
            devices = self.devices()
            return devices if set(devices) == set(names) else None

        return self.guest.wait_for(f"the devices {names}", published, timeout)

    def taints(self, name: str) -> dict[str, str]:
        """Returns the effects of a device's taints by key."""
        device = self.devices().get(name, {})
        return {taint["key"]: taint["effect"] for taint in device.get("taints", ())}

    def claim(self, *devices: str) -> Object:
        """Makes a claim that the devices were allocated to."""
        name = f"claim-{next(self._numbers)}-{os.urandom(3).hex()}"
        path = f"{api.RESOURCES}/namespaces/default/resourceclaims"
        requests, results = [], []
        for number, device in enumerate(devices):
            requests.append({"name": f"r{number}", "exactly": {"deviceClassName": "any"}})
            result = {"request": f"r{number}", "driver": DRIVER, "pool": NAME, "device": device}
            results.append(result)
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": requests}},
        }
        claim = self.api("POST", path, claim)
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NAME]}]}]
        claim["status"] = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": terms},
            },
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": f"pod-of-{name}"}],
        }
        return self.api("PUT", f"{path}/{name}/status", claim)

    # ------------------------------------------------------------------ the kubelet's calls

    def prepare(self, claim: Object, seconds: float = CALL) -> str:
        """Prepares a claim. Returns the error; empty if it worked.

        claimd waits for what may still pass, but no longer than the call's own time allows.
        """
        request = dra.NodePrepareResourcesRequest(claims=[_reference(claim)])
        answer = self._plugin.NodePrepareResources(request, timeout=seconds)
        return str(answer.claims[claim["metadata"]["uid"]].error)

    def unprepare(self, claim: Object) -> str:
        """Unprepares a claim. Returns the error; empty if it worked."""
        request = dra.NodeUnprepareResourcesRequest(claims=[_reference(claim)])
        answer = self._plugin.NodeUnprepareResources(request, timeout=CALL)
        return str(answer.claims[claim["metadata"]["uid"]].error)

    def nodes_in_cdi(self, claim: Object) -> set[str]:
        """Returns the paths of device nodes in the claim's CDI file; empty without the file."""
        uid = claim["metadata"]["uid"]
        found = self.guest.run(f"cat {CDI}/*{uid}.json")
        if found.rc:
            return set()
        paths: set[str] = set()
        spec = json.loads(found.output)
        for part in (spec, *spec["devices"]):
            edits = part.get("containerEdits", {})
            paths |= {node["path"] for node in edits.get("deviceNodes", ())}
        return paths


def _reference(claim: Object) -> Any:
    meta = claim["metadata"]
    return dra.Claim(namespace="default", name=meta["name"], uid=meta["uid"])
