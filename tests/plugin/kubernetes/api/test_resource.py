"""The value of an attribute, in the types of the driver and of the scheduler."""

import msgspec
import pytest

from claimd.kubernetes.api import resource, scheduling

ONE = [
    ({"int_": 0}, 0),
    ({"bool_": False}, False),
    ({"string": ""}, ""),
    ({"version": "1.0.0"}, "1.0.0"),
    ({}, None),
]


@pytest.mark.parametrize(("fields", "value"), [*ONE, ({"ints": [0, 1]}, [0, 1])])
def test_of_a_driver(fields, value):
    assert resource.DeviceAttribute(**fields).value == value


@pytest.mark.parametrize(("fields", "value"), [*ONE, ({"ints": [0, 1]}, None)])
def test_of_a_scheduler_a_list_is_no_value(fields, value):
    assert scheduling.DeviceAttribute(**fields).value == value


def test_a_pool_is_written_whole_and_the_rest_as_far_as_it_says_something():
    pool = resource.ResourcePool(name="n", generation=0, resource_slice_count=0)
    assert msgspec.to_builtins(pool) == {"name": "n", "generation": 0, "resourceSliceCount": 0}
    device = resource.Device(name="gpu-0", attributes={"x": resource.DeviceAttribute(int_=0)})
    assert msgspec.to_builtins(device) == {"name": "gpu-0", "attributes": {"x": {"int": 0}}}
