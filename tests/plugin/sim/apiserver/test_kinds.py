"""Compares the served kinds with the discovery documents of the releases."""

import json
from pathlib import Path

import pytest

from claimd.sim.apiserver import kinds
from claimd.sim.apiserver.wire import protobuf

RECORDED = json.loads((Path(__file__).parents[3] / "cases" / "sim" / "discovery.json").read_text())


# The default cluster that was asked does not serve these: their feature gates were off.
VERBS = "create,delete,deletecollection,get,list,patch,update,watch"
GROUP = ("scheduling.k8s.io", "v1beta1")
BEHIND_GATES = {
    kinds.NEWEST: [
        [*GROUP, "podgroups", "PodGroup", True, "podgroup", [], ["status"], VERBS],
        [*GROUP, "workloads", "Workload", True, "workload", [], [], VERBS],
    ]
}


@pytest.mark.parametrize("release", RECORDED)
def test_discovery_of_the_release(release):
    expected = [*RECORDED[release], *BEHIND_GATES.get(release, [])]
    assert sorted(discovered(release)) == sorted(expected)


def test_the_releases_between_them():
    """Their tables come from the sources. They have what both neighbours have, and no more."""
    for release, before, after in (("1.35", "1.34", "1.36"), ("1.36", "1.35", "1.37")):
        plurals, earlier, later = (
            {row[2] for row in discovered(each)} for each in (release, before, after)
        )
        assert earlier <= plurals <= later
    newest = {tuple(row[:3]) for row in discovered(kinds.NEWEST)}
    gone = newest - {tuple(row[:3]) for row in discovered("1.38")}
    assert {version for _, version, _ in gone} == {"v1beta1"}


def discovered(release):
    """The resources that the release serves, as its discovery has them."""
    return [
        [
            served.group,
            version,
            served.kind.resource.plural,
            served.kind.resource.kind,
            served.kind.namespaced,
            served.singular,
            list(served.short_names),
            ["status"] if served.kind.has_status else [],
            ",".join(served.verbs),
        ]
        for served in kinds.api_resources(release)
        for version in served.versions
    ]


def test_other_releases_are_refused():
    with pytest.raises(
        ValueError, match=r"release '1\.20': expected one of 1\.30, 1\.31, 1\.34, 1\.35"
    ):
        kinds.api_resources("1.20")


@pytest.mark.parametrize("release", kinds.RELEASES)
def test_every_kind_of_the_resource_api_has_its_field_table(release):
    for served in kinds.api_resources(release):
        if served.kind.resource.group == kinds.DRA:
            metadata, *others = (
                name for name in served.kind.schema.fields if name not in ("apiVersion", "kind")
            )
            assert (metadata, bool(others)) == ("metadata", True)


def test_every_kind_that_is_kept_is_known_field_by_field():
    kept = set(kinds.kept_names())
    assert kept <= protobuf.tables().kinds.keys()
    assert kinds.is_kept("policy/v1", "PodDisruptionBudget")
    assert not kinds.is_kept("v1", "Pod")
    assert not kinds.is_kept("scheduling.k8s.io/v1beta1", "PodGroup")
    served = {
        (resource.kind.api_version, resource.kind.resource.kind)
        for resource in kinds.api_resources("1.37")
    }
    assert kept <= served


def test_versions_by_preference():
    versions = ["v1alpha3", "v1beta1", "v2", "v1", "v1beta2", "v2beta1", "v1alpha2"]
    assert sorted(versions, key=kinds.priority, reverse=True) == [
        "v2",
        "v1",
        "v2beta1",
        "v1beta2",
        "v1beta1",
        "v1alpha3",
        "v1alpha2",
    ]
