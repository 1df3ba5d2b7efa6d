"""Tests of v1alpha2, in which each driver has a controller."""

import pytest

from claimd.kubernetes.api import limits
from claimd.sim.apiserver.rules import classic
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile

ONE_MODEL = "Required value: exactly one structured model field must be set"
LONG = "d" * 64
MANY = [f"n{number}" for number in range(limits.POTENTIAL_NODES + 1)]


def format_causes(errors):
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


def validate(kind, obj, old=None):
    errors = FieldErrors(Profile("1.30"))
    classic.validate(errors, kind, obj, old)
    return format_causes(errors)


def refused_status(kind, status, before=None, **metadata):
    errors = FieldErrors(Profile("1.30"))
    obj = {"metadata": metadata, "status": status}
    classic.validate_status(errors, kind, obj, {"status": before or {}})
    return format_causes(errors)


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        ("ResourceClass", {"driverName": "d.com", "parametersRef": {"kind": "K", "name": "n"}}),
        ("ResourceClaim", {"spec": {"resourceClassName": "c", "allocationMode": "Immediate"}}),
        (
            "ResourceClaimTemplate",
            {"spec": {"spec": {"resourceClassName": "c", "allocationMode": "Immediate"}}},
        ),
        ("PodSchedulingContext", {"spec": {"potentialNodes": MANY[1:]}}),
        (
            "ResourceSlice",
            {
                "driverName": "d.com",
                "nodeName": "n",
                "namedResources": {
                    "instances": [
                        {"name": "a", "attributes": [{"name": "x", "int": 1}]},
                        {"name": "b"},
                    ]
                },
            },
        ),
        (
            "ResourceClassParameters",
            {"filters": [{"driverName": "d.com", "namedResources": {"selector": "true"}}]},
        ),
        (
            "ResourceClaimParameters",
            {
                "driverRequests": [
                    {
                        "driverName": "d.com",
                        "requests": [{"namedResources": {"selector": "true"}}],
                    }
                ]
            },
        ),
    ],
)
def test_allowed(kind, obj):
    assert validate(kind, obj) == []
    assert validate(kind, obj, obj) == []


@pytest.mark.parametrize(
    ("kind", "obj", "why"),
    [
        (
            "ResourceClass",
            {"driverName": LONG},
            ["driverName: Too long: may not be longer than 63"],
        ),
        (
            "ResourceClass",
            {"driverName": "d", "parametersRef": {}},
            ["parametersRef.kind: Required value", "parametersRef.name: Required value"],
        ),
        (
            "ResourceClass",
            {"driverName": "d", "suitableNodes": {}},
            [
                "suitableNodes.nodeSelectorTerms: Required value: must have at least one node "
                "selector term"
            ],
        ),
        (
            "ResourceClaim",
            {"spec": {"resourceClassName": "c", "allocationMode": "Now"}},
            [
                'spec.allocationMode: Unsupported value: "Now": supported values: "Immediate", '
                '"WaitForFirstConsumer"'
            ],
        ),
        (
            "PodSchedulingContext",
            {"spec": {"potentialNodes": ["a", "b", "a"]}},
            ['spec.potentialNodes[2]: Duplicate value: "a"'],
        ),
        (
            "PodSchedulingContext",
            {"spec": {"potentialNodes": MANY}},
            [f"spec.potentialNodes: Too long: may not be longer than {limits.POTENTIAL_NODES}"],
        ),
        ("ResourceSlice", {"driverName": "d"}, [f": {ONE_MODEL}"]),
        (
            "ResourceSlice",
            {"driverName": "d", "namedResources": {"instances": [{"name": "a"}, {"name": "a"}]}},
            ['namedResources.instances[1].name: Duplicate value: "a"'],
        ),
        (
            "ResourceClassParameters",
            {"filters": [{"driverName": "d"}]},
            [f"filters[0]: {ONE_MODEL}"],
        ),
        (
            "ResourceClaimParameters",
            {"driverRequests": [{"driverName": "d", "requests": [{}]}]},
            [f"driverRequests[0].requests[0]: {ONE_MODEL}"],
        ),
    ],
)
def test_refused(kind, obj, why):
    assert validate(kind, obj) == why


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ([{"name": "a"}], "[0]: Required value: exactly one value must be set"),
        (
            [{"name": "a", "string": "x", "int": 1}],
            '[0]: Invalid value: []string{"int", "string"}: exactly one field must be set, '
            "not several",
        ),
        (
            [{"name": "a", "int": 1}, {"name": "a", "int": 2}],
            '[1].name: Duplicate value: "a"',
        ),
    ],
)
def test_attributes_of_an_instance(attributes, why):
    instance = {"name": "i", "attributes": attributes}
    obj = {"driverName": "d", "namedResources": {"instances": [instance]}}
    assert validate("ResourceSlice", obj) == [f"namedResources.instances[0].attributes{why}"]


def test_what_cannot_change():
    named = {"namedResources": {}}
    old = {"driverName": "d", "nodeName": "n"} | named
    assert validate("ResourceSlice", {"driverName": "e", "nodeName": "m"} | named, old) == [
        'nodeName: Invalid value: "m": field is immutable',
        'driverName: Invalid value: "e": field is immutable',
    ]
    spec = {"resourceClassName": "c", "allocationMode": "Immediate"}
    changed = spec | {"resourceClassName": "d"}
    (why,) = validate("ResourceClaim", {"spec": changed}, {"spec": spec})
    assert why.startswith("spec: Invalid value: {") and why.endswith("field is immutable")


# ---------------------------------------------------------------- status


HANDLE = {"driverName": "d.com"}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}
ALLOCATED = {"driverName": "d.com", "allocation": {"resourceHandles": [HANDLE]}}


@pytest.mark.parametrize(
    "status",
    [
        {},
        ALLOCATED,
        ALLOCATED | {"reservedFor": [CONSUMER]},
        ALLOCATED | {"deallocationRequested": True},
        {"driverName": "d", "allocation": {"shareable": True}}
        | {"reservedFor": [CONSUMER, CONSUMER | {"uid": "v"}]},
        {"driverName": "d", "allocation": {"resourceHandles": [HANDLE] * limits.RESOURCE_HANDLES}},
    ],
)
def test_a_status_that_is_allowed(status):
    assert refused_status("ResourceClaim", status) == []


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {"allocation": {}},
            "status.driverName: Required value: must be specified when `allocation` is set",
        ),
        ({"driverName": LONG}, "status.driverName: Too long: may not be longer than 63"),
        (
            {"reservedFor": [CONSUMER]},
            "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
        ),
        (
            ALLOCATED | {"reservedFor": [CONSUMER, CONSUMER | {"uid": "v"}]},
            "status.reservedFor: Forbidden: may not be reserved more than once",
        ),
        (
            ALLOCATED | {"reservedFor": [CONSUMER | {"name": ""}]},
            "status.reservedFor[0].name: Required value",
        ),
        (
            {"deallocationRequested": True},
            "status: Forbidden: `allocation` must be set when `deallocationRequested` is set",
        ),
        (
            {"driverName": "d", "allocation": {"availableOnNodes": {}}},
            "status.allocation.availableOnNodes.nodeSelectorTerms: Required value: must have at "
            "least one node selector term",
        ),
        (
            {"driverName": "d", "allocation": {"resourceHandles": [HANDLE] * 33}},
            "status.allocation.resourceHandles: Too long: may not be longer than 32",
        ),
    ],
)
def test_a_status_that_is_refused(status, why):
    assert refused_status("ResourceClaim", status) == [why]


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        ({"data": "x" * limits.HANDLE_DATA}, []),
        (
            {"data": "x" * (limits.HANDLE_DATA + 1)},
            [".data: Too long: may not be longer than 16384"],
        ),
        ({"structuredData": {"results": [{"namedResources": {"name": "a"}}]}}, []),
        ({"structuredData": {"results": [{}]}}, [f".structuredData.results[0]: {ONE_MODEL}"]),
        (
            {"data": "x", "structuredData": {}},
            [": Invalid value: null: data and structuredData are mutually exclusive"],
        ),
    ],
)
def test_what_a_driver_is_handed(handle, why):
    allocation = {"resourceHandles": [HANDLE | handle]}
    status = {"driverName": "d", "allocation": allocation}
    path = "status.allocation.resourceHandles[0]"
    assert refused_status("ResourceClaim", status) == [path + each for each in why]


def test_consumers_stand_once():
    allocation = {"driverName": "d", "allocation": {"shareable": True}}
    assert refused_status("ResourceClaim", allocation | {"reservedFor": [CONSUMER] * 2}) == [
        'status.reservedFor[1].uid: Duplicate value: "u"'
    ]


def test_an_allocation_does_not_change_and_goes_by_being_asked_for():
    deallocation = "status.deallocationRequested: Forbidden: "
    other = ALLOCATED | {"allocation": {}}
    (why,) = refused_status("ResourceClaim", other, ALLOCATED)
    assert why.startswith("status.allocation: Invalid value")
    assert refused_status("ResourceClaim", ALLOCATED, ALLOCATED) == []
    assert refused_status("ResourceClaim", {}, ALLOCATED) == []

    asked = ALLOCATED | {"deallocationRequested": True}
    assert refused_status("ResourceClaim", ALLOCATED, asked) == [
        f"{deallocation}may not be cleared when `allocation` is set"
    ]
    assert (
        refused_status("ResourceClaim", asked | {"reservedFor": [CONSUMER]}, ALLOCATED)
        == [
            f"{deallocation}deallocation cannot be requested while `reservedFor` is set",
            "status.reservedFor: Forbidden: new entries may not be added while "
            "`deallocationRequested` or `deletionTimestamp` are set",
        ][::-1]
    )
    still = asked | {"reservedFor": [CONSUMER]}
    assert refused_status("ResourceClaim", still, still) == []


def test_a_claim_that_is_to_go_takes_no_new_consumer():
    reserved = ALLOCATED | {"reservedFor": [CONSUMER]}
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    (why,) = refused_status("ResourceClaim", reserved, ALLOCATED, **going)
    assert "new entries may not be added" in why
    assert refused_status("ResourceClaim", reserved, reserved, **going) == []


def test_scheduling():
    claims = [{"name": "a", "unsuitableNodes": ["n", "n"]}, {"name": "b"}, {"name": "a"}]
    assert refused_status("PodSchedulingContext", {"resourceClaims": claims}) == [
        'status.claims[0].unsuitableNodes[1]: Duplicate value: "n"',
        'status.claims[2]: Duplicate value: "a"',
    ]
