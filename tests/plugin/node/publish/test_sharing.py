"""The setting `share`: which GPUs its rules take, and what a shared GPU is for the scheduler."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.resource import Device
from claimd.node.publish import device as devices
from claimd.node.publish import sharing
from claimd_devices.gpu import DIVIDED, Gpu, Inventory

GI = 1 << 30


def gpu(**more: Any) -> Gpu:
    values = {
        "name": "gpu-0000-41-00-0",
        "address": "0000:41:00.0",
        "vendor": "nvidia",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "driver": "nvidia",
        "memory": 80 * GI,
    }
    return Gpu(**(values | more))


def how(rules: str, **more: Any) -> str:
    return sharing.of_gpu(sharing.parse(rules.split(",")), gpu(**more)).how


def describe(rule: str, **more: Any) -> tuple[Device, list[str]]:
    problems: list[str] = []
    device = gpu(**more)
    shared = sharing.of_gpu(sharing.parse([rule]), device)
    return devices.of_gpu(device, problems, shared=shared), problems


def policies(device: Device) -> dict[str, Any]:
    return {
        name: msgspec.to_builtins(capacity.request_policy)
        for name, capacity in device.capacity.items()
    }


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("nvidia=memory", "memory"),
        ("NVIDIA=memory", "memory"),
        ("amd=memory", "exclusive"),
        ("10de:2330=shares:4", "shares"),
        ("10de:*=unlimited", "unlimited"),
        ("0000:4?:00.0=unlimited", "unlimited"),
        ("*=memory", "memory"),
        (" * = memory ", "memory"),
        ("nvidia=memory,0000:41:00.0=shares:2", "shares"),
        ("0000:41:00.0=shares:2,nvidia=memory", "memory"),
        ("*=memory,nvidia=exclusive", "exclusive"),
        ("parts=memory", "exclusive"),
        ("console=unlimited", "exclusive"),
    ],
)
def test_the_last_rule_that_matches_wins(rules: str, expected: str):
    assert how(rules) == expected


def test_parts_are_shared_as_their_gpu_unless_a_rule_says_otherwise():
    part = {"name": "gpu-0000-41-00-0-mig-1", "parent": "gpu-0000-41-00-0", "kind": "partition"}
    assert how("nvidia=memory", **part) == "memory"
    assert how("nvidia=memory,parts=exclusive", **part) == "exclusive"
    assert how("parts=shares:3", **part) == "shares"
    assert how("parts=shares:3", kind="vf") == "shares"


def test_virtual_functions_have_the_rule_of_their_gpu():
    vf = {"name": "gpu-0000-41-00-1", "address": "0000:41:00.1", "kind": "vf"}
    vf["parent"] = "gpu-0000-41-00-0"
    assert how("*=shares:4,0000:41:00.0=exclusive", **vf) == "exclusive"
    assert how("0000:41:00.0=shares:4,0000:41:00.1=memory", **vf) == "memory"
    assert how("0000:42:00.0=shares:4", **vf) == "exclusive"


@pytest.mark.parametrize("kind", ["vfio", DIVIDED])
def test_what_one_alone_can_use_is_never_shared(kind: str):
    assert how("*=unlimited", kind=kind) == "exclusive"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("nvidia", "expected WHICH=HOW"),
        ("voodoo=memory", "a vendor"),
        ("nvidia=halves", "'halves' is no way to share"),
        ("nvidia=", "'' is no way to share"),
        ("nvidia=exclusive:1", "no way to share"),
        ("nvidia=shares", "no way to share"),
        ("nvidia=memory:1:1:1", "no way to share"),
        ("nvidia=shares:1", "expected 2 to 1000 shares, got '1'"),
        ("nvidia=shares:1001", "expected 2 to 1000"),
        ("nvidia=shares:²", "expected 2 to 1000"),
        ("nvidia=memory:a", "expected a quantity"),
        ("nvidia=memory:0", "expected an amount of memory"),
        ("nvidia=memory:500m", "expected an amount of memory"),
        ("nvidia=memory:1Gi:2Gi", r"the step \(2Gi\) is more than the least amount \(1Gi\)"),
    ],
)
def test_a_rule_that_is_none_is_refused(rule: str, why: str):
    with pytest.raises(ValueError, match=why) as seen:
        sharing.parse(["*=memory", rule])
    assert repr(rule) in str(seen.value)


def test_by_memory_who_asks_for_nothing_gets_all_of_it():
    device, problems = describe("nvidia=memory:2Gi:1Gi", compute_units=100)
    assert problems == []
    assert device.allow_multiple_allocations is True
    assert device.attributes["sharing"].string == "memory"
    assert policies(device) == {
        "memory": {"default": "78Gi", "validRange": {"min": "2Gi", "step": "1Gi"}},
        "computeUnits": {"default": "0"},
    }

    # The driver keeps 512Mi, and one part of 128.
    assert device.capacity["memory"].value == "80768Mi"


# What programs found on boards, in GiB: the size that is published, and what they could get of it.
FOUND = [
    (15, 14.56),
    (22.5, 22.03),
    (24, 23.52),
    (45, 44.34),
    (80, 79.11),
    (80, 79.14),
    (141, 139.72),
    (180, 178.35),
]


@pytest.mark.parametrize(("published", "found"), FOUND)
def test_shares_together_are_not_more_than_programs_can_get(published: float, found: float):
    allocatable = sharing.allocatable(int(published * GI))
    assert allocatable <= found * GI
    assert allocatable > 0.95 * published * GI


def test_by_shares_each_gets_one():
    device, _ = describe("nvidia=shares:4")
    assert device.capacity["shares"].value == "4"
    assert policies(device) == {
        "memory": {"default": "0"},
        "shares": {"default": "1", "validRange": {"min": "1", "step": "1"}},
    }


def test_without_limit_nothing_is_counted():
    device, _ = describe("nvidia=unlimited")
    assert policies(device) == {"memory": {"default": "0"}}
    assert device.attributes["sharing"].string == "unlimited"


def test_what_is_not_shared_says_so_and_is_as_it_was():
    device, _ = describe("nvidia=exclusive")
    assert device == devices.of_gpu(gpu(), [])
    assert device.attributes["sharing"].string == "exclusive"
    assert device.allow_multiple_allocations is None
    assert policies(device) == {"memory": None}


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        (None, "how much memory it has is not known"),
        (3 << 29, "with 1012Mi it has room for one share of 1Gi alone"),
        (1 << 29, "with 0 it has room for one share of 1Gi alone"),
    ],
)
def test_what_cannot_be_shared_by_memory_is_exclusive(memory: int | None, why: str):
    device, problems = describe("*=memory", memory=memory)
    assert device.attributes["sharing"].string == "exclusive"
    assert device.allow_multiple_allocations is None
    assert problems == [f"gpu-0000-41-00-0: not shared by memory: {why}"]


@pytest.mark.sampled
@given(memory=st.integers(1, 1 << 40), least=st.integers(1, 1 << 36), step=st.integers(1, 1 << 36))
def test_beside_who_has_the_whole_there_is_room_for_nobody(memory: int, least: int, step: int):
    """And the API server's rules hold: the default stands on a step, and one step is possible."""
    how = sharing.Sharing(how=sharing.MEMORY, least=max(least, step), step=step)
    if sharing.reason_unfit(how, memory):
        return
    policy = sharing.capacities(how, {}, memory)["memory"].request_policy
    assert policy is not None
    assert policy.valid_range is not None
    amounts = [policy.default, policy.valid_range.min, policy.valid_range.step]
    whole, lowest, above = (quantity.parse(amount or "") for amount in amounts)
    assert (whole - lowest) % above == 0
    allocatable = sharing.allocatable(memory)
    assert lowest + above <= allocatable
    assert Fraction(0) <= allocatable - whole < lowest


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("*=memory:4Gi:1Gi", "by memory, 4Gi or more in steps of 1Gi"),
        ("*=memory:512Ki", "by memory, 512Ki or more in steps of 512Ki"),
        ("*=shares:4", "by count, 4 shares"),
        ("*=unlimited", "without limit"),
        ("*=exclusive", "not at all"),
    ],
)
def test_how_people_are_told(rule: str, words: str):
    assert str(sharing.parse([rule])[0].sharing) == words


def test_whether_anything_is_shared():
    rules = sharing.parse(["0000:41:00.0=memory"])
    assert sharing.is_any_shared(rules, Inventory.from_unsorted([gpu()]))
    assert not sharing.is_any_shared(rules, Inventory.from_unsorted([gpu(address="0000:42:00.0")]))
    assert not sharing.is_any_shared((), Inventory.from_unsorted([gpu()]))
