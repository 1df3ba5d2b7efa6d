"""The parts of devices that the API server refuses, and the slices that have to wait."""

import pytest

from claimd.kubernetes.api.resource import ResourceSlice
from claimd.kubernetes.kube import errors
from claimd.node.publish import pool, refusals, slices
from claimd_devices.gpu import Gpu, Inventory

FIRST, SECOND = "gpu-0000-01-00-0", "gpu-0000-02-00-0"


def build() -> ResourceSlice:
    gpus = []
    for number in (1, 2):
        gpus.append(
            Gpu(
                name=f"gpu-0000-{number:02x}-00-0",
                address=f"0000:{number:02x}:00.0",
                vendor="nvidia",
                vendor_id=0x10DE,
                device_id=0x2330,
                driver="nvidia",
                uuid=f"u{number}",
            )
        )
    [built], _ = slices.build(Inventory.from_unsorted(gpus), "gpu.claimd.dev", "node-a", taints={})
    return built


def refusal(*fields: str) -> errors.Invalid:
    causes = tuple(errors.Cause(field=field, message="no") for field in fields)
    return errors.Invalid("refused", causes=causes)


def uuids(given: refusals.Refusals) -> list[bool]:
    """Returns for each device whether its uuid is published."""
    (left,) = given.remove_rejected([build()])
    return ["uuid" in device.attributes for device in left.spec.devices or ()]


async def test_a_part_is_left_out_until_its_device_is_gone() -> None:
    given, write = refusals.Refusals(), build()
    assert uuids(given) == [True, True]
    fields = [f"spec.devices[{number}].attributes[uuid]" for number in (0, 1)]
    given.add(write, {}, refusal(*fields, fields[0]))
    assert uuids(given) == [False, False]
    assert given.deadlines() == [], "what is left may be accepted"

    given.keep_only([SECOND])
    assert uuids(given) == [True, False], "another device may come under the name"
    given.keep_only([FIRST, SECOND])
    assert uuids(given) == [True, False]


@pytest.mark.parametrize("field", ["", "spec.devices[0].attributes[uuid]"])
async def test_a_slice_waits_if_nothing_more_can_be_left_out(field: str) -> None:
    given, write = refusals.Refusals(), build()
    if field:
        given.add(write, {}, refusal(field))
        assert given.deadlines() == []
    given.add(write, {pool.slice_name(write): {"a": 1}}, refusal(field))
    assert len(given.deadlines()) == 1
