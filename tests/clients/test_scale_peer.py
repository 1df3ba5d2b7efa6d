"""The peer of `make scale`: nodes with Kubernetes' own library do what the harness asks of them, and
write no more than they have to.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.bench import api
from tests.bench.kubelet import Kubelet
from tests.clients.toolchains import INSTALLING, ROOT, RUNNING, installed, need, run, simulated

SOURCES = ROOT / "tests/scale/peer"
DRIVER = "peer.claimd.dev"
NODES = ["n-00000", "n-00001", "n-00002"]
CLAIMS = f"{api.RESOURCES}/namespaces/default/resourceclaims"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALLING + RUNNING)]


class Peer:
    """The program, and the API server that it publishes to."""

    def __init__(self, config, folder, words):
        self.folder, self.status = folder, "--status" in words
        self.api = api.connect(config)
        for name in NODES:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            self.api("POST", "/api/v1/nodes", node)

        fixed = ["--kubeconfig", config, "--folder", folder, "--nodes", "3", "--prefix", "n"]
        self.program = subprocess.Popen(
            [_built(), *fixed, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, command):
        self.program.stdin.write(command + "\n")
        self.program.stdin.flush()

    def until(self, name):
        """All that it says until all nodes are there."""
        said = []
        for line in self.program.stdout:
            said.append(json.loads(line))
            if said[-1]["event"] == name and said[-1]["n"] == len(NODES):
                return said
        raise AssertionError(f"it ended before {name}: {said}")

    def slices(self):
        return self.api("GET", f"{api.RESOURCES}/resourceslices")["items"]

    def versions(self):
        return {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in self.slices()
        }

    def tainted(self):
        """By pool, the devices with taints."""
        nodes = {}
        for each in self.slices():
            devices = each["spec"]["devices"]
            sick = [device["name"] for device in devices if "taints" in device]
            nodes[each["spec"]["pool"]["name"]] = sick
        return nodes


def _built():
    def install(folder):
        run([need("go"), "build", "-p", "1", "-o", str(folder / "program"), "."], SOURCES)

    return installed("scale-peer", sorted(SOURCES.iterdir()), install) / "program"


@pytest.fixture(
    scope="module", params=[[], ["--status", "--at-once", "1"]], ids=["plain", "status"]
)
def peer(request, tmp_path_factory):
    # A socket's path has to be short.
    with (
        tempfile.TemporaryDirectory(prefix="p-") as folder,
        simulated(tmp_path_factory.mktemp("api")) as config,
    ):
        new_peer = Peer(config, Path(folder), request.param)
        try:
            new_peer.until("published")
            yield new_peer
        finally:
            new_peer.tell("stop")
            assert new_peer.program.wait(60) == 0
            new_peer.program.stdin.close()
            new_peer.program.stdout.close()
            new_peer.api.close()


def test_each_node_has_a_slice_of_eight_devices(peer):
    slices = peer.slices()

    assert sorted(each["spec"]["nodeName"] for each in slices) == NODES
    for each in slices:
        devices = [device["name"] for device in each["spec"]["devices"]]
        assert devices == [f"gpu-{index}" for index in range(8)]
        assert each["spec"]["driver"] == DRIVER
        assert each["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_a_third_turns_sick_and_well_again(peer):
    peer.tell("taint third")
    peer.until("tainted")
    assert peer.tainted() == {name: ["gpu-0", "gpu-1", "gpu-2"] for name in NODES}

    peer.tell("untaint")
    peer.until("untainted")
    assert peer.tainted() == {name: [] for name in NODES}


@pytest.mark.parametrize("command", ["republish", "restart 1", "restart 2"])
def test_what_stands_is_not_written_again(peer, command):
    before = peer.versions()

    peer.tell(command)
    peer.until("republished" if command == "republish" else "restarted")

    assert peer.versions() == before


def test_an_unknown_command_is_said_and_does_no_harm(peer):
    peer.tell("dance")
    peer.tell("republish")

    said = peer.until("republished")

    errors = [each["text"] for each in said if each["event"] == "error"]
    assert errors == ["no such command: dance"]


def test_a_claim_is_prepared_and_unprepared(peer):
    folder = peer.folder / NODES[0]
    (folder / "plugins_registry").symlink_to("registry")
    kubelet = Kubelet(folder, folder / "cdi")
    claim = _allocated(peer)

    assert kubelet.register()
    try:
        assert kubelet.driver == DRIVER
        ids = kubelet.prepare([claim])
        assert kubelet.prepare([claim]) == ids
        kubelet.check_prepared(ids)
        assert _told(peer) == (["gpu-3"] if peer.status else [])

        kubelet.unprepare([claim])
        kubelet.unprepare([claim])
        kubelet.check_gone([claim])
    finally:
        kubelet.close()


def _allocated(peer):
    """A claim that has a device of the first node."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "any"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one"},
        "spec": {"devices": {"requests": [request]}},
    }
    stored = peer.api("POST", CLAIMS, claim)
    given = {"request": "gpu", "driver": DRIVER, "pool": NODES[0], "device": "gpu-3"}
    stored["status"] = {"allocation": {"devices": {"results": [given]}}}
    return peer.api("PUT", f"{CLAIMS}/one/status", stored)


def _told(peer):
    """The devices of which the claim's status tells what the example driver tells."""
    status = peer.api("GET", f"{CLAIMS}/one")["status"]
    return [
        device["device"]
        for device in status.get("devices", [])
        if set(device["data"]) == {"uuid", "model", "driverVersion"}
    ]
