"""Tests of the state that the allocator gathers from claims."""

from claimd.kubernetes.allocator import features, state
from claimd.kubernetes.allocator.identity import DeviceID, SharedDeviceID
from claimd.kubernetes.api.scheduling import ResourceClaim
from tests.support import allocating

GPU, OTHER = DeviceID("d.org", "pool", "gpu-0"), DeviceID("d.org", "pool", "gpu-1")
WHOLE = 10**9


def claim(*results):
    devices = [
        {"request": "r", "driver": "d.org", "pool": "pool", "device": "gpu-0", **result}
        for result in results
    ]
    status = {"allocation": {"devices": {"results": devices}}} if results else {}
    document = {"metadata": {"name": "c", "namespace": "n", "uid": "1"}, "status": status}
    return allocating.read(document, ResourceClaim)


def share(name, **consumed):
    return {"shareID": name, "consumedCapacity": consumed}


def test_only_claims_that_are_allocated_hold_anything():
    waiting, allocated = claim(), claim({})
    assert state.list_all_allocated([waiting, allocated]) == [allocated]
    assert state.gather_from_claims([waiting, allocated]).devices == {GPU}


def test_admin_access_holds_nothing():
    held = state.gather_from_claims([claim({"adminAccess": True}, {"device": "gpu-1"})])
    assert held.devices == {OTHER}
    assert held.has(OTHER)
    assert not held.has(GPU)


def test_shares_of_one_device_add_up():
    held = state.gather_from_claims(
        [claim(share("a", memory="4", cores="1")), claim(share("b", memory="2"))]
    )
    assert held.devices == set()
    assert held.shares == {SharedDeviceID(*GPU, "a"), SharedDeviceID(*GPU, "b")}
    assert held.capacity == {GPU: {"memory": 6 * WHOLE, "cores": WHOLE}}
    assert held.has(GPU)
    assert held.shared == {GPU}


def test_a_share_that_consumes_nothing_is_a_share():
    held = state.gather_from_claims([claim({"shareID": "a"})])
    assert (held.shared, held.capacity) == ({GPU}, {})


def test_without_the_feature_a_share_is_the_whole_device():
    enabled = features.DEFAULT - {features.CONSUMABLE_CAPACITY}
    held = state.gather_from_claims([claim(share("a", memory="4"))], enabled)
    assert (held.devices, held.shares, held.capacity) == ({GPU}, frozenset(), {})


def test_two_states_together():
    left = state.gather_from_claims([claim(share("a", memory="4", cores="1"), {"device": "gpu-1"})])
    right = state.gather_from_claims(
        [
            claim(share("b", memory="2", lanes="3"), {"device": "gpu-2"}),
            claim({"device": "gpu-3", **share("c", memory="1")}),
        ]
    )
    both = state.merge(left, right)
    assert both.devices == {OTHER, OTHER._replace(device="gpu-2")}
    assert both.capacity == {
        GPU: {"memory": 6 * WHOLE, "cores": WHOLE, "lanes": 3 * WHOLE},
        GPU._replace(device="gpu-3"): {"memory": WHOLE},
    }
    assert both.shares == left.shares | right.shares
    assert left.capacity == {GPU: {"memory": 4 * WHOLE, "cores": WHOLE}}
