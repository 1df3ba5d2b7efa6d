"""Tests of the background work: default accounts, garbage, and ends of namespaces."""

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim.apiserver.server import Options, serve

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"


async def test_where_nobody_else_does_it_ends_namespaces(connect, builders, until):
    async with serve(Options(end_namespaces=True)) as api, connect(api) as ask:
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        claims = CLAIMS.replace("default", "team")
        await ask("POST", claims, builders["claim"]("c", finalizers=["example.com/wait"]))
        await ask("DELETE", "/api/v1/namespaces/team")
        kind = api.catalog.kind("resourceclaims", "resource.k8s.io").resource
        await until(
            lambda: "deletionTimestamp" in api.registry.store.get(kind, "team", "c")["metadata"]
        )
        with pytest.raises(errors.Forbidden, match="because it is being terminated"):
            await ask("POST", claims, builders["claim"]("d"))
        namespace = await ask("GET", "/api/v1/namespaces/team")
        assert namespace["status"] == {"phase": "Terminating"}
        await ask("PATCH", f"{claims}/c", {"metadata": {"finalizers": None}}, content_type=MERGE)
        namespaces = api.catalog.kind("namespaces").resource
        await until(lambda: api.registry.store.find(namespaces, "", "team") is None)


async def test_with_controllers_beside_it_namespaces_are_left_to_them(connect, until):
    async with serve(Options()) as api, connect(api) as ask:
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        await ask("DELETE", "/api/v1/namespaces/team")
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
        accounts = api.catalog.kind("serviceaccounts").resource
        await until(lambda: api.registry.store.find(accounts, "other", "default"))
        team = await ask("GET", "/api/v1/namespaces/team")
        assert team["spec"] == {"finalizers": ["kubernetes"]}


async def test_the_default_account_comes_back(connect, until):
    async with serve(Options()) as api, connect(api) as ask:
        accounts = api.catalog.kind("serviceaccounts").resource
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        before = await ask("GET", path)
        await ask("DELETE", path)
        await until(lambda: api.registry.store.find(accounts, "default", "default"))
        assert (await ask("GET", path))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_without_it_nothing_goes_on(connect, builders):
    async with serve(Options(housekeeping=False)) as api, connect(api) as ask:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "gone"}
        await ask("POST", CLAIMS, builders["claim"]("c", ownerReferences=[owner]))
        assert await ask("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        for _ in range(10):
            assert await ask("GET", f"{CLAIMS}/c")
