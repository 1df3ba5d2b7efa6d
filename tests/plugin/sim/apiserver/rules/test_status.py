"""Tests of a claim's status: devices, binding conditions, and deallocation in 1.31."""

import pytest

from claimd.sim.apiserver.rules import status as rules
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile

CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}


def validate(status, before=None, release="1.34", **metadata):
    profile = Profile(release)
    errors = FieldErrors(profile)
    new = {"metadata": metadata, "spec": {}, "status": status}
    rules.validate_update(errors, new, {"status": before or {}}, profile)
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


# ---------------------------------------------------------------- deallocation


ALLOCATED = {"allocation": {"controller": "c", "devices": {}}}
ASKED = ALLOCATED | {"deallocationRequested": True}


@pytest.mark.parametrize(
    ("status", "before"),
    [(ASKED, ALLOCATED), (ASKED, ASKED), ({}, ASKED), (ALLOCATED, ALLOCATED)],
)
def test_a_controller_gives_an_allocation_back(status, before):
    assert validate(status, before, "1.31") == []


@pytest.mark.parametrize(
    ("status", "before", "why"),
    [
        (ALLOCATED, ASKED, "may not be cleared when `allocation` is set"),
        (
            {"deallocationRequested": True},
            ALLOCATED,
            "may not be set when `allocation` is not set",
        ),
        (
            {"allocation": {}, "deallocationRequested": True},
            {"allocation": {}},
            "may not be set when `allocation` does not have a `controller`",
        ),
        (
            ASKED | {"reservedFor": [CONSUMER]},
            ALLOCATED | {"reservedFor": [CONSUMER]},
            "deallocation cannot be requested while `reservedFor` is set",
        ),
    ],
)
def test_what_is_refused_of_it(status, before, why):
    assert validate(status, before, "1.31") == [f"status.deallocationRequested: Forbidden: {why}"]


# ---------------------------------------------------------------- reservations


def test_who_a_claim_is_reserved_for():
    reserved = ALLOCATED | {"reservedFor": [CONSUMER]}
    assert validate(reserved, ALLOCATED) == []
    assert validate({"reservedFor": [CONSUMER]}) == [
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    ]
    twice = ALLOCATED | {"reservedFor": [CONSUMER, CONSUMER]}
    assert validate(twice, ALLOCATED) == ['status.reservedFor[1].uid: Duplicate value: "u"']
    nobody = ALLOCATED | {"reservedFor": [{}]}
    assert validate(nobody, ALLOCATED) == [
        f"status.reservedFor[0].{name}: Required value" for name in ("resource", "name", "uid")
    ]
    many = [CONSUMER | {"uid": str(number)} for number in range(257)]
    assert validate(ALLOCATED | {"reservedFor": many[1:]}, ALLOCATED) == []
    assert validate(ALLOCATED | {"reservedFor": many}, ALLOCATED) == [
        "status.reservedFor: Too many: 257: must have at most 256 items"
    ]


def test_a_claim_that_is_to_go_takes_no_new_consumer():
    reserved = ALLOCATED | {"reservedFor": [CONSUMER]}
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert validate(reserved, ALLOCATED, **going) == [
        f"status.reservedFor: Forbidden: {rules.NO_NEW_CONSUMERS}"
    ]
    assert validate(reserved, reserved, **going) == []


# ---------------------------------------------------------------- reports on devices


RESULT = {"request": "r", "driver": "d.com", "pool": "p", "device": "gpu-0"}
DEVICE = {"driver": "d.com", "pool": "p", "device": "gpu-0"}


def report(*devices):
    status = {"allocation": {"devices": {"results": [RESULT]}}}
    return validate(status | {"devices": list(devices)}, status)


def test_reports_are_about_devices_of_the_allocation_each_once():
    assert report(DEVICE) == []
    (why,) = report(DEVICE | {"device": "gpu-1"})
    assert why.startswith("status.devices[0]: Invalid value: ")
    assert why.endswith("must be an allocated device in the claim")
    (why,) = report(DEVICE, DEVICE)
    assert why.startswith("status.devices[1].deviceID: Duplicate value: ")


@pytest.mark.parametrize(
    ("network", "why"),
    [
        ({"interfaceName": "i" * 256, "hardwareAddress": "h" * 128, "ips": ["10.0.0.1/8"]}, []),
        (
            {"interfaceName": "i" * 257},
            [".interfaceName: Too long: may not be more than 256 bytes"],
        ),
        (
            {"hardwareAddress": "h" * 129},
            [".hardwareAddress: Too long: may not be more than 128 bytes"],
        ),
        ({"ips": ["10.0.0.1/8"] * 2}, ['.ips[1]: Duplicate value: "10.0.0.1/8"']),
        (
            {"ips": [f"10.0.0.{n}/8" for n in range(17)]},
            [".ips: Too many: 17: must have at most 16 items"],
        ),
    ],
)
def test_what_a_report_says_of_the_network(network, why):
    path = "status.devices[0].networkData"
    assert report(DEVICE | {"networkData": network}) == [path + each for each in why]


def test_an_address_has_a_prefix():
    (why,) = report(DEVICE | {"networkData": {"ips": ["10.0.0.1"]}})
    assert why.startswith('status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1"')


def test_reports_go_with_their_allocation():
    old = {"allocation": {"devices": {"results": [RESULT]}}, "devices": [DEVICE]}
    other = DEVICE | {"device": "gpu-9"}
    assert rules.without_deallocated(old, old) == old
    assert rules.without_deallocated({"devices": [DEVICE]}, old) == {}
    assert rules.without_deallocated({"devices": [DEVICE, other]}, old) == {"devices": [other]}


# ---------------------------------------------------------------- binding conditions


def conditions(good, bad):
    errors = FieldErrors(Profile("1.34"))
    device = {"bindingConditions": good, "bindingFailureConditions": bad}
    rules.validate_binding_conditions(errors, device, "d")
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


@pytest.mark.parametrize(
    ("good", "bad", "why"),
    [
        ([], [], []),
        (["a"], ["b"], []),
        (["a", "b", "c", "d"], ["e"], []),
        (
            ["a", "b", "c", "d", "f"],
            ["e"],
            ["d.bindingConditions: Too many: 5: must have at most 4 items"],
        ),
        (["a", "a"], ["b"], ['d.bindingConditions[1]: Duplicate value: "a"']),
        (["a"], ["b", "b"], ['d.bindingFailureConditions[1]: Duplicate value: "b"']),
        (
            ["a"],
            ["b", "a"],
            [
                'd.bindingFailureConditions[1]: Invalid value: "a": bindingFailureConditions must '
                "not overlap with bindingConditions"
            ],
        ),
        (
            [],
            ["b"],
            [
                "d.bindingConditions: Invalid value: null: bindingConditions are required to use "
                "bindingFailureConditions"
            ],
        ),
        (
            ["a"],
            [],
            [
                "d.bindingFailureConditions: Invalid value: null: bindingFailureConditions are "
                "required to use bindingConditions"
            ],
        ),
    ],
)
def test_conditions_that_let_a_pod_be_bound_and_those_that_forbid_it(good, bad, why):
    assert conditions(good, bad) == why
