"""Tests of features: they are detected from the fields of a cluster's objects."""

import pytest

from claimd.kubernetes.allocator import features
from claimd.kubernetes.api.scheduling import ResourceClaim, ResourceSlice
from tests.support import allocating


def slice_(device=None, **spec):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "plain"}, {"name": "d"} | (device or {})]
    whole = {"driver": "d.org", "pool": pool, "nodeName": "n", "devices": devices} | spec
    return allocating.read([{"metadata": {"name": "s"}, "spec": whole}], list[ResourceSlice])


def claim(*requests):
    spec = {"devices": {"requests": list(requests)}}
    return allocating.read([{"metadata": {"name": "c"}, "spec": spec}], list[ResourceClaim])


def detect_more(slices=(), claims=()):
    return features.detect(slices, claims) - features.DEFAULT


@pytest.mark.parametrize(
    ("device", "spec", "expected"),
    [
        ({"attributes": {"a": {"int": 1}}}, {}, set()),
        ({"attributes": {"a": {"ints": [1]}}}, {}, {features.LIST_TYPE_ATTRIBUTES}),
        (
            {"consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]},
            {},
            set(),
        ),
        (
            {
                "consumesCounters": [
                    {"counterSet": "c", "counters": {}, "compatibilityGroups": ["g"]}
                ]
            },
            {},
            {features.COMPATIBILITY_GROUPS},
        ),
        ({}, {"skipNodeOperations": ["NodePrepare"]}, {features.OPTIONAL_NODE_OPERATIONS}),
    ],
)
def test_of_slices(device, spec, expected):
    assert detect_more(slice_(device, **spec)) == expected - features.DEFAULT


def test_of_claims():
    derived = {"derivedAttributes": [{"name": "a", "expression": "1"}]}
    exactly = {"name": "r", "exactly": {"deviceClassName": "c"}}
    first = {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}
    assert detect_more(claims=claim(exactly, first)) == set()
    exactly["exactly"] |= derived
    assert detect_more(claims=claim(exactly)) == {features.DERIVED_ATTRIBUTES}
    first["firstAvailable"][0] |= derived
    assert detect_more(claims=claim(first)) == {features.DERIVED_ATTRIBUTES}


def test_the_defaults_of_a_release():
    assert features.release_defaults(33) == set()
    assert features.release_defaults(34) == {features.ADMIN_ACCESS, features.PRIORITIZED_LIST}
    assert features.release_defaults(35) == features.release_defaults(34)
    more = features.release_defaults(37) - features.release_defaults(36)
    assert more == {features.FRACTIONAL_CAPACITY_RANGE}
    assert features.release_defaults(37) == features.DEFAULT
    assert features.release_defaults(38) == features.DEFAULT | {features.RULES_OF_1_38}
    listed = slice_({"attributes": {"a": {"ints": [1]}}})
    of_itself = features.release_defaults(34)
    assert features.detect([], [], of_itself) == of_itself
    assert features.detect(listed, [], of_itself) == of_itself | {features.LIST_TYPE_ATTRIBUTES}


def test_which_allocator_1_38_uses():
    old = features.release_defaults(34)
    assert features.takes_oldest(old)
    assert not features.takes_oldest(old | {features.RULES_OF_1_38}), "it is gone"
    assert not features.knows_node_operations(features.release_defaults(38))
    assert features.knows_node_operations(features.ALL | {features.RULES_OF_1_38})
