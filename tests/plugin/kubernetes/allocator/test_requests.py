"""What a request is before the search: its alternatives, its class, and what is refused at once."""

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
    [one] = alternatives(request, enabled)
    requests.check(one, CLASSES, enabled)
    return one


def test_the_alternatives_of_a_list_in_its_order():
    found = alternatives(LISTED, features.DEFAULT | {features.PRIORITIZED_LIST})
    assert [(one.path, one.parent, one.key, one.count, one.claim_index) for one in found] == [
        ("gpus/large", "gpus", 7, 2, 3),
        ("gpus/small", "gpus", 8, 4, 3),
    ]


def test_an_exact_request_is_its_own_alternative():
    [one] = alternatives({"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}})
    assert (one.path, one.parent, one.key, one.minimum) == ("gpus", None, 7, 2)
    assert str(one) == "claim team/train, request gpus"


def test_the_requests_that_a_constraint_is_about():
    large, small = alternatives(LISTED, features.DEFAULT | {features.PRIORITIZED_LIST})
    for names, about in [
        ((), (True, True)),
        (("gpus",), (True, True)),
        (("gpus/large",), (True, False)),
        (("small", "other"), (False, False)),
    ]:
        assert (large.is_under(frozenset(names)), small.is_under(frozenset(names))) == about


def test_a_request_for_all_takes_at_least_what_there_is():
    one = check_request(allocationMode="All")
    assert one.wants_all
    assert one.minimum == 0
    one.all_devices = ["gpu-0", "gpu-1"]
    assert one.minimum == 2


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
def test_what_nobody_knows_or_has_turned_off_is_refused(request_, without, reason):
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
def test_what_is_wrong_is_an_error_before_any_device_is_looked_at(spec, reason):
    off = {features.ADMIN_ACCESS, features.DERIVED_ATTRIBUTES}
    with pytest.raises(allocator.AllocationError, match=reason):
        check_request(features.DEFAULT - off, **spec)


def test_what_is_right_finds_its_class():
    enabled = features.DEFAULT | {features.ADMIN_ACCESS, features.DERIVED_ATTRIBUTES}
    one = check_request(enabled, adminAccess=True)
    assert one.class_.metadata.name == "gpu"
    assert (one.has_admin_access_field, one.admin) == (True, True)
    assert not check_request(enabled, adminAccess=False).admin


def test_classes_are_found_by_name():
    assert CLASSES.get("gpu").metadata.name == "gpu"
    assert CLASSES.get("tpu") is None
    assert [class_.metadata.name for class_ in CLASSES.list()] == ["gpu"]
