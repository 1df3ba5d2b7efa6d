"""The server over HTTP, asked by the project's own client."""

import asyncio
import json

import pytest

from plugin.kube import errors, resources, watch
from plugin.sim.apiserver.server import Options, serve

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"


async def test_what_is_there_from_the_start(ask):
    found = await ask("GET", "/api/v1/namespaces")
    names = [item["metadata"]["name"] for item in found["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    default = found["items"][0]
    assert default["spec"] == {"finalizers": ["kubernetes"]}
    assert default["status"] == {"phase": "Active"}
    assert default["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    async with asyncio.timeout(5):
        while not (await ask("GET", "/api/v1/namespaces/default/serviceaccounts"))["items"]:
            await asyncio.sleep(0.01)


async def test_the_life_of_an_object(ask, made):
    created = await ask("POST", CLAIMS, made["claim"]())
    assert created["metadata"]["managedFields"][0]["manager"] == "tester"
    assert await ask("GET", f"{CLAIMS}/c") == created
    patched = await ask(
        "PATCH",
        f"{CLAIMS}/c",
        {"metadata": {"labels": {"a": "b"}}},
        content_type=MERGE,
        fieldManager="me",
    )
    assert patched["metadata"]["labels"] == {"a": "b"}
    stale = created | {"metadata": created["metadata"] | {"labels": {"a": "c"}}}
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await ask("PUT", f"{CLAIMS}/c", stale)
    listed = await ask("GET", "/apis/resource.k8s.io/v1/resourceclaims")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["c"]
    gone = await ask("DELETE", f"{CLAIMS}/c")
    assert gone["metadata"]["uid"] == created["metadata"]["uid"]
    with pytest.raises(errors.NotFound, match=r'resourceclaims\.resource\.k8s\.io "c" not found'):
        await ask("GET", f"{CLAIMS}/c")


async def test_a_mirror_of_a_collection(ask, made, until):
    class Place:
        path, query = SLICES, {"fieldSelector": "spec.driver=gpu.example.com,spec.nodeName=n1"}

        def convert(self, obj):
            return obj

    async def find():
        return place

    place = Place()
    await ask("POST", SLICES, made["slice"]("first"))
    informer = watch.Informer(ask.client, find)
    running = asyncio.create_task(informer.run())
    await until(lambda: set(informer.objects) == {"first"})
    await ask("POST", SLICES, made["slice"]("second"))
    await ask("POST", SLICES, made["slice"]("elsewhere", node="n2"))
    await until(lambda: set(informer.objects) == {"first", "second"})
    await ask("DELETE", f"{SLICES}/first")
    await until(lambda: set(informer.objects) == {"second"})
    running.cancel()


async def test_what_the_plugin_asks(ask, made):
    """Its own typed operations: the newest version is found, a report is applied and taken away."""
    found = resources.Resources(ask.client, "gpu.example.com", "n1")
    created = await ask("POST", CLAIMS, made["claim"]())
    uid = created["metadata"]["uid"]
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    await ask("PATCH", f"{CLAIMS}/c/status", status, content_type=MERGE)
    claim = await found.claim("default", "c")
    assert (found.version, claim.metadata.uid) == ("v1", uid)
    device = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "data": {"a": 1}}
    reported = await found.apply_devices("default", "c", uid, [device], "claimd")
    assert [entry.device for entry in reported.status.devices] == ["gpu-0"]
    await found.remove_devices(reported, "gpu.example.com")
    assert (
        "devices" not in (await ask("GET", f"{CLAIMS}/c"))["status"]
        or not (await ask("GET", f"{CLAIMS}/c"))["status"]["devices"]
    )
    with pytest.raises(errors.Invalid, match='metadata.uid: Invalid value: "another"'):
        await found.apply_devices("default", "c", "another", [device], "claimd")


async def test_old_and_new_ways_of_watching(ask, made):
    await ask("POST", SLICES, made["slice"]())
    for path, query in (
        (SLICES, {"watch": "1"}),
        ("/apis/resource.k8s.io/v1/watch/resourceslices", {}),
    ):
        lines = ask.client.lines(path, query, idle=5)
        event = json.loads(await anext(lines))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "s")
        await lines.aclose()


async def test_alone_it_ends_namespaces(connect, made, until):
    async with serve(Options(end_namespaces=True)) as api, connect(api) as ask:
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        claims = CLAIMS.replace("default", "team")
        await ask("POST", claims, made["claim"]("c", finalizers=["example.com/wait"]))
        await ask("DELETE", "/api/v1/namespaces/team")
        kind = api.catalog.kind("resourceclaims", "resource.k8s.io").resource
        await until(
            lambda: "deletionTimestamp" in api.registry.store.get(kind, "team", "c")["metadata"]
        )
        with pytest.raises(errors.Forbidden, match="because it is being terminated"):
            await ask("POST", claims, made["claim"]("d"))
        found = await ask("GET", "/api/v1/namespaces/team")
        assert found["status"] == {"phase": "Terminating"}
        await ask("PATCH", f"{claims}/c", {"metadata": {"finalizers": None}}, content_type=MERGE)
        namespaces = api.catalog.kind("namespaces").resource
        await until(lambda: api.registry.store.find(namespaces, "", "team") is None)


PODS = "/api/v1/namespaces/default/pods"


async def bound(ask, name="p", **spec):
    containers = {"containers": [{"name": "c", "image": "i"}]}
    await ask("POST", PODS, {"metadata": {"name": name}, "spec": containers | spec})
    if "nodeName" not in spec:
        await ask("POST", f"{PODS}/{name}/binding", {"target": {"kind": "Node", "name": "n1"}})
    return await ask("GET", f"{PODS}/{name}")


async def test_binding_a_pod(ask):
    pod = await bound(ask)
    assert pod["spec"]["nodeName"] == "n1"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]
    with pytest.raises(errors.Conflict, match='pod p is already assigned to node "n1"'):
        await ask("POST", f"{PODS}/p/binding", {"target": {"name": "n2"}})
    listed = await ask("GET", "/api/v1/pods", fieldSelector="spec.nodeName=n1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
    with pytest.raises(errors.NotFound):
        await ask("POST", f"{PODS}/q/binding", {"target": {"name": "n2"}})


async def test_a_pod_on_a_node_goes_when_its_kubelet_says_so(ask):
    await bound(ask, terminationGracePeriodSeconds=20)
    going = await ask("DELETE", f"{PODS}/p")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 20
    longer = await ask("DELETE", f"{PODS}/p", gracePeriodSeconds="60")
    assert longer["metadata"] == going["metadata"]
    shorter = await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < going["metadata"]["deletionTimestamp"]
    with pytest.raises(
        errors.Conflict, match="pod p is being deleted, cannot be assigned to a host"
    ):
        await ask("POST", f"{PODS}/p/binding", {"target": {"name": "n2"}})
    await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    with pytest.raises(errors.NotFound):
        await ask("GET", f"{PODS}/p")


async def test_an_eviction_is_a_deletion(ask):
    pod = await bound(ask)
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "another"}}}
    with pytest.raises(errors.Conflict, match="the UID in the precondition"):
        await ask("POST", f"{PODS}/p/eviction", eviction)
    eviction["deleteOptions"] = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    assert (await ask("POST", f"{PODS}/p/eviction", eviction))["status"] == "Success"
    assert (await ask("GET", f"{PODS}/p"))["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_bookmarks_and_events_in_the_version_that_was_asked_for(connect, made):
    async with serve(Options(bookmark_interval=0.05)) as api, connect(api) as ask:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(api.registry.store.resource_version),
        }
        old = CLAIMS.replace("/v1/", "/v1beta1/")
        lines = ask.client.lines(old, query, idle=5)
        bookmark = json.loads(await anext(lines))
        assert (bookmark["type"], bookmark["object"]["apiVersion"]) == (
            "BOOKMARK",
            "resource.k8s.io/v1beta1",
        )
        created = await ask("POST", CLAIMS, made["claim"]())
        event = bookmark
        while event["type"] == "BOOKMARK":
            event = json.loads(await anext(lines))
        assert (
            event["object"]["spec"]["devices"]["requests"][0]["deviceClassName"]
            == "gpu.example.com"
        )
        bookmark = json.loads(await anext(lines))
        assert (
            bookmark["object"]["metadata"]["resourceVersion"]
            == created["metadata"]["resourceVersion"]
        )
        await lines.aclose()
