"""Tests of the objects that every cluster has."""

from claimd.sim.apiserver.server import Options, serve

RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def test_roles_and_who_they_are_bound_to(ask):
    roles = await ask("GET", f"{RBAC}/clusterroles")
    bindings = await ask("GET", f"{RBAC}/clusterrolebindings")
    names = {role["metadata"]["name"] for role in roles["items"]}
    bound = {
        binding["roleRef"]["name"]: {subject["name"] for subject in binding["subjects"]}
        for binding in bindings["items"]
    }
    assert set(bound) <= names
    assert bound["cluster-admin"] == {"system:masters"}
    assert bound["system:discovery"] == {"system:authenticated"}
    assert bound["system:public-info-viewer"] == {
        "system:authenticated",
        "system:unauthenticated",
    }


async def test_namespaces(ask):
    listed = await ask("GET", "/api/v1/namespaces")
    assert {"default", "kube-system"} <= {item["metadata"]["name"] for item in listed["items"]}


async def test_priority_classes(ask):
    listed = await ask("GET", "/apis/scheduling.k8s.io/v1/priorityclasses")
    assert {item["metadata"]["name"]: item["value"] for item in listed["items"]} == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }


async def test_what_is_there_is_left_alone(tmp_path, connect):
    """Checks that a later server keeps roles that a user has changed."""
    options, name = Options(db=tmp_path / "sim.db"), f"{RBAC}/clusterroles/system:discovery"
    async with serve(options) as api, connect(api) as ask:
        role = await ask("GET", name)
        await ask("PUT", name, role | {"rules": []})
    async with serve(options) as api, connect(api) as ask:
        assert not (await ask("GET", name)).get("rules")
