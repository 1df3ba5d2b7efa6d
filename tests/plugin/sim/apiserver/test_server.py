"""Tests of the server over HTTP, with the project's own client."""

import asyncio
import http.client
import json
import ssl
import urllib.request

import pytest

from claimd.kubernetes.kube import errors, resources, watch
from claimd.sim.apiserver.server import Options, serve

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"


async def test_what_is_there_from_the_start(ask):
    namespaces = await ask("GET", "/api/v1/namespaces")
    names = [item["metadata"]["name"] for item in namespaces["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    default = namespaces["items"][0]
    assert default["spec"] == {"finalizers": ["kubernetes"]}
    assert default["status"] == {"phase": "Active"}
    assert default["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    async with asyncio.timeout(30):
        while not (await ask("GET", "/api/v1/namespaces/default/serviceaccounts"))["items"]:
            await asyncio.sleep(0.01)


async def test_the_life_of_an_object(ask, builders):
    created = await ask("POST", CLAIMS, builders["claim"]())
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


async def test_a_mirror_of_a_collection(ask, builders, until):
    class Place:
        path, query = SLICES, {"fieldSelector": "spec.driver=gpu.example.com,spec.nodeName=n1"}

        def convert(self, obj):
            return obj

    async def find():
        return place

    place = Place()
    await ask("POST", SLICES, builders["slice"]("first"))
    informer = watch.Informer(ask.client, find)
    running = asyncio.create_task(informer.run())
    await until(lambda: set(informer.objects) == {"first"})
    await ask("POST", SLICES, builders["slice"]("second"))
    await ask("POST", SLICES, builders["slice"]("elsewhere", node="n2"))
    await until(lambda: set(informer.objects) == {"first", "second"})
    await ask("DELETE", f"{SLICES}/first")
    await until(lambda: set(informer.objects) == {"second"})
    running.cancel()


async def test_what_the_plugin_asks(ask, builders):
    """Runs the client's typed operations: finds the newest version, adds and removes a report."""
    collections = resources.Resources(ask.client, "gpu.example.com", "n1")
    created = await ask("POST", CLAIMS, builders["claim"]())
    uid = created["metadata"]["uid"]
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    await ask("PATCH", f"{CLAIMS}/c/status", status, content_type=MERGE)
    claim = await collections.claim("default", "c")
    assert (collections.version, claim.metadata.uid) == ("v1", uid)
    device = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "data": {"a": 1}}
    assert await collections.apply_devices("default", "c", uid, [device], "claimd") is None
    reported = await collections.claim("default", "c")
    assert [entry.device for entry in reported.status.devices] == ["gpu-0"]
    await collections.remove_devices(reported, "gpu.example.com")
    assert (
        "devices" not in (await ask("GET", f"{CLAIMS}/c"))["status"]
        or not (await ask("GET", f"{CLAIMS}/c"))["status"]["devices"]
    )
    with pytest.raises(errors.Invalid, match='metadata.uid: Invalid value: "another"'):
        await collections.apply_devices("default", "c", "another", [device], "claimd")


async def test_an_address_says_who_asks(api):
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

    def who(url):
        request = urllib.request.Request(
            f"{url}{review}", b"{}", {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["status"]["userInfo"]["username"]

    assert await asyncio.to_thread(who, api.url) == "kubernetes-admin"
    jane = api.url_as(api.token_of("jane", []))
    assert await asyncio.to_thread(who, jane) == "jane"


async def test_with_tls_a_token_is_in_a_header_alone(connect, builders):
    async with serve(Options(tls=True)) as api, connect(api) as ask:
        await ask("POST", CLAIMS, builders["claim"]())
        assert (await ask("GET", f"{CLAIMS}/c"))["metadata"]["name"] == "c"
        with pytest.raises(ValueError, match="no part of an address"):
            _ = api.url
        with pytest.raises(errors.NotFound):
            await ask("GET", f"/as/{api.token}{CLAIMS}/c")


async def test_a_connection_with_tls_is_kept_and_used_again():
    """Uses a connection again, even after the end of a watch, as urllib3 does."""

    def ask(api):
        context = ssl.create_default_context(cadata=api.ca)
        address = api.address.removeprefix("https://")
        connection = http.client.HTTPSConnection(address, timeout=60, context=context)
        headers = {"Authorization": f"Bearer {api.token}"}
        sockets = set()
        for path in ("/version", "/api/v1/nodes", "/api/v1/pods?watch=1&timeoutSeconds=1") * 2:
            connection.request("GET", path, headers=headers)
            sockets.add(connection.sock)
            answer = connection.getresponse()
            assert answer.read() is not None
            assert answer.status == 200
        connection.close()
        return len(sockets)

    async with serve(Options(tls=True)) as server:
        assert await asyncio.to_thread(ask, server) == 2, "one more, since the watch closes its own"
