"""Tests of candidates: their order and the counters that they use."""

from claimd.kubernetes.allocator import features, pools
from claimd.kubernetes.allocator.devices import Devices
from claimd.kubernetes.allocator.identity import DeviceID, PoolID
from claimd.kubernetes.api.core import Node
from claimd.kubernetes.api.scheduling import ResourceSlice
from tests.support import allocating

WHOLE = 10**9


def slice_(name, *devices, pool="p", count=1):
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": count}
    published = [{"name": device} if isinstance(device, str) else device for device in devices]
    spec = {"driver": "d.org", "nodeName": "n", "pool": of_pool, "devices": published}
    return allocating.read({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def test_the_counters_and_groups_of_a_device():
    memory, cores = {"memory": {"value": "2"}}, {"cores": {"value": "500m"}}
    device = {
        "name": "part",
        "capacity": {"memory": {"value": "1k"}},
        "consumesCounters": [
            {"counterSet": "a", "counters": memory | cores, "compatibilityGroups": ["x", "y"]},
            {"counterSet": "b", "counters": memory},
            {"counterSet": "a", "counters": memory},
        ],
    }
    [part, plain] = Devices().for_slice(slice_("s", device, "plain"))
    assert (part.id, part.pool_id) == (DeviceID("d.org", "p", "part"), PoolID("d.org", "p"))
    # What is used of one counter in several places adds up.
    assert dict(part.uses) == {
        ("a", "memory"): 4 * WHOLE,
        ("a", "cores"): WHOLE // 2,
        ("b", "memory"): 2 * WHOLE,
    }
    assert part.groups == (("a", frozenset("xy")), ("b", frozenset()), ("a", frozenset()))
    assert part.limits == {"memory": 1000 * WHOLE}
    assert part.limits is part.limits and part.for_cel is part.for_cel
    assert part.for_cel.driver == "d.org"
    assert (plain.uses, plain.groups, plain.limits) == ((), (), {})


def test_a_capacity_has_two_names_since_1_38():
    published = {"memory": {"value": "1"}, "d.org/cores": {"value": "2"}, "o.org/x": {"value": "3"}}
    both = {"memory": {"value": "1"}, "d.org/memory": {"value": "4"}}
    slices = slice_("s", {"name": "a", "capacity": published}, {"name": "b", "capacity": both})

    [device, twice] = Devices().for_slice(slices)
    assert device.limits == {"memory": WHOLE, "d.org/cores": 2 * WHOLE, "o.org/x": 3 * WHOLE}
    assert device.own_name("d.org/memory") == "d.org/memory"
    assert [twice.published_name(name) for name in both] == [*both], "two capacities"

    [device, twice] = Devices(features.release_defaults(38)).for_slice(slices)
    assert device.limits == {"memory": WHOLE, "cores": 2 * WHOLE, "o.org/x": 3 * WHOLE}
    assert device.own_name("d.org/memory") == device.own_name("memory") == "memory"
    assert [device.published_name(name) for name in device.capacity] == [*published]
    assert twice.limits == {"memory": 4 * WHOLE}
    assert twice.published_name("memory") == "d.org/memory"


def test_the_devices_of_a_slice_are_made_once():
    devices, first, other = Devices(), slice_("s", "a", "b"), slice_("t", "c")
    assert devices.for_slice(first) is devices.for_slice(first)
    assert [each.device.name for each in devices.for_slices([other, first])] == ["c", "a", "b"]


def test_only_pools_that_can_be_trusted_are_searched_in_their_order():
    node = allocating.read({"metadata": {"name": "n"}}, Node)
    slices = [
        slice_("z", "e", pool="b"),
        slice_("y", "d", pool="a", count=2),
        slice_("x", "c", pool="a", count=2),
        slice_("torn", "t", pool="c", count=2),
        slice_("twice", "u", "u", pool="d"),
    ]
    candidates = Devices().in_search_order(pools.gather_pools(slices, node))
    assert [each.device.name for each in candidates] == ["c", "d", "e"]
