"""What giving a device back undoes: a choice that led nowhere leaves nothing behind.

In each world the first device that fits is the wrong one, and what comes after it needs what that
had taken. The search does not look ahead here.
"""

import pytest

from claimd.kubernetes.allocator import features
from tests.support import allocating
from tests.support.alloc_hard import ROOT, rooted, world


def chosen(made):
    """The device of each request; None where the answer is no."""
    answer = allocating.ours(made, prune=False)
    assert "error" not in answer
    if answer["results"] is None:
        return None
    [allocation] = answer["results"]
    return [(one["request"], one["device"]) for one in allocation["devices"]["results"]]


def only(device):
    expression = f'device.attributes["gpu.example.com"].uuid == "GPU-{device}"'
    return [{"cel": {"expression": expression}}]


def first_any_then(made, device, **spec):
    """Two requests: one takes any device, the next this one alone."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **spec}
    made["claims"][0]["spec"]["devices"]["requests"] = [
        {"name": "any", "exactly": exactly},
        {"name": "this", "exactly": exactly | {"selectors": only(device)}},
    ]
    return made


def test_the_device_itself():
    assert chosen(first_any_then(world(rooted(2, 1), {}), 0)) == [
        ("any", "gpu-1"),
        ("this", "gpu-0"),
    ]


def test_its_counters_and_its_place_in_a_constraint():
    """Of the second root both fit, if the device of the first one gives back what it used."""
    devices = [
        device
        | {"consumesCounters": [{"counterSet": "all", "counters": {"memory": {"value": "1"}}}]}
        for device in [*rooted(2, 1), rooted(2, 1)[1] | {"name": "gpu-2"}]
    ]
    counters = [{"name": "all", "counters": {"memory": {"value": "2"}}}]
    made = world(devices, {"count": 2}, constraints=[{"matchAttribute": ROOT}], counters=counters)
    assert chosen(made) == [("gpus", "gpu-1"), ("gpus", "gpu-2")]


def test_its_share_of_a_capacity():
    devices = [
        device | {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}}
        for device in rooted(2, 1)
    ]
    made = first_any_then(world(devices, {}), 0, capacity={"requests": {"memory": "6"}})
    assert chosen(made) == [("any", "gpu-1"), ("this", "gpu-0")]


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
    made = first_any_then(world(devices, {}, counters=counters), 1)
    made["features"] = sorted(features.DEFAULT | {features.COMPATIBILITY_GROUPS})
    assert chosen(made) == (answer and [("any", answer), ("this", "gpu-1")])
