"""Tests of giving a device back: a choice that failed must leave nothing behind.

In each world the first device that fits is the wrong one, and a later choice needs the resources
that it had taken. The search runs without pruning here.
"""

import pytest

from claimd.kubernetes.allocator import features
from tests.support import allocating
from tests.support.alloc_hard import ROOT, rooted, world


def chosen(world_):
    """Returns the device of each request; None if the answer is no."""
    answer = allocating.ours(world_, prune=False)
    assert "error" not in answer
    if answer["results"] is None:
        return None
    [allocation] = answer["results"]
    return [(result["request"], result["device"]) for result in allocation["devices"]["results"]]


def only(device):
    expression = f'device.attributes["gpu.example.com"].uuid == "GPU-{device}"'
    return [{"cel": {"expression": expression}}]


def first_any_then(world_, device, **spec):
    """Returns two requests: one for any device, and one for this device only."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **spec}
    world_["claims"][0]["spec"]["devices"]["requests"] = [
        {"name": "any", "exactly": exactly},
        {"name": "this", "exactly": exactly | {"selectors": only(device)}},
    ]
    return world_


def test_the_device_itself():
    assert chosen(first_any_then(world(rooted(2, 1), {}), 0)) == [
        ("any", "gpu-1"),
        ("this", "gpu-0"),
    ]


def test_its_counters_and_its_place_in_a_constraint():
    """Both devices of the second root fit, if the one of the first root was undone."""
    devices = [
        device
        | {"consumesCounters": [{"counterSet": "all", "counters": {"memory": {"value": "1"}}}]}
        for device in [*rooted(2, 1), rooted(2, 1)[1] | {"name": "gpu-2"}]
    ]
    counters = [{"name": "all", "counters": {"memory": {"value": "2"}}}]
    world_ = world(devices, {"count": 2}, constraints=[{"matchAttribute": ROOT}], counters=counters)
    assert chosen(world_) == [("gpus", "gpu-1"), ("gpus", "gpu-2")]


def test_its_share_of_a_capacity():
    devices = [
        device | {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}}
        for device in rooted(2, 1)
    ]
    world_ = first_any_then(world(devices, {}), 0, capacity={"requests": {"memory": "6"}})
    assert chosen(world_) == [("any", "gpu-1"), ("this", "gpu-0")]


def test_the_first_share_of_a_device_uses_its_counters_and_no_other():
    devices = [
        device
        | {
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": "10"}},
            "consumesCounters": [{"counterSet": "all", "counters": {"slots": {"value": "1"}}}],
        }
        for device in rooted(2, 1)
    ]
    counters = [{"name": "all", "counters": {"slots": {"value": "1"}}}]
    request = {"capacity": {"requests": {"memory": "4"}}}
    assert chosen(first_any_then(world(devices, {}, counters=counters), 0, **request)) == [
        ("any", "gpu-0"),
        ("this", "gpu-0"),
    ]
    assert chosen(first_any_then(world(devices, {}, counters=counters), 1, **request)) == [
        ("any", "gpu-1"),
        ("this", "gpu-1"),
    ]


@pytest.mark.parametrize(("group", "answer"), [("y", "gpu-2"), ("z", None)])
def test_its_compatibility_group(group, answer):
    def device_in_group(device, name):
        counters = {"counterSet": "all", "counters": {"memory": {"value": "1"}}}
        return device | {"consumesCounters": [counters | {"compatibilityGroups": [name]}]}

    devices = [
        device_in_group(device, name)
        for device, name in zip(rooted(3, 1), ("x", "y", group), strict=True)
    ]
    counters = [{"name": "all", "counters": {"memory": {"value": "3"}}}]
    world_ = first_any_then(world(devices, {}, counters=counters), 1)
    world_["features"] = sorted(features.DEFAULT | {features.COMPATIBILITY_GROUPS})
    assert chosen(world_) == (answer and [("any", answer), ("this", "gpu-1")])
