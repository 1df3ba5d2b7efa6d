"""Which devices no other claim can get while a claim has its own."""

import pytest

from claimd.node.prepare import claim_taints
from claimd.node.prepared import PreparedClaim, PreparedDevice
from claimd_devices.gpu import Inventory
from tests.support.worlds import gpu

WHOLE, PART, OTHER = gpu(0), gpu(1, parent=gpu(0).name), gpu(2)
DEVICES = Inventory.from_unsorted([WHOLE, PART, OTHER])


def tainted(**device):
    prepared = PreparedDevice(requests=(), pool="", address="", **device)
    claim = PreparedClaim(
        namespace="default", name="c", uid="uid-c", prepared_at="", devices=(prepared,)
    )
    return claim_taints.taints_for(claim, DEVICES, "example.com/key", 0.0)


@pytest.mark.parametrize("device", [WHOLE, PART])
def test_parts_and_their_gpu_are_tainted_together(device):
    taints = tainted(device=device.name)
    assert set(taints) == {WHOLE.name, PART.name}
    (taint,) = set(taints.values())
    assert (taint.key, taint.effect) == ("example.com/key", "NoSchedule")
    assert taint.time_added == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("more", [{"admin": True}, {"share_id": "a"}])
def test_devices_that_others_can_have_as_well_are_not_tainted(more):
    assert tainted(device=OTHER.name, **more) == {}
