"""The state of devices that a pod waits for, read from its claim."""

import pytest

from claimd.kubernetes.scheduling import binding_conditions
from claimd.kubernetes.scheduling.objects import Claim
from tests.support import planes
from tests.support.allocating import read

START = 1767225600.0  # 2026-01-01
SLOW = {"bindingConditions": ["Ready", "Linked"], "bindingFailureConditions": ["Broken", "Gone"]}


def claim(*devices, **reported):
    """A claim whose devices have binding conditions. `reported` has the true conditions by device."""
    results = [planes.result(name, **SLOW) for name in devices]
    document = planes.claim("mine", devices=[*results, planes.result("ordinary")])
    document["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    document["status"]["devices"] = [
        report(name, **dict.fromkeys(types, "True")) for name, types in reported.items()
    ]
    return document


def report(device, **conditions):
    entries = []
    for type_, status in conditions.items():
        entries.append({"type": type_, "status": status, "reason": "Told", "message": 'a "b"'})
    return {
        "driver": planes.DRIVER,
        "pool": "node-1",
        "device": device,
        "conditions": entries,
    }


def parsed(document):
    return read(document, Claim)


def problem(document, now=START, **more):
    return binding_conditions.problem_of(parsed(document), now, **more)


def test_each_condition_must_be_true():
    [device] = binding_conditions.readiness_of(parsed(claim("a")))
    assert (device.result.device, device.missing) == ("a", ("Ready", "Linked"))
    assert not device.is_ready
    [device] = binding_conditions.readiness_of(parsed(claim("a", a=["Linked"])))
    assert device.missing == ("Ready",)
    complete = parsed(claim("a", a=["Ready", "Linked"]))
    [device] = binding_conditions.readiness_of(complete)
    assert device.is_ready
    assert binding_conditions.first_unready(complete) is None
    assert binding_conditions.has_conditions(complete)


def test_claims_without_such_devices_need_nothing():
    for document in (claim(), planes.claim("mine")):
        assert not binding_conditions.has_conditions(parsed(document))
        assert binding_conditions.first_unready(parsed(document)) is None
        assert problem(document, START + 9999) == ""


def test_only_a_condition_that_is_true_counts():
    document = claim("a")
    document["status"]["devices"] = [report("a", Ready="False", Linked="Unknown", Broken="False")]
    [device] = binding_conditions.readiness_of(parsed(document))
    assert (device.missing, device.failure) == (("Ready", "Linked"), None)


def test_the_first_entry_of_a_device_is_the_one_that_counts():
    document = claim("a", a=["Ready", "Linked"])
    document["status"]["devices"].insert(0, report("a", Ready="True"))
    [device] = binding_conditions.readiness_of(parsed(document))
    assert device.missing == ("Linked",)
    document["status"]["devices"][0]["pool"] = "other"
    assert binding_conditions.first_unready(parsed(document)) is None


def test_a_failure_comes_before_what_is_missing_and_what_is_there():
    failed = claim("a", a=["Ready", "Linked", "Gone"])
    assert binding_conditions.first_unready(parsed(failed)).failure.type == "Gone"
    assert problem(failed) == (
        'device binding failed: claim=mine, reason=Told, message="a \\"b\\""'
    )
    # A condition that is no failure condition of the device says nothing.
    assert problem(claim("a", a=["Ready", "Linked", "Strange"])) == ""


def test_a_device_that_is_not_ready_hides_those_behind_it():
    assert problem(claim("a", "b", b=["Broken"])) == ""
    assert problem(claim("a", "b", a=["Ready", "Linked"], b=["Broken"])) != ""


def test_the_time_that_devices_have():
    assert problem(claim("a"), START + 600) == ""
    assert problem(claim("a"), START + 600.5) == "device binding timeout: claim=mine"
    assert problem(claim("a"), START + 6, timeout=5) == "device binding timeout: claim=mine"
    assert problem(claim("a", a=["Ready", "Linked"]), START + 9999) == ""


@pytest.mark.parametrize("time", [None, "", "yesterday"])
def test_without_a_time_the_wait_has_no_end(time):
    document = claim("a")
    document["status"]["allocation"]["allocationTimestamp"] = time
    assert problem(document, START + 9999) == ""
    assert binding_conditions.time_of_allocation(parsed(document)) is None
