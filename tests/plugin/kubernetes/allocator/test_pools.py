"""Tests of pools from the view of a node: newest slices, incomplete and invalid pools."""

import pytest

from claimd.kubernetes.allocator import AllocationError, features, pools
from claimd.kubernetes.allocator.identity import PoolID
from claimd.kubernetes.api.core import Node
from claimd.kubernetes.api.scheduling import ResourceSlice
from tests.support import allocating

DRIVER = "d.org"
NODE = allocating.read({"metadata": {"name": "node-1", "labels": {"a": "b"}}}, Node)
WITHOUT_PARTS = features.DEFAULT - {features.PARTITIONABLE_DEVICES}


def slice_(name, *devices, pool="p", generation=1, count=1, **spec):
    where = {} if {"nodeName", "allNodes", "nodeSelector"} & spec.keys() else {"nodeName": "node-1"}
    if "perDeviceNodeSelection" in spec:
        where = {}
    published = [device if isinstance(device, dict) else {"name": device} for device in devices]
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
    fields = {"driver": DRIVER, "pool": of_pool, "devices": published}
    return {"metadata": {"name": name}, "spec": fields | where | spec}


def gather(*slices, enabled=features.DEFAULT):
    return pools.gather_pools(allocating.read(list(slices), list[ResourceSlice]), NODE, enabled)


def names(slices):
    return [slice_.metadata.name for slice_ in slices]


def using(name, counter_set="c", counter="memory", **more):
    counters = {counter: {"value": "1"}}
    consumed = [{"counterSet": counter_set, "counters": counters} | more]
    return {"name": name, "consumesCounters": consumed}


COUNTERS = [{"name": "c", "counters": {"memory": {"value": "8"}}}]


def test_a_pool_has_its_slices_by_name_and_is_trusted_when_all_are_there():
    [pool] = gather(slice_("b", "x", count=2), slice_("a", "y", count=2))
    assert (pool.pool_id, names(pool.slices)) == (PoolID(DRIVER, "p"), ["a", "b"])
    assert pool.is_usable and not pool.is_invalid and not pool.is_incomplete


def test_the_oldest_allocator_takes_slices_and_pools_as_they_are_listed():
    listed = [
        slice_("b", "x", count=3),
        slice_("z", "x", pool="a"),
        slice_("counters", count=3, sharedCounters=COUNTERS, nodeName="node-2"),
        slice_("a", "y", count=3, allNodes=True),
    ]
    found = gather(*listed, enabled=features.STABLE)
    assert [(pool.pool_id.pool, names(pool.slices)) for pool in found] == [
        ("p", ["b", "a"]),
        ("a", ["z"]),
    ]
    [first, second] = gather(*reversed(listed), enabled=features.STABLE)
    assert names(first.slices) == ["a", "b"] and names(second.slices) == ["z"]
    assert [pool.pool_id.pool for pool in gather(*listed)] == ["a", "p"]


@pytest.mark.parametrize("slices", [1, 3])
def test_a_pool_with_too_few_or_too_many_slices_is_incomplete(slices):
    [pool] = gather(*(slice_(f"s{number}", f"g{number}", count=2) for number in range(slices)))
    assert pool.is_incomplete and not pool.is_usable
    assert (pool.slices_there, pool.slices_expected, pool.slices) == (slices, 2, ())


def test_the_newest_generation_counts():
    old = [slice_("a", "x", count=2), slice_("b", "y", count=2)]
    new = slice_("c", "z", generation=2)
    for order in ((*old, new), (new, *old), (old[0], new, old[1])):
        [pool] = gather(*order)
        assert names(pool.slices) == ["c"]
    # A newer one that has nothing for this node makes what it has obsolete.
    elsewhere = slice_("c", "z", generation=2, count=2, nodeName="node-2")
    assert gather(slice_("a", "x", count=2), elsewhere) == []
    older = slice_("c", "z", generation=0, nodeName="node-2")
    [pool] = gather(slice_("a", "x", count=2), older)
    assert (pool.is_incomplete, pool.slices_there) == (True, 1)


def test_slices_of_other_nodes_complete_a_pool():
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    [pool] = gather(
        slice_("a", "x", count=3),
        slice_("b", "y", count=3, nodeName="node-2"),
        slice_("c", "z", count=3, nodeSelector=selector),
    )
    assert (names(pool.slices), names(pool.slices_elsewhere)) == (["a", "c"], ["b"])


def test_each_device_may_say_where_it_is():
    here, there = {"name": "x", "nodeName": "node-1"}, {"name": "y", "nodeName": "node-2"}
    [pool] = gather(slice_("a", here, there, perDeviceNodeSelection=True))
    assert names(pool.slices) == ["a"]
    assert gather(slice_("a", there, perDeviceNodeSelection=True)) == []
    # Without the feature the slice is as good as absent, and so is its pool.
    apart = slice_("a", here, perDeviceNodeSelection=True, count=2)
    assert gather(apart, enabled=WITHOUT_PARTS) == []
    [pool] = gather(apart, slice_("b", "z", count=2), enabled=WITHOUT_PARTS)
    assert names(pool.slices) == ["b"]


def test_a_slice_without_known_nodes_is_for_no_node():
    future = slice_("a", "x", allNodes=False)
    assert gather(future) == []
    assert names(gather(slice_("a", "x", allNodes=True))[0].slices) == ["a"]


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([slice_("a", "x", "x")], "duplicate device name x"),
        ([slice_("a", "x", count=2), slice_("b", "x", count=2)], "duplicate device name x"),
        (
            [slice_("a", using("x"), count=2), slice_("b", count=2, sharedCounters=COUNTERS * 2)],
            "duplicate counter set name c",
        ),
        ([slice_("a", using("x"))], "counter set c not found"),
        (
            [
                slice_("a", using("x", counter="cores"), count=2),
                slice_("b", count=2, sharedCounters=COUNTERS),
            ],
            "counter cores not found in counter set c",
        ),
        # Devices for other nodes draw on the same counters.
        (
            [
                slice_("a", using("x"), count=3),
                slice_("b", using("y", "d"), count=3, nodeName="node-2"),
                slice_("c", count=3, sharedCounters=COUNTERS),
            ],
            "counter set d not found",
        ),
    ],
)
def test_a_pool_that_contradicts_itself_is_invalid(slices, reason):
    [pool] = gather(*slices)
    assert pool.invalid_reason == reason
    assert pool.is_invalid and not pool.is_usable and not pool.is_incomplete


def test_a_slice_has_counters_or_devices():
    [pool] = gather(slice_("a", using("x"), count=2), slice_("b", count=2, sharedCounters=COUNTERS))
    assert names(pool.slices) == ["a"]
    assert list(pool.counter_sets) == ["c"]
    # Names may be the same on another node.
    [pool] = gather(slice_("a", "x", count=2), slice_("b", "x", count=2, nodeName="node-2"))
    assert pool.is_usable


def test_groups_that_need_a_feature():
    grouped = using("x", compatibilityGroups=["g"])
    slices = slice_("a", grouped, count=2), slice_("b", count=2, sharedCounters=COUNTERS)
    assert gather(*slices, enabled=features.DEFAULT | {features.COMPATIBILITY_GROUPS})[0].is_usable
    off = features.DEFAULT - {features.COMPATIBILITY_GROUPS}
    [pool] = gather(*slices, enabled=off)
    assert (pool.is_incomplete, pool.slices_there, pool.slices_expected) == (True, 1, 2)


def test_pools_with_binding_conditions_come_last():
    bound = {"name": "x", "bindingConditions": ["Ready"]}
    pools = gather(
        slice_("a", bound, pool="a"), slice_("b", "y", pool="b"), slice_("c", "z", pool="c")
    )
    assert [pool.pool_id.pool for pool in pools] == ["b", "c", "a"]


def test_a_node_selector_that_cannot_be_evaluated_is_an_error():
    bad = {"matchExpressions": [{"key": "a", "operator": "Odd"}]}
    with pytest.raises(AllocationError, match="slice a has a bad node selector: "):
        gather(slice_("a", "x", nodeSelector={"nodeSelectorTerms": [bad]}))


def test_the_index_of_slices():
    documents = [
        slice_("a", "x"),
        slice_("b", "y", nodeName="node-2"),
        slice_("c", "z", pool="q", allNodes=True),
        slice_("d", sharedCounters=COUNTERS),
    ]
    index = pools.SliceIndex(allocating.read(documents, list[ResourceSlice]))
    assert names(index.for_node(NODE)) == ["a", "d", "c"]
    other = allocating.read({"metadata": {"name": "node-2"}}, Node)
    assert names(index.with_counters_of_all_nodes(other)) == ["b", "c", "d"]
    assert names(index.in_pool(PoolID(DRIVER, "q"))) == ["c"]
    assert index.drivers == {DRIVER}
