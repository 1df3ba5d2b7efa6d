"""A prepared claim and its devices: what a checkpoint keeps, and the GPU that stands behind."""

import json

import msgspec
import pytest

from claimd.common import errors
from claimd.node import prepared
from claimd.node.prepared import PreparedClaim, PreparedDevice
from claimd_devices.gpu import Inventory, Skipped
from tests.support.worlds import gpu

FIRST = gpu(0)


def device(**more):
    facts = {"requests": ("gpu",), "pool": "n", "device": FIRST.name, "address": FIRST.address}
    return PreparedDevice(**(facts | more))


def claim(*devices):
    return PreparedClaim(
        namespace="default", name="c", uid="u", prepared_at="2026-01-01T00:00:00Z", devices=devices
    )


def test_it_is_written_and_read_again():
    whole = claim(
        device(
            share_id="s",
            consumed_capacity={"memory": "1Gi"},
            admin=True,
            uuid="x",
            host_cdi="h",
            environment={"A": "b"},
        ),
        device(permissions="r"),
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=PreparedClaim) == whole


def test_what_is_as_usual_is_not_written():
    """A claim that an older version wrote has fewer fields, and a later one may have more."""
    document = json.loads(msgspec.json.encode(claim(device())))
    assert document == {
        "namespace": "default",
        "name": "c",
        "uid": "u",
        "preparedAt": "2026-01-01T00:00:00Z",
        "devices": [
            {
                "requests": ["gpu"],
                "pool": "n",
                "device": FIRST.name,
                "address": FIRST.address,
            }
        ],
    }
    document["devices"][0]["later"] = 1
    assert msgspec.convert(document, PreparedClaim) == claim(device())


def test_how_people_are_told_of_it():
    assert claim().title == "default/c"
    assert claim(device(), device(device="b")).device_names == f"{FIRST.name}, b"
    assert claim().device_names == "no device of ours"


def test_the_gpu_is_the_one_of_this_name_as_it_is_now():
    now = gpu(0, driver_version="7")
    assert prepared.gpu_of(device(uuid=FIRST.uuid), Inventory.from_unsorted([now, gpu(1)])) == now


@pytest.mark.parametrize(("given", "there"), [("x", None), (None, "x"), (None, None), ("x", "x")])
def test_a_uuid_that_is_not_known_is_no_other(given, there):
    now = gpu(0, uuid=there)
    assert prepared.gpu_of(device(uuid=given), Inventory.from_unsorted([now])) == now


def test_another_gpu_in_its_place_is_refused_for_good():
    with pytest.raises(errors.ClaimError, match="uuid x was recorded, y is there now") as caught:
        prepared.gpu_of(device(uuid="x"), Inventory.from_unsorted([gpu(0, uuid="y")]))
    assert not isinstance(caught.value, errors.NotReadyError)


def test_a_gpu_that_is_missing_may_come_up():
    with pytest.raises(errors.NotReadyError, match="the kernel shows no such GPU") as caught:
        prepared.gpu_of(device(), Inventory.from_unsorted([gpu(1)]))
    assert caught.value.patience == prepared.DEVICE_PATIENCE


@pytest.mark.parametrize("name", [FIRST.name, f"{FIRST.name}-xcp-3"])
def test_why_a_gpu_or_its_part_was_left_alone(name):
    skipped = [
        Skipped(address="0000:99:00.0", reason="of another one"),
        Skipped(address=FIRST.address, reason="no driver is bound to it"),
    ]
    sentence = prepared.reason_missing(name, Inventory.from_unsorted([], skipped))
    assert sentence == (
        f"{name} is not available on this node: no driver is bound to it; "
        "`claimd devices -o wide` tells more"
    )


def test_a_name_of_another_form_is_looked_up_as_it_is():
    skipped = [Skipped(address="strange", reason="it is strange")]
    assert "it is strange" in prepared.reason_missing(
        "strange", Inventory.from_unsorted([], skipped)
    )
    for name in ("gpu-1-2", "gpu-1-2-3"):
        assert "shows no such GPU" in prepared.reason_missing(
            name, Inventory.from_unsorted([], skipped)
        )
