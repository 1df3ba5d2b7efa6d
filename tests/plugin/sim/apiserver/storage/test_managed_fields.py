"""Tests of server-side apply and owners of fields, compared with the API server's own library.

The cases are recorded from k8s.io/apimachinery 0.37.1 (`tests/oracle/apply`), without times. Where
Go is installed, the library is asked about random cases, too.
"""

import json
from pathlib import Path

import pytest

from claimd.sim.apiserver.storage import managed_fields, patches
from claimd.sim.apiserver.types import schema, status_errors
from tests.support import apply_steps, oracle

CASES = json.loads((Path(__file__).parents[4] / "cases" / "sim" / "apply.json").read_text())
CLAIM = schema.kind_schema("resource.k8s.io", "v1", "ResourceClaim")
VERSION = "resource.k8s.io/v1"


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['start']['kind']}-{len(case['steps'])}"
)
def test_recorded_steps(case):
    assert apply_steps.ours(case) == case["answers"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(oracle.missing("apply")), reason=str(oracle.missing("apply")))
def test_same_as_the_api_servers_library():
    with oracle.Oracle("apply") as kubernetes:
        for seed in range(300):
            steps = apply_steps.numbered(seed)
            assert (
                apply_steps.theirs(kubernetes, steps) or apply_steps.ours(steps)
            ) == apply_steps.ours(steps), seed


def apply(live, config, manager="a", force=False, time="T1", subresource=""):
    config = {"apiVersion": VERSION, "kind": "ResourceClaim", "metadata": {"name": "c"}} | config
    return managed_fields.apply(
        CLAIM,
        live,
        config,
        managed_fields.Manager(manager, "Apply", VERSION, subresource),
        force,
        time,
    )


NEW = {"apiVersion": VERSION, "kind": "ResourceClaim", "metadata": {}}


def entries(obj):
    return {
        (entry["manager"], entry.get("subresource", "")): entry
        for entry in obj["metadata"]["managedFields"]
    }


def test_the_time_is_that_of_the_last_change():
    first = apply(NEW, {"metadata": {"name": "c", "labels": {"x": "1"}}})
    again = apply(first, {"metadata": {"name": "c", "labels": {"x": "1"}}}, time="T2")
    assert again == first
    other = apply(first, {"metadata": {"name": "c", "labels": {"y": "1"}}}, manager="b", time="T3")
    assert [entry["time"] for entry in other["metadata"]["managedFields"]] == ["T1", "T3"]
    agreeing = apply(
        first, {"metadata": {"name": "c", "labels": {"x": "1"}}}, manager="b", time="T4"
    )
    assert "time" not in entries(agreeing)["b", ""]  # it changed nothing


def test_a_subresource_has_owners_of_its_own():
    devices = [{"driver": "d", "pool": "p", "device": "g", "data": {"x": 1}}]
    first = apply(NEW, {"metadata": {"name": "c", "labels": {"x": "1"}}})
    both = apply(first, {"status": {"devices": devices}}, subresource="status")
    assert set(entries(both)) == {("a", ""), ("a", "status")}
    assert both["metadata"]["labels"] == {"x": "1"}
    cleared = apply(both, {}, subresource="status")
    assert "devices" not in cleared.get("status", {})
    with pytest.raises(
        status_errors.StatusError,
        match='conflict with "a" with subresource "status": .status.devices',
    ):
        apply(both, {"status": {"devices": [devices[0] | {"data": {"x": 2}}]}}, manager="b")


def test_applies_come_first_then_the_older():
    first = apply(NEW, {"metadata": {"name": "c", "labels": {"x": "1"}}}, manager="z", time="T2")
    writer = managed_fields.Manager("a", "Update", VERSION)
    second = managed_fields.update(
        CLAIM, first, patches.merge_patch(first, {"metadata": {"labels": {"y": "1"}}}), writer, "T1"
    )
    third = apply(second, {"metadata": {"name": "c", "labels": {"v": "1"}}}, manager="b", time="T3")
    listed = [(entry["manager"], entry["time"]) for entry in third["metadata"]["managedFields"]]
    assert listed == [("z", "T2"), ("b", "T3"), ("a", "T1")]
