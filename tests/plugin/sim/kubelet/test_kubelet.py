"""A simulated kubelet with a real plugin process: the pods when a component stops and restarts."""

import asyncio
import contextlib
import json
import os
import signal

import pytest

from claimd.common import errors, names
from claimd.kubernetes.kube import auth, client
from tests.support import sim_node
from tests.support.sim_node import until
from tests.support.worlds import DRIVER


@pytest.fixture
async def node():
    async with sim_node.node() as node_:
        await node_.start_kubelet()
        yield node_


@pytest.fixture
async def plugin(node):
    process = await node.start_plugin(health_interval=1)
    await node.registered()
    return process


async def test_a_pod_waits_for_a_driver_that_is_not_registered(node):
    await node.claim("c", 0)
    await node.pod("p", "c")
    await node.told("FailedPrepareDynamicResources", f"DRA driver {DRIVER} is not registered")
    status = await node.status("p")
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    assert not node.kubelet.claims.infos
    await node.start_plugin()
    await node.phase("p", "Running")


@pytest.mark.slow
async def test_a_prepare_that_failed_or_took_too_long_is_tried_again():
    async with sim_node.node() as node:
        await node.start_kubelet(call=0.5)
        plugin = await node.start_plugin()
        await node.registered()
        node.give("unplug", 0)
        await until(lambda: "is gone from the bus" in node.log())
        await node.claim("c", 0)
        await node.pod("p", "c")
        await node.told(
            "FailedPrepareDynamicResources",
            f"NodePrepareResources failed for ResourceClaim c: {DRIVER}: ",
        )
        plugin.send_signal(signal.SIGSTOP)
        node.give("plug", 0)
        await node.told(
            "FailedPrepareDynamicResources", f"NodePrepareResources: {DRIVER}: DEADLINE_EXCEEDED"
        )
        plugin.send_signal(signal.SIGCONT)
        await node.phase("p", "Running")


@pytest.mark.slow
async def test_the_plugin_dies_in_the_middle_of_a_prepare(node, plugin):
    claim = await node.claim("c", 0, 2)
    plugin.send_signal(signal.SIGSTOP)
    pod = await node.pod("p", "c")
    await until(lambda: node.kubelet.claims.infos)  # the call is under way
    plugin.kill()
    await plugin.wait()
    await node.told("FailedPrepareDynamicResources", "NodePrepareResources: ")
    await node.start_plugin()
    await node.phase("p", "Running")
    devices = [path for each in (0, 2) for path in (node_.path for node_ in node.gpus[each].nodes)]
    uid = pod["metadata"]["uid"]
    await until(lambda: list(node.kubelet.pods[uid].containers[0].devices) == devices)
    assert node.records() == {claim["metadata"]["uid"]}


async def test_a_container_reads_what_it_was_given(node, plugin):
    """The file of each request is where Kubernetes' readers look, with and without a mount
    namespace."""
    await node.claim("c", 0, 2)
    folder = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c"
    read = f"cd {folder} || cd rootfs{folder}; cat */{DRIVER}-metadata.json > {node.folder}/seen"
    await node.pod("p", "c", command=("sh", "-c", read), restartPolicy="Never")
    await node.phase("p", "Succeeded")
    documents = map(json.loads, (node.folder / "seen").read_text().splitlines())
    requests = [(each["apiVersion"][-7:], each["requests"]) for each in documents]
    assert [version for version, _ in requests] == ["v1beta1", "1alpha1"] * 2
    given = [(request["name"], request["devices"]) for _, (request,) in requests[::2]]
    assert [(name, device["name"]) for name, (device,) in given] == [
        ("r0", node.gpus[0].name),
        ("r1", node.gpus[2].name),
    ]
    (device,) = given[1][1]
    address = {"string": node.gpus[2].address}
    assert device["attributes"]["resource.kubernetes.io/pciBusID"] == address


async def test_a_pod_that_is_deleted_does_not_wait_for_a_driver_that_hangs(node, plugin):
    await node.claim("c", 0)
    plugin.send_signal(signal.SIGSTOP)
    await node.pod("p", "c")
    await until(lambda: node.kubelet.claims.infos)
    await node.delete("p")
    plugin.send_signal(signal.SIGCONT)
    await node.gone("p")
    assert not node.records() and not node.kubelet.claims.infos


@pytest.mark.slow
async def test_a_new_kubelet_goes_on_where_the_old_one_ended(node, plugin):
    claim = await node.claim("c", 0)
    pod = await node.pod("p", "c")
    await node.phase("p", "Running")
    uid = pod["metadata"]["uid"]
    pid = node.runtime.sandboxes[uid].latest("main").pid
    await node.stop_kubelet()
    state = json.loads((node.folder / "kubelet" / "dra_manager_state").read_bytes())
    assert [each["uid"] for each in state["claims"]] == [claim["metadata"]["uid"]]
    await node.start_kubelet()
    await node.registered()
    await until(
        lambda: uid in node.kubelet.pods and node.kubelet.pods[uid].containers[0].state == "running"
    )
    assert node.runtime.sandboxes[uid].latest("main").pid == pid
    await node.delete("p")
    await node.gone("p")
    assert node.records() == set()


@pytest.mark.slow
async def test_a_pod_that_went_while_there_was_no_kubelet(node, plugin):
    await node.claim("c", 0)
    pod = await node.pod("p", "c")
    await node.phase("p", "Running")
    pid = node.runtime.sandboxes[pod["metadata"]["uid"]].latest("main").pid
    await node.stop_kubelet()
    await node.delete("p", gracePeriodSeconds="0")
    await node.gone("p")
    await node.start_kubelet()
    await until(lambda: not node.records() and not node.kubelet.claims.infos)
    await until(lambda: not node.runtime.sandboxes)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
async def test_a_new_runtime_starts_the_containers_again(node, plugin):
    await node.claim("c", 0)
    pod = await node.pod("p", "c")
    await node.phase("p", "Running")
    uid = pod["metadata"]["uid"]
    await node.stop_kubelet()
    for each in list(node.runtime.sandboxes):
        await node.runtime.remove(each)  # as after a reboot
    await node.start_kubelet()
    status = await node.wait(lambda s: s["containerStatuses"][0]["restartCount"] == 1, "p")
    assert status["phase"] == "Running"
    assert [each["ip"] for each in status["podIPs"]] == [status["podIP"]]
    assert "reason" not in {each["type"]: each for each in status["conditions"]}["Ready"]
    assert node.kubelet.pods[uid].containers[0].devices


class Line:
    """The connection to the API server, which a test can cut."""

    def __init__(self, port):
        self.port, self.cut, self._tasks = port, False, {}

    async def serve(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    def _accept(self, reader, writer):
        if self.cut:
            writer.close()
        else:
            self._tasks[asyncio.create_task(self._carry(reader, writer))] = writer

    async def _carry(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        await asyncio.wait(
            [asyncio.create_task(_pump(reader, back)), asyncio.create_task(_pump(there, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for each in (writer, back):
            each.transport.abort()

    async def end(self):
        self.cut = True
        for writer in self._tasks.values():
            writer.transport.abort()
        await asyncio.gather(*self._tasks)

    async def close(self):
        await self.end()
        self._server.close()
        await self._server.wait_closed()


async def _pump(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)


@pytest.mark.slow
async def test_the_end_of_a_pod_while_the_api_server_is_away(node, plugin):
    await node.stop_kubelet()
    line = Line(int(node.api.address.rpartition(":")[2]))
    port = await line.serve()
    text = (node.folder / "kubeconfig").read_text().replace(f":{line.port}/", f":{port}/")
    (node.folder / "kubeconfig-line").write_text(text)
    asker = client.Client(
        auth.client_config(str(node.folder / "kubeconfig-line"), node.folder), agent="kubelet"
    )
    await node.start_kubelet(client_=asker)
    await node.registered()
    await node.claim("c", 0)
    word = node.folder / "word"
    wait = f"until test -e {word}; do sleep 0.02; done"
    await node.pod("p", "c", command=("sh", "-c", wait), restartPolicy="Never")
    await node.phase("p", "Running")
    await line.end()
    word.touch()
    await until(lambda: not node.records())
    assert (await node.status("p"))["phase"] == "Running"
    line.cut = False
    await node.phase("p", "Succeeded")
    await node.stop_kubelet()
    await asker.close()
    await line.close()


async def test_a_damaged_record_is_said_so(node):
    await node.stop_kubelet()
    (node.folder / "kubelet" / "dra_manager_state").write_text("{")
    with pytest.raises(errors.Fatal, match="dra_manager_state is damaged"):
        await (await node.start_kubelet(running=False)).run()


@pytest.mark.slow
async def test_a_pod_stays_until_its_driver_is_back(node, plugin):
    await node.claim("c", 0)
    await node.pod("p", "c")
    await node.phase("p", "Running")
    plugin.kill()
    await plugin.wait()
    await node.delete("p")
    await node.told("FailedUnprepareDynamicResources", DRIVER)
    assert (await node.status("p"))["phase"] == "Running"
    await node.start_plugin()
    await node.gone("p")
    assert not node.records()


async def test_a_start_of_the_kubelet_deletes_the_slices_and_the_plugin_brings_them_back(
    node, plugin
):
    before = await node.published()
    await node.stop_kubelet()
    await node.start_kubelet()
    await until(lambda: node.kubelet.plugins.plugins.get(DRIVER))
    after = await node.published(lambda slices: slices and slices.keys().isdisjoint(before))
    assert sorted(before.values()) == sorted(after.values())


@pytest.mark.slow
async def test_slices_of_a_plugin_that_does_not_come_back(node, plugin):
    await node.published()
    plugin.kill()
    await node.published(lambda slices: not slices)
    await node.start_plugin()
    await node.published()


@pytest.mark.slow
async def test_a_plugin_that_comes_back_in_time_keeps_its_slices():
    async with sim_node.node() as node:
        await node.start_kubelet(wiping_delay=60)
        plugin = await node.start_plugin()
        await node.registered()
        before = await node.published()
        plugin.terminate()
        await plugin.wait()
        await until(lambda: not node.kubelet.plugins.plugins.get(DRIVER))
        await node.start_plugin()
        await node.registered()
        assert await node.published() == before
        assert not node.kubelet.plugins._wipes


@pytest.mark.slow
async def test_of_two_instances_the_newest_is_called(node):
    uids = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"]
    old = await node.start_plugin(pod_uid=uids[0])
    await node.registered()
    await node.published()
    await node.start_plugin(pod_uid=uids[1])
    known = node.kubelet.plugins.plugins
    await until(lambda: len(known[DRIVER]) == 2 and all(each.connected for each in known[DRIVER]))
    assert uids[1] in node.kubelet.plugins.get(DRIVER).endpoint
    await node.claim("c", 0)
    await node.pod("p", "c")
    await node.phase("p", "Running")
    slices = await node.published()
    old.terminate()
    await old.wait()
    await until(lambda: len(known[DRIVER]) == 1)
    await node.delete("p")
    await node.gone("p")
    assert await node.published() == slices


@pytest.mark.slow
async def test_health_of_a_gpu_is_in_the_pods_status(node, plugin):
    def health(status):
        (row,) = status["containerStatuses"][0].get("allocatedResourcesStatus") or [
            {"resources": []}
        ]
        return [each["health"] for each in row["resources"]]

    claim = await node.claim("c", 0)
    await node.pod("p", "c")
    status = await node.wait(
        lambda s: s.get("phase") == "Running" and health(s) == ["Healthy"], "p"
    )
    (row,) = status["containerStatuses"][0]["allocatedResourcesStatus"]
    assert row["name"] == "claim:c-c"
    assert row["resources"][0]["resourceID"] == names.cdi_id(
        claim["metadata"]["uid"], node.gpus[0].name, None
    )
    node.give("wedge", 0)
    status = await node.wait(lambda s: health(s) == ["Unhealthy"], "p")
    assert status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["message"]
    plugin.kill()
    await node.wait(lambda s: health(s) == ["Unknown"], "p")
