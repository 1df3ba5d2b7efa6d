"""Tests of fields behind feature gates."""

import pytest

from claimd.sim.apiserver.rules import gates
from claimd.sim.apiserver.rules.profile import Profile

DEVICE = {
    "name": "d",
    "taints": [{"key": "k"}],
    "attributes": {"x": {"ints": [1]}, "y": {"int": 1}},
    "capacity": {"m": {"value": "1", "requestPolicy": {}}},
    "consumesCounters": [{"counterSet": "c", "compatibilityGroups": ["g"]}],
}


def drop_disabled(device, release, old=None):
    new = {"spec": {"devices": [device]}}
    before = {"spec": {"devices": [old]}} if old else None
    return gates.drop_disabled("ResourceSlice", new, before, Profile(release))["spec"]["devices"][0]


def test_what_1_37_has_off():
    device = drop_disabled(DEVICE, "1.37")
    assert device["attributes"] == {"x": {}, "y": {"int": 1}}
    assert device["consumesCounters"] == [{"counterSet": "c"}]
    assert (device["taints"], device["capacity"]) == (DEVICE["taints"], DEVICE["capacity"])


def test_what_1_34_has_off():
    assert drop_disabled(DEVICE, "1.34") == {
        "name": "d",
        "attributes": {"x": {}, "y": {"int": 1}},
        "capacity": {"m": {"value": "1"}},
    }


def test_what_is_stored_already_may_stay():
    assert (
        drop_disabled(DEVICE, "1.34", {"name": "other", "taints": [{"key": "k"}]})["taints"]
        == DEVICE["taints"]
    )


def test_nothing_given_is_changed():
    before = repr(DEVICE)
    drop_disabled(DEVICE, "1.34")
    assert repr(DEVICE) == before


@pytest.mark.parametrize(("release", "times"), [("1.34", False), ("1.37", True)])
def test_a_claim_s_status(release, times):
    result = {"request": "r", "shareID": "s", "bindingConditions": ["a"]}
    status = {"allocation": {"allocationTimestamp": "T", "devices": {"results": [result]}}}
    kept_status = gates.drop_disabled("ResourceClaim", {"status": status}, None, Profile(release))[
        "status"
    ]
    assert ("allocationTimestamp" in kept_status["allocation"]) == times
    assert ("shareID" in kept_status["allocation"]["devices"]["results"][0]) == times


def test_a_template_s_requests():
    exactly = {"deviceClassName": "c", "derivedAttributes": [{"name": "a/b"}]}
    template = {"spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}}
    kept_spec = gates.drop_disabled("ResourceClaimTemplate", template, None, Profile("1.37"))
    assert kept_spec["spec"]["spec"]["devices"]["requests"] == [
        {"name": "r", "exactly": {"deviceClassName": "c"}}
    ]
