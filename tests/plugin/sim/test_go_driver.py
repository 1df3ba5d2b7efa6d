"""A driver with Kubernetes' own Go library publishes to the simulated control plane, and its pod
runs."""

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path

import pytest

from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim import controllers, scheduler
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.kubelet.kubelet import Kubelet
from claimd.sim.runtime.runtime import Runtime
from tests.support import oracle
from tests.support.sim_node import QUICK

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def binary():
    if reason := oracle.missing("driver"):
        pytest.skip(reason)
    return oracle.build("driver")


@pytest.fixture
async def ask():
    """Yields a client of a control plane with one node, whose kubelet is in the folder
    `ask.kubelet`."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="go-"))
        )  # short, for sockets
        api = await stack.enter_async_context(serve(Options()))
        asker = client.Client(kubeconfig.load(api.kubeconfig(folder / "kubeconfig")), agent="test")
        stack.push_async_callback(asker.close)
        runtime = await stack.enter_async_context(Runtime(folder / "run", [folder / "cdi"]))
        kubelet = Kubelet("node-1", folder / "kubelet", asker, runtime, timing=QUICK)
        for name in ("plugins_registry", "plugins"):
            (folder / "kubelet" / name).mkdir(parents=True)
        tasks = [
            asyncio.create_task(work)
            for work in (scheduler.run(asker), controllers.run(asker), kubelet.run())
        ]

        async def request(method, path, body=None):
            return json.loads(
                await asker.request(method, path, body=body and json.dumps(body).encode())
            )

        request.kubelet, request.kubeconfig = folder / "kubelet", folder / "kubeconfig"
        yield request
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(look, seconds=30):
    async with asyncio.timeout(seconds):
        while not (answer := await look()):
            await asyncio.sleep(0.02)
    return answer


async def test_it_publishes_and_its_pod_runs(binary, ask, tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        driver = await asyncio.create_subprocess_exec(
            binary,
            ask.kubeconfig,
            "node-1",
            ask.kubelet,
            stdin=asyncio.subprocess.PIPE,
            stdout=out,
            stderr=out,
        )

    async def published():
        assert driver.returncode is None, log.read_text()
        return (await ask("GET", SLICES))["items"]

    async def phase():
        return (await ask("GET", f"{PODS}/p"))["status"].get("phase") == "Running"

    async def gone():
        return (await ask("GET", PODS))["items"] == []

    try:
        (there,) = await until(published)
        assert [device["name"] for device in there["spec"]["devices"]] == ["dev-0", "dev-1"]
        assert there["spec"]["devices"][0]["attributes"] == {"slot": {"int": 0}}
        selector = {
            "cel": {
                "expression": 'device.driver == "go.example.com" && "slot" in device.attributes[device.driver]'
            }
        }
        device_class = {"metadata": {"name": "go"}, "spec": {"selectors": [selector]}}
        await ask("POST", "/apis/resource.k8s.io/v1/deviceclasses", device_class)
        requests = [{"name": "one", "exactly": {"deviceClassName": "go"}}]
        await ask(
            "POST", CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
        )
        container = {
            "name": "main",
            "image": "any",
            "command": ["sleep", "100"],
            "resources": {"claims": [{"name": "c"}]},
        }
        spec = {
            "containers": [container],
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
        }
        await ask(
            "POST",
            PODS,
            {"metadata": {"name": "p"}, "spec": spec | {"terminationGracePeriodSeconds": 1}},
        )
        await until(phase)
        (given,) = (await ask("GET", f"{CLAIMS}/c"))["status"]["allocation"]["devices"]["results"]
        assert (given["driver"], given["pool"], given["device"]) == (
            "go.example.com",
            "node-1",
            "dev-0",
        )
        await ask("DELETE", f"{PODS}/p")
        await until(gone)
    finally:
        driver.stdin.close()
        assert await driver.wait() == 0, log.read_text()
