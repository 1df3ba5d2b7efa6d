"""A good cluster has no findings. Then each thing is broken and repaired.

The API server is the simulated one with the shipped manifests; claimd's endpoint is a real one.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
import yaml

from claimd.common import probe
from claimd.kubernetes.kube import auth, client
from claimd.node import config
from claimd.node.endpoint import server as endpoint
from claimd.sim.apiserver.server import Options, serve
from claimd.tools.doctor import cluster, examine
from claimd.tools.doctor.check import Level
from tests.plugin.tools.doctor.test_api import (
    change_object,
    delete_object,
    kubeconfig,
    not_well,
    without_verb,
)
from tests.test_rights import ADMISSION, DRA, SLICES, Cluster

DRIVER = "gpu.claimd.dev"
BASE = Path(__file__).parents[4] / "deploy" / "base"
PODS = "/api/v1/namespaces/claimd-system/pods"
CLASSES = f"{DRA}/deviceclasses"
# The simulated API server has no metrics.
UNSEEN = {"api-server-gates", "kubelet-gates"}


def slice_of(node, driver=DRIVER, name=""):
    attributes = {
        "resource.kubernetes.io/pciBusID": {"string": "0000:11:00.0"},
        "vendor": {"string": "nvidia"},
    }
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0000-11-00-0", "attributes": attributes}],
    }
    return {"metadata": {"name": name or node}, "spec": spec}


class World:
    """Nodes n1 and n2 with a claimd pod each; both pods have one endpoint, which is here."""

    def __init__(self, cluster, port, unready):
        self.cluster, self.port, self.unready = cluster, port, unready

    async def set_up(self):
        await self.cluster.admin("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
        for document in yaml.safe_load_all((BASE / "deviceclasses.yaml").read_text()):
            await self.cluster.admin("POST", CLASSES, document)
        for node in ("n1", "n2"):
            await self.node_status(node)
            await self.pod(node)
            await self.cluster.admin("POST", SLICES, slice_of(node))

    async def node_status(self, name, **changes):
        path = f"/api/v1/nodes/{name}"
        node = await self.cluster.admin("GET", path)
        versions = {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2.2.9"}
        node["status"] = {"nodeInfo": versions} | changes
        await self.cluster.admin("PUT", f"{path}/status", node)

    async def pod(self, node):
        container = {
            "name": "claimd",
            "image": "i",
            "env": [{"name": "CLAIMD_ENDPOINT", "value": f":{self.port}"}],
        }
        pod = {
            "metadata": {"name": f"claimd-{node}", "labels": {"app.kubernetes.io/name": "claimd"}},
            "spec": {"serviceAccountName": "claimd", "nodeName": node, "containers": [container]},
        }
        await self.cluster.admin("POST", PODS, pod)
        await self.pod_status(node)

    async def pod_status(self, node, ready=True, **changes):
        pod = await self.cluster.admin("GET", f"{PODS}/claimd-{node}")
        condition = {"type": "Ready", "status": str(ready)}
        pod["status"] = {"podIP": "127.0.0.1", "conditions": [condition]} | changes
        await self.cluster.admin("PUT", f"{PODS}/claimd-{node}/status", pod)

    async def findings(self, token=None):
        token = token or self.cluster.api.token
        with tempfile.TemporaryDirectory() as folder:
            path = kubeconfig(Path(folder), f"{self.cluster.api.address}/as/{token}")
            server = client.Client(auth.client_config(path, Path(folder)), agent="t")
            try:
                return await examine.examine_cluster(config.Config(), server)
            finally:
                await server.close()


@pytest.fixture
async def world(unused_tcp_port):
    unready = []
    address = f"127.0.0.1:{unused_tcp_port}"
    running = asyncio.create_task(endpoint.Endpoint(address, lambda: "; ".join(unready)).run())
    async with serve(Options()) as server:
        cluster = Cluster(server, "claimd-system", "claimd")
        await cluster.set_up()
        world = World(cluster, unused_tcp_port, unready)
        await world.set_up()
        async with asyncio.timeout(30):
            while not (await asyncio.to_thread(probe.ask, address, "/livez"))[0]:
                pass
        yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# ---------------------------------------------------------------- what is broken


@contextlib.asynccontextmanager
async def unready(world):
    world.unready.append("the kubelet has not registered us yet")
    yield
    world.unready.clear()


@contextlib.asynccontextmanager
async def pod_status(world, **changes):
    await world.pod_status("n2", **changes)
    yield
    await world.pod_status("n2")


@contextlib.asynccontextmanager
async def node_status(world, **changes):
    await world.node_status("n2", **changes)
    yield
    await world.node_status("n2")


@contextlib.asynccontextmanager
async def without_pod(world, node="n2"):
    await world.cluster.admin("DELETE", f"{PODS}/claimd-{node}?gracePeriodSeconds=0")
    yield
    await world.pod(node)


@contextlib.asynccontextmanager
async def without_classes(world):
    stored = (await world.cluster.admin("GET", CLASSES))["items"]
    for item in stored:
        await world.cluster.admin("DELETE", f"{CLASSES}/{item['metadata']['name']}")
    yield
    for document in yaml.safe_load_all((BASE / "deviceclasses.yaml").read_text()):
        await world.cluster.admin("POST", CLASSES, document)


@contextlib.asynccontextmanager
async def foreign(world):
    await world.cluster.admin("POST", SLICES, slice_of("n2", "gpu.example.com", "foreign"))
    yield
    await world.cluster.admin("DELETE", f"{SLICES}/foreign")


def half_a_pool(slice_):
    slice_["spec"]["pool"] |= {"resourceSliceCount": 2, "generation": 2}


WAITING = [{"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}}]
SITUATIONS = [
    (
        lambda world: pod_status(world, ready=False, containerStatuses=WAITING),
        {("claimd-pods", "n2")},
        "pod claimd-system/claimd-n2 is not ready: CrashLoopBackOff: back-off 5m0s",
    ),
    (unready, {("claimd-answers", "n1"), ("claimd-answers", "n2")}, "has not registered us yet"),
    (
        lambda world: delete_object(world, f"{SLICES}/n2"),
        {("node-slices", "n2")},
        f"there is no slice of {DRIVER}",
    ),
    (
        lambda world: change_object(world, f"{SLICES}/n2", half_a_pool),
        {("node-slices", "n2")},
        "the pool has 1 of 2 slices",
    ),
    (without_pod, {("node-slices", "n2")}, "no claimd pod is there to prepare them"),
    (without_classes, {("device-classes", "")}, f"names {DRIVER}"),
    (foreign, {("other-drivers", "n2")}, "published by the driver gpu.example.com as well"),
    (
        lambda world: node_status(world, allocatable={"nvidia.com/gpu": "1"}),
        {("device-plugins", "n2")},
        "a device plugin hands out this node's GPUs of nvidia",
    ),
    (
        lambda world: node_status(
            world, nodeInfo={"kubeletVersion": "v1.30.0", "containerRuntimeVersion": "docker://28"}
        ),
        {("kubelet-version", "n2"), ("runtime-version", "n2")},
        "the kubelet is v1.30.0",
    ),
    (without_verb("resourceslices", "update"), {("rights", "")}, "may not update resourceslices"),
    (
        lambda world: delete_object(
            world, f"{ADMISSION}/validatingadmissionpolicybindings/resourceslices.{DRIVER}"
        ),
        {("admission-policy", "")},
        "no binding that denies",
    ),
]


def broken(findings):
    return {
        (finding.check, finding.node)
        for finding in findings
        if finding.level not in (Level.WELL, Level.UNSEEN)
    }


async def test_each_thing_that_is_broken_is_named_with_its_node_and_nothing_else(world):
    assert not_well(await world.findings()) == set(), "well before"
    for break_, expected, words in SITUATIONS:
        async with break_(world):
            findings = await world.findings()
        assert broken(findings) == expected, words
        assert any(words in finding.seen for finding in findings), words


async def test_a_cluster_without_claimd(world):
    for node in ("n1", "n2"):
        await world.cluster.admin("DELETE", f"{PODS}/claimd-{node}?gracePeriodSeconds=0")
    findings = await world.findings()
    (finding,) = [finding for finding in findings if finding.check == "claimd-pods"]
    assert "no pod with the label" in finding.seen
    assert "docs/install.md" in finding.remedy


async def test_who_may_see_little_is_told_so(world):
    """A thing that cannot be seen is neither good nor broken."""
    findings = await world.findings(world.cluster.token)
    assert broken(findings) == set()
    unseen = {finding.check for finding in findings if finding.level is Level.UNSEEN}
    assert {"claimd-pods", "node-slices", "device-classes"} <= unseen


async def test_every_check_of_the_cluster_says_something(world):
    checks = {finding.check for finding in await world.findings()}
    assert checks == {check.name for check in examine.CLUSTER_CHECKS}


@pytest.mark.parametrize(
    ("spec", "port"),
    [
        ({"env": [{"name": "CLAIMD_ENDPOINT", "value": ":8081"}]}, "8081"),
        ({"env": [{"name": "CLAIMD_ENDPOINT", "value": "unix:/e.sock"}]}, ""),
        ({"env": [{"name": "CLAIMD_ENDPOINT", "value": "127.0.0.1:8081"}]}, ""),
        ({"env": [{"name": "CLAIMD_ENDPOINT", "value": "[::]:8081"}]}, "8081"),
        ({"ports": [{"name": "endpoint", "containerPort": 9}]}, "9"),
        ({}, ""),
    ],
)
def test_where_an_endpoint_is(spec, port):
    assert cluster._endpoint_port({"containers": [spec]}) == port
