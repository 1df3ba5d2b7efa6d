"""Tests of the properties that a kind has by default."""

from claimd.sim.apiserver.types.kind import Kind
from claimd.sim.apiserver.types.resource import GroupResource

MAPS = "/api/v1/namespaces/default/configmaps"


def test_names_of_its_versions():
    for group, api_version in (("", "v1"), ("g.com", "g.com/v1")):
        kind = Kind(GroupResource("maps", group, "Map"), "v1", True, False, False)
        assert kind.api_version == api_version


async def test_a_plain_kind_is_namespaced_without_status_and_generation(raw):
    created = await raw("POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    assert created.status == 201
    assert created.json["metadata"]["namespace"] == "default"
    assert "generation" not in created.json["metadata"]
    assert "status" not in created.json
    assert (await raw("GET", f"{MAPS}/m/status")).status == 404
    assert (await raw("POST", "/api/v1/configmaps", {"metadata": {"name": "n"}})).status == 405
    listed = await raw("GET", "/api/v1")
    names = [resource["name"] for resource in listed.json["resources"]]
    assert "configmaps" in names
    assert "configmaps/status" not in names
