"""The simulated kubelet with a real plugin process and the simulated API server: what happens to pods and claims."""

import json
import os
import signal

import pytest

from plugin import names
from plugin.kubelet import podresources
from tests.support import sim_node
from tests.support.apiserver import until
from tests.support.worlds import DRIVER, NODE

SLEEP = ("sleep", "infinity")


@pytest.fixture
async def node():
    async with sim_node.node() as made:
        await made.start_kubelet()
        yield made


@pytest.fixture
async def plugin(node):
    process = await node.start_plugin(health_interval=1)
    await node.registered()
    return process


def waiting(status):
    """Reason and message of the container that waits."""
    found = ((status.get("containerStatuses") or [{}])[0].get("state") or {}).get("waiting") or {}
    return found.get("reason"), found.get("message", "")


async def test_a_pod_gets_its_gpu_and_gives_it_back(node, plugin):
    claim = await node.claim("c", 0)
    pod = await node.pod("p", "c", command=("sh", "-c", "env; ls /dev/dri 2>/dev/null; sleep 100"))
    status = await node.phase("p", "Running")
    gpu = node.gpus[0]
    seen = node.kubelet.pods[pod["metadata"]["uid"]]
    (container,) = seen.containers
    assert container.devices == tuple(each.path for each in gpu.nodes)
    assert gpu.address in container.env.values()
    assert not [name for name in container.env if "VISIBLE_DEVICES" in name]
    await until(lambda: f"={gpu.address}\n" in node.kubelet.logs(seen.uid, "main"))
    assert node.records() == {claim["metadata"]["uid"]}
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["podIP"] and status["containerStatuses"][0]["state"]["running"]
    await node.delete("p")
    await node.gone("p")
    assert node.records() == set()
    assert not node.kubelet.pods and not node.kubelet.book.entries


async def test_the_node_is_there_and_shows_that_it_lives(node):
    await node.phase_of_node()
    lease = await node.ask("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")
    assert lease["spec"]["holderIdentity"] == NODE


async def test_a_pod_waits_for_a_driver_that_is_not_registered(node):
    await node.claim("c", 0)
    await node.pod("p", "c")
    await node.told("FailedPrepareDynamicResources", f"DRA driver {DRIVER} is not registered")
    assert waiting(await node.status("p")) == ("ContainerCreating", "")
    assert not node.kubelet.book.entries
    await node.start_plugin()
    await node.phase("p", "Running")


async def test_a_prepare_that_failed_or_took_too_long_is_tried_again():
    async with sim_node.node() as node:
        await node.start_kubelet(call=0.5)
        plugin = await node.start_plugin()
        await node.registered()
        node.give("unplug", 0)
        await until(lambda: "is gone from the bus" in node.log())
        await node.claim("c", 0)
        await node.pod("p", "c")
        await node.told("FailedPrepareDynamicResources", f"NodePrepareResources failed for ResourceClaim c: {DRIVER}: ")
        plugin.send_signal(signal.SIGSTOP)
        node.give("plug", 0)
        await node.told("FailedPrepareDynamicResources", f"NodePrepareResources: {DRIVER}: DEADLINE_EXCEEDED")
        plugin.send_signal(signal.SIGCONT)
        await node.phase("p", "Running")


async def test_what_a_driver_says_of_a_claim_is_told_to_the_pod(node, plugin):
    bad = {"driver": DRIVER, "parameters": {"kind": "Nonsense"}}
    await node.claim("c", 0, config=[{"source": "FromClaim", "opaque": bad}])
    await node.claim("d", 1)
    pod = await node.pod("p", "c", "d")
    await node.told("FailedPrepareDynamicResources", f"NodePrepareResources failed for ResourceClaim c: {DRIVER}: ")
    assert "not a GpuConfig" in node.kubelet.pods[pod["metadata"]["uid"]].trouble
    assert (await node.status("p"))["phase"] == "Pending"
    await node.delete("p")
    await node.gone("p")
    assert not node.records() and not node.kubelet.book.entries


async def test_claims_that_a_pod_may_not_use(node, plugin):
    claim = await node.claim("c", 0)
    other = await node.pod("other")
    pod = await node.pod("p", "c", reserved=False)
    await node.told("FailedPrepareDynamicResources", "ResourceClaim c is not reserved for this pod")
    await node.reserve("c", other, pod)
    await node.phase("p", "Running")
    assert node.records() == {claim["metadata"]["uid"]}


async def test_the_plugin_dies_in_the_middle_of_a_prepare(node, plugin):
    claim = await node.claim("c", 0, 2)
    plugin.send_signal(signal.SIGSTOP)
    pod = await node.pod("p", "c")
    await until(lambda: node.kubelet.book.entries)  # the call is under way
    plugin.kill()
    await plugin.wait()
    await node.told("FailedPrepareDynamicResources", "NodePrepareResources: ")
    await node.start_plugin()
    await node.phase("p", "Running")
    devices = [path for each in (0, 2) for path in (node_.path for node_ in node.gpus[each].nodes)]
    assert list(node.kubelet.pods[pod["metadata"]["uid"]].containers[0].devices) == devices
    assert node.records() == {claim["metadata"]["uid"]}


async def test_a_pod_that_is_deleted_does_not_wait_for_a_driver_that_hangs(node, plugin):
    await node.claim("c", 0)
    plugin.send_signal(signal.SIGSTOP)
    await node.pod("p", "c")
    await until(lambda: node.kubelet.book.entries)
    await node.delete("p")
    plugin.send_signal(signal.SIGCONT)
    await node.gone("p")
    assert not node.records() and not node.kubelet.book.entries


async def test_a_claim_of_two_pods_is_given_back_with_the_last(node, plugin):
    claim = await node.claim("c", 0)
    one = await node.pod("one", "c")
    two = await node.pod("two", "c")
    await node.phase("one", "Running")
    await node.phase("two", "Running")
    devices = [node.kubelet.pods[pod["metadata"]["uid"]].containers[0].devices for pod in (one, two)]
    assert devices[0] == devices[1] != ()
    await node.delete("one")
    await node.gone("one")
    assert node.records() == {claim["metadata"]["uid"]}
    await node.delete("two")
    await node.gone("two")
    assert node.records() == set()


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
    await until(lambda: uid in node.kubelet.pods and node.kubelet.pods[uid].containers[0].state == "running")
    assert node.runtime.sandboxes[uid].latest("main").pid == pid
    await node.delete("p")
    await node.gone("p")
    assert node.records() == set()


async def test_a_pod_that_went_while_there_was_no_kubelet(node, plugin):
    await node.claim("c", 0)
    pod = await node.pod("p", "c")
    await node.phase("p", "Running")
    pid = node.runtime.sandboxes[pod["metadata"]["uid"]].latest("main").pid
    await node.stop_kubelet()
    await node.delete("p", gracePeriodSeconds="0")
    await node.gone("p")
    await node.start_kubelet()
    await until(lambda: not node.records() and not node.kubelet.book.entries, 10)
    await until(lambda: not node.runtime.sandboxes)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_start_of_the_kubelet_deletes_the_slices_and_the_plugin_brings_them_back(node, plugin):
    before = await node.published()
    await node.stop_kubelet()
    await node.start_kubelet()
    await until(lambda: node.kubelet.plugins.instances.get(DRIVER))
    after = await node.published(lambda slices: slices and slices.keys().isdisjoint(before))
    assert sorted(before.values()) == sorted(after.values())


async def test_slices_of_a_plugin_that_does_not_come_back(node, plugin):
    await node.published()
    plugin.kill()
    await node.published(lambda slices: not slices)
    await node.start_plugin()
    await node.published()


async def test_a_plugin_that_comes_back_in_time_keeps_its_slices():
    async with sim_node.node() as node:
        await node.start_kubelet(wipe=10)
        plugin = await node.start_plugin()
        await node.registered()
        before = await node.published()
        plugin.terminate()
        await plugin.wait()
        await until(lambda: not node.kubelet.plugins.instances.get(DRIVER))
        await node.start_plugin()
        await node.registered()
        assert await node.published() == before
        assert not node.kubelet.plugins._wipes


async def test_of_two_instances_the_newest_is_called(node):
    uids = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"]
    old = await node.start_plugin(pod_uid=uids[0])
    await node.registered()
    await node.published()
    await node.start_plugin(pod_uid=uids[1])
    known = node.kubelet.plugins.instances
    await until(lambda: len(known[DRIVER]) == 2 and all(each.connected for each in known[DRIVER]), 15)
    assert uids[1] in node.kubelet.plugins.pick(DRIVER).endpoint
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


async def test_health_of_a_gpu_is_in_the_pods_status(node, plugin):
    def health(status):
        (row,) = status["containerStatuses"][0].get("allocatedResourcesStatus") or [{"resources": []}]
        return [each["health"] for each in row["resources"]]

    claim = await node.claim("c", 0)
    await node.pod("p", "c")
    status = await node.wait(lambda s: s.get("phase") == "Running" and health(s) == ["Healthy"], "p")
    (row,) = status["containerStatuses"][0]["allocatedResourcesStatus"]
    assert row["name"] == "claim:c-c"
    assert row["resources"][0]["resourceID"] == names.cdi_id(claim["metadata"]["uid"], node.gpus[0].name, None)
    node.give("wedge", 0)
    status = await node.wait(lambda s: health(s) == ["Unhealthy"], "p")
    assert status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["message"]
    plugin.kill()
    await node.wait(lambda s: health(s) == ["Unknown"], "p")


async def test_what_the_kubelet_tells_of_its_pods(node, plugin):
    claim = await node.claim("c", 0, 2)
    await node.pod("p", "c")
    await node.pod("plain")
    await node.phase("p", "Running")
    await node.phase("plain", "Running")
    told = await podresources.pods(names.pod_resources_socket(node.folder / "kubelet"))
    ids = {names.cdi_id(claim["metadata"]["uid"], node.gpus[each].name, None) for each in (0, 2)}
    assert told == {("default", "p"): {"c": ids}, ("default", "plain"): {}}


async def test_a_request_of_a_claim_is_all_that_a_container_gets(node, plugin):
    await node.claim("c", 0, 2)
    uses = {"claims": [{"name": "c-c", "request": "r1"}]}
    containers = [
        {"name": "main", "image": "i", "resources": uses},
        {"name": "none", "image": "i"},
    ]
    pod = await node.pod("p", "c", containers=containers)
    await node.phase("p", "Running")
    main, none = node.kubelet.pods[pod["metadata"]["uid"]].containers
    assert main.devices == tuple(each.path for each in node.gpus[2].nodes)
    assert none.devices == ()


async def test_a_cdi_file_of_others_that_spoils_ours(node, plugin):
    claim = await node.claim("c", 0)
    device = names.cdi_device(claim["metadata"]["uid"], node.gpus[0].name, None)
    bad = {"cdiVersion": "0.5.0", "kind": names.CDI_KIND}
    bad |= {"devices": [{"name": device, "containerEdits": {"env": ["A=b"]}}]}
    (node.folder / "cdi").mkdir(exist_ok=True)
    (node.folder / "cdi" / "bad.json").write_text(json.dumps(bad))
    await node.pod("p", "c")
    status = await node.wait(lambda s: waiting(s)[0] == "CreateContainerError", "p")
    assert "unresolvable CDI devices" in waiting(status)[1] and "bad.json" in waiting(status)[1]
    (node.folder / "cdi" / "bad.json").unlink()
    await node.phase("p", "Running")


async def test_pods_that_end(node, plugin):
    claim = await node.claim("c", 0)
    await node.pod("good", "c", command=("true",), restartPolicy="Never")
    status = await node.phase("good", "Succeeded")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert node.records() == set(), f"{claim['metadata']['name']} is given back before anybody hears of the end"
    await node.pod("bad", command=("sh", "-c", "exit 4"), restartPolicy="OnFailure")
    status = await node.wait(lambda s: waiting(s)[0] == "CrashLoopBackOff", "bad")
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 4
    await node.wait(lambda s: s["containerStatuses"][0]["restartCount"] >= 2, "bad")
    first = {"name": "first", "image": "i", "command": ["sh", "-c", "echo first"]}
    pod = await node.pod("late", initContainers=[first])
    status = await node.phase("late", "Running")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert node.kubelet.logs(pod["metadata"]["uid"], "first") == "first\n"
    await node.delete("late")
    await node.gone("late")


async def test_a_pod_that_others_run_is_let_alone(node):
    await node.pod("mirror", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    await node.pod("p")
    await node.phase("p", "Running")
    assert [each.name for each in node.kubelet.pods.values()] == ["p"]
    assert (await node.status("mirror")).get("phase") in (None, "Pending")
