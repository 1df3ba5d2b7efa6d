"""Compares the served kinds with the discovery documents of the releases."""

import json
from pathlib import Path

import pytest

from claimd.sim.apiserver import kinds
from claimd.sim.apiserver.wire import protobuf

RECORDED = json.loads((Path(__file__).parents[3] / "cases" / "sim" / "discovery.json").read_text())


@pytest.mark.parametrize("release", kinds.RELEASES)
def test_discovery_of_the_release(release):
    ours = [
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
    assert sorted(ours) == RECORDED[release]


def test_other_releases_are_refused():
    with pytest.raises(
        ValueError, match=r"release '1\.20': expected one of 1\.30, 1\.31, 1\.34, 1\.37"
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
