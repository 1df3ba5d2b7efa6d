"""Tests of groups, versions and resources in discovery."""

import pytest

from claimd.sim.apiserver import kinds
from claimd.sim.apiserver.catalog import Catalog
from claimd.sim.apiserver.handlers.discovery import Discovery

DRA = "resource.k8s.io"


@pytest.fixture
def newest():
    return Discovery(Catalog("1.37"))


def by_name(resources):
    return {resource["name"]: resource for resource in resources["resources"]}


@pytest.mark.parametrize("release", kinds.RELEASES)
def test_the_version_is_that_of_a_patch_release(release):
    version = Discovery(Catalog(release)).version()
    assert version["gitVersion"].startswith(f"v{release}.")
    assert f"{version['major']}.{version['minor'].rstrip('+')}" == release
    assert ("+" in version["minor"]) == (release > kinds.NEWEST), "it is not out yet"
    assert ("emulationMinor" in version) == (release >= "1.34")


def test_groups(newest):
    groups = {group["name"]: group for group in newest.api_groups()["groups"]}
    assert "" not in groups
    versions = [version["version"] for version in groups[DRA]["versions"]]
    assert versions == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    preferred = {"groupVersion": f"{DRA}/v1", "version": "v1"}
    assert groups[DRA]["preferredVersion"] == preferred
    assert groups["authentication.k8s.io"]["versions"][0]["version"] == "v1"


def test_a_resource(newest):
    resources = newest.api_resources("", "v1")
    assert (resources["groupVersion"], "apiVersion" in resources) == ("v1", False)
    pods = by_name(resources)["pods"]
    assert (pods["shortNames"], pods["categories"]) == (["po"], ["all"])
    assert (pods["kind"], pods["singularName"], pods["namespaced"]) == ("Pod", "pod", True)
    secrets = by_name(resources)["secrets"]
    assert "shortNames" not in secrets
    assert "categories" not in secrets
    assert by_name(resources)["nodes"]["namespaced"] is False
    assert "deletecollection" not in by_name(resources)["namespaces"]["verbs"]
    names = [resource["name"] for resource in resources["resources"]]
    assert names == sorted(names)


SUBRESOURCES = {
    ("", "pods/status"): (["get", "patch", "update"], "Pod", None),
    ("", "pods/binding"): (["create"], "Binding", None),
    ("", "pods/eviction"): (["create"], "Eviction", "policy/v1"),
    ("", "pods/log"): (["get"], "Pod", None),
    ("", "namespaces/finalize"): (["update"], "Namespace", None),
    ("", "serviceaccounts/token"): (["create"], "TokenRequest", "authentication.k8s.io/v1"),
    ("apps", "deployments/scale"): (["get", "patch", "update"], "Scale", "autoscaling/v1"),
}


@pytest.mark.parametrize(("group", "name"), SUBRESOURCES)
def test_subresources(newest, group, name):
    verbs, kind, takes = SUBRESOURCES[group, name]
    resource = by_name(newest.api_resources(group, "v1"))[name]
    assert (resource["verbs"], resource["kind"], resource["singularName"]) == (verbs, kind, "")
    group_version = f"{resource['group']}/{resource['version']}" if "group" in resource else None
    assert group_version == takes


def test_reviews(newest):
    resources = newest.api_resources("authorization.k8s.io", "v1")
    assert resources["apiVersion"] == "v1"
    local = by_name(resources)["localsubjectaccessreviews"]
    assert (local["verbs"], local["namespaced"]) == (["create"], True)
    assert by_name(resources)["subjectaccessreviews"]["namespaced"] is False
    assert not newest.api_resources("authorization.k8s.io", "v2")["resources"]


def test_aggregated_has_the_same(newest):
    """Checks that aggregated discovery has each resource of each version, with its subresources."""
    core = newest.aggregate_groups(True, "v2")["items"]
    others = newest.aggregate_groups(False, "v2")["items"]
    assert [group["metadata"].get("name", "") for group in core] == [""]
    for group in (*core, *others):
        name = group["metadata"].get("name", "")
        assert group["metadata"]["creationTimestamp"] is None
        for version in group["versions"]:
            plain = by_name(newest.api_resources(name, version["version"]))
            seen = {}
            for resource in version["resources"]:
                plural = resource["resource"]
                seen[plural] = resource["responseKind"]
                assert resource["verbs"] == plain[plural]["verbs"]
                namespaced = plain[plural]["namespaced"]
                assert resource["scope"] == ("Namespaced" if namespaced else "Cluster")
                assert resource.get("shortNames") == plain[plural].get("shortNames")
                assert resource.get("categories") == plain[plural].get("categories")
                for below in resource.get("subresources", ()):
                    seen[f"{plural}/{below['subresource']}"] = below["responseKind"]
            assert seen == {
                plural: {
                    "group": entry.get("group", name),
                    "version": entry.get("version", version["version"]),
                    "kind": entry["kind"],
                }
                for plural, entry in plain.items()
            }
