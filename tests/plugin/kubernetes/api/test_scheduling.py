"""The defaults of a claim, and the value of an attribute."""

import msgspec
import pytest

from claimd.kubernetes.api import resource, scheduling


def test_a_request_is_for_one_device_unless_it_says_more():
    request = msgspec.convert(
        {
            "name": "r",
            "exactly": {"deviceClassName": "c"},
            "firstAvailable": [{"name": "s"}, {"name": "t", "count": 2, "allocationMode": "All"}],
        },
        scheduling.DeviceRequest,
    )
    assert request.exactly is not None
    assert (request.exactly.allocation_mode, request.exactly.count) == ("ExactCount", 1)
    counts = [(sub.allocation_mode, sub.count) for sub in request.first_available]
    assert counts == [("ExactCount", 1), ("All", 2)]


def test_a_request_with_alternatives_is_each_of_them():
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "c"}},
        {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "d"}, {"name": "t"}]},
    ]
    spec = msgspec.convert({"devices": {"requests": requests}}, scheduling.ResourceClaimSpec)
    classes = [(path, request.device_class_name) for path, request in spec.alternatives()]
    assert [path for path, _ in classes] == ["a", "b/s", "b/t"]
    assert [name for _, name in classes][:2] == ["c", "d"]
    assert not list(scheduling.ResourceClaimSpec().alternatives())


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"int_": 0}, 0),
        ({"bool_": False}, False),
        ({"string": "s"}, "s"),
        ({"version": "1.0.0"}, "1.0.0"),
        ({"strings": ["s"]}, None),
        ({}, None),
    ],
)
def test_a_list_is_not_one_value(fields, value):
    assert scheduling.DeviceAttribute(**fields).value == value


def test_a_scheduler_reads_what_a_driver_writes():
    pool = resource.ResourcePool(name="n", generation=0, resource_slice_count=1)
    written = msgspec.to_builtins(resource.ResourceSliceSpec(driver="d", pool=pool, node_name="n"))
    read = msgspec.convert(written, scheduling.ResourceSliceSpec)
    assert (read.pool, read.node_name, read.devices) == (pool, "n", [])
