"""The kubelet's requests to the API server: claims, pods, events, slices, the node and its lease."""

import asyncio

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.kubelet.api import KubeletApi
from claimd.sim.requests import Request, patch_status
from tests.support import planes
from tests.support.plane import create, until


@pytest.fixture
async def kubelet(connect):
    async with serve(Options()) as server:
        http = connect(server)
        yield KubeletApi(http, "node-1")
        await http.close()


async def list_objects(kubelet, resource, namespace=""):
    request = Request(method="GET", resource=resource, namespace=namespace)
    return (await kubelet._api.send(request))["items"]


async def make(kubelet, obj):
    return await kubelet._api.send(create(obj))


async def test_a_claim_as_drivers_are_told_of_it(kubelet):
    served_claim = await make(kubelet, planes.claim("c"))
    claim = await kubelet.get_claim("default", "c")
    assert (claim.metadata.name, claim.metadata.uid) == ("c", served_claim["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await kubelet.get_claim("default", "d")


async def test_an_event_is_told_once_until_its_pod_is_gone(kubelet):
    pod = await make(kubelet, planes.pod("p"))
    for reason, message in (("A", "m"), ("A", "m"), ("B", "m"), ("A", "n")):
        await kubelet.record_event(pod, reason, message)
    await kubelet.record_event(pod, "Normal", "m", warning=False)
    events = await list_objects(kubelet, "events")
    told = sorted((event["reason"], event["note"], event["type"]) for event in events)
    assert told == [
        ("A", "m", "Warning"),
        ("A", "n", "Warning"),
        ("B", "m", "Warning"),
        ("Normal", "m", "Normal"),
    ]
    assert {event["regarding"]["kind"] for event in events} == {"Pod"}
    assert {event["reportingController"] for event in events} == {"kubelet"}

    kubelet.forget_events("another")
    await kubelet.record_event(pod, "A", "m")
    assert len(await list_objects(kubelet, "events")) == 4
    kubelet.forget_events(pod["metadata"]["uid"])
    await kubelet.record_event(pod, "A", "m")
    assert len(await list_objects(kubelet, "events")) == 5


async def test_an_event_that_cannot_be_told_is_nobodys_trouble(kubelet):
    gone = planes.pod("p") | {"metadata": {"name": "p", "namespace": "no-such", "uid": "u"}}
    await kubelet.record_event(gone, "A", "m")
    assert await list_objects(kubelet, "events") == []


async def test_the_status_of_a_pod_is_seen_at_once(kubelet):
    pod = await make(kubelet, planes.pod("p", on="node-1"))
    watching = asyncio.create_task(kubelet.pods.run())
    await until(lambda: kubelet.pods.objects)
    watching.cancel()
    await kubelet.patch_pod_status(pod, {"phase": "Running"})
    assert kubelet.pods.objects["default/p"]["status"]["phase"] == "Running"
    with pytest.raises(errors.Conflict):
        other = pod | {"metadata": pod["metadata"] | {"uid": "another"}}
        await kubelet.patch_pod_status(other, {"phase": "Failed"})


async def test_a_pod_is_removed_and_may_be_gone_already(kubelet):
    pod = await make(kubelet, planes.pod("p"))
    await kubelet.remove_pod(pod | {"metadata": pod["metadata"] | {"uid": "another"}})
    assert len(await list_objects(kubelet, "pods")) == 1
    await kubelet.remove_pod(pod)
    assert await list_objects(kubelet, "pods") == []
    await kubelet.remove_pod(pod)


async def test_slices_of_one_driver_or_of_all_and_of_this_node_alone(kubelet):
    for node, driver in (("node-1", "a.com"), ("node-1", "b.com"), ("node-2", "a.com")):
        await make(kubelet, planes.slice_(node, driver=driver))

    async def left_slices():
        specs = [slice_["spec"] for slice_ in await list_objects(kubelet, "resourceslices")]
        return sorted((spec["nodeName"], spec["driver"]) for spec in specs)

    await kubelet.wipe_slices("a.com")
    assert await left_slices() == [("node-1", "b.com"), ("node-2", "a.com")]
    await kubelet.wipe_slices()
    assert await left_slices() == [("node-2", "a.com")]


async def test_the_node_is_made_and_later_labelled_anew(kubelet):
    first = await kubelet.ensure_node({"a": "1"}, {"capacity": {"cpu": "1"}})
    again = await kubelet.ensure_node({"b": "2"}, {"capacity": {"cpu": "2"}})
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert again["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert again["status"]["capacity"]["cpu"] == "2"


async def test_the_lease_is_made_and_later_renewed(kubelet):
    await kubelet.renew_lease("uid-1", 40)
    [first] = await list_objects(kubelet, "leases", "kube-node-lease")
    assert first["metadata"]["name"] == "node-1"
    [owner] = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "node-1", "uid-1")
    assert first["spec"]["holderIdentity"] == "node-1"
    assert first["spec"]["leaseDurationSeconds"] == 40

    await kubelet.renew_lease("uid-1", 50)
    [second] = await list_objects(kubelet, "leases", "kube-node-lease")
    assert second["spec"]["leaseDurationSeconds"] == 50
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert second["metadata"]["uid"] == first["metadata"]["uid"]


async def test_a_node_says_of_itself_what_is_true(kubelet):
    """The kubelet corrects conditions that were set to Unknown."""
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready]}
    await kubelet.correct_node(status)  # it is not there yet
    node = await kubelet.ensure_node({}, status)
    version = node["metadata"]["resourceVersion"]
    await kubelet.correct_node(status)
    assert (await list_objects(kubelet, "nodes"))[0]["metadata"]["resourceVersion"] == version

    unknown = {"conditions": [ready | {"status": "Unknown"}]}
    await kubelet._api.send(patch_status("nodes", node, unknown))
    await kubelet.correct_node(status)
    (condition,) = (await list_objects(kubelet, "nodes"))[0]["status"]["conditions"]
    assert condition["status"] == "True"
