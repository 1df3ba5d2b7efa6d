"""Tests of the reasons that keep a device away, and of their words."""

import pytest

from claimd.kubernetes.allocator import taints
from claimd.kubernetes.api.scheduling import DeviceTaintRule, ResourceSlice
from tests.support import allocating, remedies
from tests.support.alloc_hard import rooted, taken, world


def reasons(world):
    """Returns the reasons against the first device, with their rules."""
    [claim] = remedies.verdict_of(world).claims
    return [(reason.rule, reason.text) for reason in claim.requests[0].devices[0].reasons]


def asking(expression):
    return world(rooted(2, 2), {"count": 1, "selectors": [{"cel": {"expression": expression}}]})


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["gpu.example.co"].?uuid.orValue("") == "x"',
        'device.driver == "gpu.exmaple.com" && device.attributes["gpu.example.com"].uuid == "x"',
    ],
)
def test_a_misspelt_driver(expression):
    [(rule, text)] = reasons(asking(expression))
    assert rule == "selector"
    assert text.endswith(
        ", which is no driver and no attribute's domain here: is gpu.example.com meant?"
    )


def test_a_misspelt_driver_that_is_an_error():
    """The reason names the mistake, and no remedy may hide it."""
    verdict = remedies.verdict_of(asking('device.attributes["gpu.example.co"].productName == "x"'))
    assert verdict.outcome == "error"
    assert verdict.summary == (
        "claim default/train, request gpus: selector 1 asks for gpu.example.co, "
        "which is no driver and no attribute's domain here: is gpu.example.com meant?"
    )


def test_a_domain_that_is_like_no_other():
    assert reasons(asking('device.attributes["example.org"].?x.orValue("") == "x"')) == [
        ("selector", 'selector 1 false: example.org/x is "", needs "x"')
    ]


def test_selectors_of_class_and_request_are_distinguished():
    hard = world(rooted(1, 1), {"count": 1}, selectors=["false"])
    assert [rule for rule, _ in reasons(hard)] == ["class"]


def device_with(requested, **device):
    devices = [rooted(1, 1)[0] | {"capacity": {"memory": {"value": "80Gi"}}} | device]
    return world(devices, {"count": 1, "capacity": {"requests": requested}})


def test_a_capacity_by_its_qualified_name():
    assert reasons(device_with({"gpu.example.com/memory": "1Gi"})) == [
        (
            "capacity",
            "no capacity gpu.example.com/memory: its driver's own goes by the plain name, memory",
        )
    ]
    [(_, text)] = reasons(device_with({"other.org/memory": "1Gi"}))
    assert text == "no capacity other.org/memory"


def test_a_capacity_that_is_too_small_or_used_up():
    assert reasons(device_with({"memory": "90Gi"})) == [
        ("capacity", "memory: needs 90Gi, 80Gi of 80Gi left")
    ]
    used = device_with({"memory": "50Gi"}, allowMultipleAllocations=True)
    holder = taken("a", "gpu-0", driver="gpu.example.com")
    [result] = holder["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "s", "consumedCapacity": {"memory": "40Gi"}}
    used["taken"] = [holder]
    left = "memory: needs 50Gi, 40Gi of 80Gi left"
    assert reasons(used) == [("consumed", f"{left}; default/a has 40Gi")]


def test_the_largest_of_many_shares_are_named():
    used = device_with({"memory": "50Gi"}, allowMultipleAllocations=True)
    for number in range(9):
        holder = taken(f"c{number}", "gpu-0", driver="gpu.example.com")
        [result] = holder["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": f"s{number}", "consumedCapacity": {"memory": f"{number}Gi"}}
        used.setdefault("taken", []).append(holder)
    [(_, text)] = reasons(used)
    assert text == (
        "memory: needs 50Gi, 44Gi of 80Gi left; default/c8 has 8Gi, default/c7 has 7Gi, "
        "default/c6 has 6Gi, default/c5 has 5Gi, default/c4 has 4Gi, 3 more have the rest"
    )


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ({"default": "20Gi", "validValues": ["20Gi", "40Gi"]}, "only memory of 20Gi or 40Gi"),
        (
            {"default": "80Gi", "validRange": {"min": "4Gi", "max": "40Gi", "step": "4Gi"}},
            "memory may be 4Gi or more, up to 40Gi, in steps of 4Gi",
        ),
        (
            {"default": "80Gi", "validRange": {"min": "1Gi", "max": "40Gi"}},
            "memory may be 1Gi or more, up to 40Gi",
        ),
    ],
)
def test_an_amount_that_the_policy_does_not_allow(policy, allowed):
    memory = {"value": "80Gi", "requestPolicy": policy}
    hard = device_with(
        {"memory": "60Gi"}, capacity={"memory": memory}, allowMultipleAllocations=True
    )
    assert reasons(hard) == [
        (
            "capacity",
            f"the device's request policy does not allow memory=60Gi ({allowed})",
        )
    ]


def test_an_error_of_a_capacity_has_its_name():
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    memory = {"value": "80Gi", "requestPolicy": policy}
    hard = device_with(
        {"memory": "1e30"}, capacity={"memory": memory}, allowMultipleAllocations=True
    )
    verdict = remedies.verdict_of(hard)
    assert verdict.outcome == "error"
    assert 'capacity "memory": ' in verdict.summary


def test_a_taint_of_a_rule_has_its_name():
    hard = world(rooted(1, 1), {"count": 1})
    rule = {
        "metadata": {"name": "broken-fans"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "hot", "value": "very", "effect": "NoSchedule"},
        },
    }
    slices = taints.apply_rules(
        allocating.read(hard["slices"], list[ResourceSlice]),
        allocating.read([rule], list[DeviceTaintRule]),
    )
    [device] = slices[0].spec.devices
    assert isinstance(device.taints[0], taints.TaintOfRule)
    parsed = allocating.parse(hard) | {"slices": slices}
    [claim] = remedies.verdict_of_parsed(parsed, []).claims
    assert [reason.text for reason in claim.requests[0].devices[0].reasons] == [
        "taint hot=very:NoSchedule is not tolerated by the claim (set by DeviceTaintRule broken-fans)"
    ]
