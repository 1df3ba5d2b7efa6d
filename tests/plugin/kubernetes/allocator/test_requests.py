"""Tests of requests before a search: alternatives, classes, and refusals."""

import pytest

from claimd.kubernetes import allocator
from claimd.kubernetes.allocator import features, requests
from claimd.kubernetes.api.scheduling import DeviceClass, DeviceRequest, ResourceClaim
from tests.support import allocating

CLAIM = allocating.read(
    {"metadata": {"name": "train", "namespace": "team", "uid": "1"}}, ResourceClaim
)
CLASSES = requests.Classes(
    allocating.read([{"metadata": {"name": "gpu"}, "spec": {}}], list[DeviceClass])
)
LISTED = {
    "name": "gpus",
    "firstAvailable": [
        {"name": "large", "deviceClassName": "gpu", "count": 2},
        {"name": "small", "deviceClassName": "gpu", "count": 4},
    ],
}


def alternatives(request, enabled=features.DEFAULT):
    return requests.alternatives(
        allocating.read(request, DeviceRequest), CLAIM, claim_index=3, key=7, features=enabled
    )


def check_request(enabled=features.DEFAULT, **spec):
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", **spec}}
    [request] = alternatives(request, enabled)
    requests.check(request, CLASSES, enabled)
    return request


def test_the_alternatives_of_a_list_in_its_order():
    subrequests = alternatives(LISTED, features.DEFAULT | {features.PRIORITIZED_LIST})
    assert [
        (request.path, request.parent, request.key, request.count, request.claim_index)
        for request in subrequests
    ] == [
        ("gpus/large", "gpus", 7, 2, 3),
        ("gpus/small", "gpus", 8, 4, 3),
    ]


def test_an_exact_request_is_its_own_alternative():
    [request] = alternatives({"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}})
    assert (request.path, request.parent, request.key, request.minimum) == ("gpus", None, 7, 2)
    assert str(request) == "claim team/train, request gpus"


def test_the_requests_that_a_constraint_is_about():
    large, small = alternatives(LISTED, features.DEFAULT | {features.PRIORITIZED_LIST})
    for names, about in [
        ((), (True, True)),
        (("gpus",), (True, True)),
        (("gpus/large",), (True, False)),
        (("small", "other"), (False, False)),
    ]:
        assert (large.is_under(frozenset(names)), small.is_under(frozenset(names))) == about


def test_the_minimum_of_a_request_for_all_devices():
    request = check_request(allocationMode="All")
    assert request.wants_all
    assert request.minimum == 0
    request.all_devices = ["gpu-0", "gpu-1"]
    assert request.minimum == 2


@pytest.mark.parametrize(
    ("request_", "without", "reason"),
    [
        ({"name": "gpus"}, (), "claim team/train, request gpus: nothing known is asked for"),
        (LISTED, (features.PRIORITIZED_LIST,), "request gpus: has subrequests, but the DRAPrior"),
        (
            {"name": "gpus", "exactly": {"deviceClassName": "gpu", "capacity": {}}},
            (features.CONSUMABLE_CAPACITY,),
            "request gpus: has capacity requests, but the DRAConsumableCapacity",
        ),
        (
            {
                "name": "gpus",
                "firstAvailable": [
                    {"name": "large", "deviceClassName": "gpu"},
                    {"name": "small", "deviceClassName": "gpu", "capacity": {}},
                ],
            },
            (features.CONSUMABLE_CAPACITY,),
            "subrequest small: has capacity requests",
        ),
    ],
)
def test_unknown_or_disabled_features_are_refused(request_, without, reason):
    everything = features.DEFAULT | {features.PRIORITIZED_LIST, features.CONSUMABLE_CAPACITY}
    with pytest.raises(allocator.AllocationError, match=reason):
        alternatives(request_, everything - set(without))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"selectors": [{"cel": {"expression": "true"}}, {}]}, "selector 2: CEL expression empty"),
        ({"adminAccess": True}, "admin access is requested, but the feature is disabled"),
        ({"adminAccess": False}, "admin access is requested, but the feature is disabled"),
        ({"deviceClassName": ""}, "missing device class name"),
        ({"deviceClassName": "tpu"}, 'device class tpu: deviceclass "tpu" not found'),
        ({"allocationMode": "Half"}, "unsupported count mode Half"),
        (
            {"derivedAttributes": [{"name": "x", "expression": "1"}]},
            "derived attributes, the feature is disabled",
        ),
    ],
)
def test_mistakes_are_errors_before_devices_are_examined(spec, reason):
    off = {features.ADMIN_ACCESS, features.DERIVED_ATTRIBUTES}
    with pytest.raises(allocator.AllocationError, match=reason):
        check_request(features.DEFAULT - off, **spec)


def test_a_correct_request_gets_its_class():
    enabled = features.DEFAULT | {features.ADMIN_ACCESS, features.DERIVED_ATTRIBUTES}
    request = check_request(enabled, adminAccess=True)
    assert request.class_.metadata.name == "gpu"
    assert (request.has_admin_access_field, request.admin) == (True, True)
    assert not check_request(enabled, adminAccess=False).admin


def test_classes_are_found_by_name():
    assert CLASSES.get("gpu").metadata.name == "gpu"
    assert CLASSES.get("tpu") is None
    assert [class_.metadata.name for class_ in CLASSES.list()] == ["gpu"]
