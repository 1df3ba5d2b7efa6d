"""What a refusal of the API server points at, and the slices without it."""

from typing import Any

import pytest

from claimd.kubernetes.api.resource import DeviceTaint, ResourceSlice
from claimd.node.publish import rejected, slices
from claimd_devices.gpu import Gpu, Inventory

DRIVER, NODE = "gpu.claimd.dev", "node-a"


def gpu(number: int = 1, **more: Any) -> Gpu:
    values = {
        "name": f"gpu-0000-{number:02x}-00-0",
        "address": f"0000:{number:02x}:00.0",
        "vendor": "nvidia",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "driver": "nvidia",
    }
    return Gpu(**(values | more))


def build(*gpus: Gpu, **taints: list[DeviceTaint]) -> tuple[list[ResourceSlice], list[str]]:
    by_name = {name.replace("_", "-"): listed for name, listed in taints.items()}
    return slices.build(Inventory.from_unsorted(gpus), DRIVER, NODE, taints=by_name)


def two() -> ResourceSlice:
    [built], _ = build(gpu(1, uuid="u1", memory=1 << 30), gpu(2, uuid="u2"))
    return built


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("spec.devices[1].attributes[uuid].string", "gpu-0000-02-00-0: attributes[uuid]"),
        ("spec.devices[1].basic.attributes[uuid].string", "gpu-0000-02-00-0: attributes[uuid]"),
        (
            "spec.devices[0].attributes[resource.kubernetes.io/pciBusID]",
            "gpu-0000-01-00-0: attributes[resource.kubernetes.io/pciBusID]",
        ),
        ("spec.devices[0].capacity[memory]", "gpu-0000-01-00-0: capacity[memory]"),
        ("spec.devices[0].attributes[unknown]", "gpu-0000-01-00-0"),
        ("spec.devices[1].name", "gpu-0000-02-00-0"),
        ("spec.devices[1]", "gpu-0000-02-00-0"),
    ],
)
def test_a_refusal_points_at_the_smallest_part(field: str, shown: str):
    assert str(rejected.part_at(two(), field)) == shown


@pytest.mark.parametrize(
    "field", ["", "spec.devices", "spec.devices[2].name", "spec.pool.name", "metadata.name"]
)
def test_a_refusal_of_no_device_is_of_no_part(field: str):
    assert rejected.part_at(two(), field) is None


def test_what_was_refused_is_taken_out_and_nothing_else():
    wish = two()
    fields = [
        "spec.devices[0].attributes[uuid]",
        "spec.devices[0].capacity[memory]",
        "spec.devices[1]",
    ]
    parts = [rejected.part_at(wish, field) for field in fields]
    [left] = rejected.remove([wish], [refusal for refusal in parts if refusal])
    [device] = left.spec.devices
    assert device.name == "gpu-0000-01-00-0"
    assert wish.spec.devices[0].attributes.keys() - device.attributes.keys() == {"uuid"}
    assert not device.capacity


def test_another_value_is_tried_again():
    wish = two()
    refusals = [
        rejected.part_at(wish, "spec.devices[1].attributes[uuid]"),
        rejected.part_at(wish, "spec.devices[0]"),
    ]
    changed, _ = build(gpu(1, uuid="new", memory=1 << 30), gpu(2, uuid="new"))
    assert rejected.remove(changed, [refusal for refusal in refusals if refusal]) == changed


def test_a_device_refused_after_one_of_its_attributes_goes():
    wish = two()
    first = rejected.part_at(wish, "spec.devices[0].attributes[uuid]")
    assert first
    [reduced] = rejected.remove([wish], [first])
    second = rejected.part_at(reduced, "spec.devices[0]")
    assert second
    [left] = rejected.remove([wish], [first, second])
    assert [d.name for d in left.spec.devices] == ["gpu-0000-02-00-0"]


def test_a_part_without_a_value_is_no_part_of_another_device():
    """What a device does not have is not what was refused of it, whatever it is called."""
    for part in ("attributes", "capacity", "taints", "", "other"):
        missing = rejected.RejectedPart(
            device="gpu-0000-01-00-0", part=part, key="none", value=DeviceTaint(key="k", effect="e")
        )
        assert rejected.remove([two()], [missing]) == [two()]


def test_an_attribute_and_a_capacity_of_one_name_are_two_parts():
    wish = two()
    refused = rejected.part_at(wish, "spec.devices[0].capacity[memory]")
    assert refused
    [left] = rejected.remove([wish], [refused])
    assert left.spec.devices[0].attributes == wish.spec.devices[0].attributes
    assert left.spec.devices[0].capacity == {}
    other = rejected.RejectedPart(
        device=refused.device, part="attributes", key="memory", value=refused.value
    )
    assert rejected.remove([wish], [other]) == [wish], "there is no such attribute"


# ---------------------------------------------------------------- taints


def slice_with_taints(*keys: str) -> ResourceSlice:
    taints = [DeviceTaint(key=f"claimd.dev/{key}", effect="NoSchedule") for key in keys]
    [built], _ = build(gpu(1), gpu(2), gpu_0000_01_00_0=taints)
    return built


def keys(slice_: ResourceSlice) -> list[list[str]]:
    return [[taint.key for taint in device.taints] for device in slice_.spec.devices]


def test_a_taint_is_named_by_its_place_and_kept_by_its_key():
    part = rejected.part_at(slice_with_taints("hot", "link"), "spec.devices[0].taints[1].effect")
    assert part is not None
    assert str(part) == "gpu-0000-01-00-0: taints[claimd.dev/link]"
    assert keys(*rejected.remove([slice_with_taints("link", "hot")], [part])) == [
        ["claimd.dev/hot"],
        [],
    ]


@pytest.mark.parametrize("place", ["2", "x"])
def test_a_taint_that_is_not_there_is_the_whole_device(place: str):
    part = rejected.part_at(slice_with_taints("hot", "link"), f"spec.devices[0].taints[{place}]")
    assert str(part) == "gpu-0000-01-00-0"


def test_a_device_refused_after_one_of_its_taints_goes():
    """It was refused in the form without the taint, and is built with it."""
    slice_ = slice_with_taints("hot", "link")
    first = rejected.part_at(slice_, "spec.devices[0].taints[0]")
    assert first
    [reduced] = rejected.remove([slice_], [first])
    second = rejected.part_at(reduced, "spec.devices[0].name")
    assert second
    [left] = rejected.remove([slice_], [first, second])
    assert [device.name for device in left.spec.devices] == ["gpu-0000-02-00-0"]


def test_a_device_that_was_refused_with_a_taint_is_tried_without_it():
    slice_ = slice_with_taints("hot")
    part = rejected.part_at(slice_, "spec.devices[0]")
    assert part
    [left] = rejected.remove([slice_with_taints()], [part])
    assert [device.name for device in left.spec.devices] == ["gpu-0000-01-00-0", "gpu-0000-02-00-0"]


def test_nothing_rejected_changes_nothing():
    wish = two()
    assert rejected.remove([wish], [])[0] is wish
