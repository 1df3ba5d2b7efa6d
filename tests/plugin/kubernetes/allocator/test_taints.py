"""Tests of taints, tolerations and DeviceTaintRules."""

import pytest

from claimd.kubernetes.allocator import taints
from claimd.kubernetes.api.resource import DeviceTaint
from claimd.kubernetes.api.scheduling import DeviceTaintRule, DeviceToleration, ResourceSlice
from tests.support import allocating

HOT = {"key": "hot", "value": "v", "effect": "NoSchedule"}


def taint(**more):
    return allocating.read(HOT | more, DeviceTaint)


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "hot", "value": "v"}, True),
        ({"key": "hot", "value": "v", "operator": "Equal", "effect": "NoSchedule"}, True),
        ({"key": "hot", "value": "w"}, False),
        ({"key": "hot"}, False),
        ({"key": "hot", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "cold", "operator": "Exists"}, False),
        ({"key": "hot", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "cold", "value": "v", "effect": "NoSchedule"}, False),
        ({"key": "hot", "value": "v", "operator": "Like"}, False),
    ],
)
def test_tolerations(toleration, tolerates):
    read = allocating.read(toleration, DeviceToleration)
    assert taints.tolerates(read, taint()) is tolerates
    assert taints.blocking_taint([taint()], [read]) == (None if tolerates else taint())


def test_the_first_taint_that_nothing_tolerates():
    others = [allocating.read({"key": "cold", "operator": "Exists"}, DeviceToleration)] * 2
    given = [taint(key="cold"), taint(key="odd", effect="Later"), taint(), taint(key="last")]
    assert taints.blocking_taint(given, others) == taint()
    assert taints.blocking_taint(given[:2], others) is None
    assert taints.blocking_taint([taint(effect="None")], []) is None
    assert taints.blocking_taint([taint(effect="NoExecute")], []) == taint(effect="NoExecute")


def slice_(*names):
    spec = {
        "driver": "d.org",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": [{"name": name, "taints": [HOT]} for name in names],
    }
    return allocating.read({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)


def rule(name, selector):
    spec = {"taint": HOT | {"key": name}} | (
        {} if selector is None else {"deviceSelector": selector}
    )
    return allocating.read({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


@pytest.mark.parametrize(
    ("selector", "devices"),
    [
        ({}, ("gpu-0", "gpu-1")),
        ({"driver": "d.org"}, ("gpu-0", "gpu-1")),
        ({"driver": "d.org", "pool": "node-1", "device": "gpu-1"}, ("gpu-1",)),
        ({"driver": "e.org"}, ()),
        ({"driver": "d.org", "pool": "node-2"}, ()),
        ({"driver": "e.org", "pool": "node-1"}, ()),
        ({"device": "gpu-7"}, ()),
        (None, ()),
    ],
)
def test_the_devices_that_a_rule_is_about(selector, devices):
    before = slice_("gpu-0", "gpu-1")
    [after] = taints.apply_rules([before], [rule("a", selector)])
    for device in after.spec.devices:
        keys = ["hot", "a"] if device.name in devices else ["hot"]
        assert [taint.key for taint in device.taints] == keys
    assert (after is before) == (not devices)


def test_taints_of_rules_come_in_the_order_of_their_names():
    [after] = taints.apply_rules([slice_("gpu-0")], [rule("b", {}), rule("a", {})])
    [_, first, second] = after.spec.devices[0].taints
    assert (first.rule, second.rule) == ("a", "b")
    assert (first.key, first.value, first.effect) == ("a", "v", "NoSchedule")
