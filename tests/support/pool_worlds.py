"""Random slices for gather_pools, put to ours and to the last release whose GatherPools can be
called.

Two rules are newer than that release, so the worlds keep off them: a pool's slices are for this
node all or none, as now all of them are counted and a newer generation for other nodes counts too.
"""

import random

from claimd.kubernetes import allocator
from claimd.kubernetes.allocator import features
from claimd.kubernetes.api.core import Node
from claimd.kubernetes.api.scheduling import ResourceSlice

from . import alloc_worlds, allocating

NODE = {"metadata": {"name": alloc_worlds.NODE, "labels": {"zone": "a", "rank": "5"}}}


def numbered(seed):
    draw = alloc_worlds.Draw(random.Random(seed))
    slices = []
    for driver in ("gpu.example.com", "nic.example.com"):
        for pool in ("pool-a", "pool-b", "pool-c")[: draw.number(0, 3)]:
            slices += _pool(draw, driver, pool, len(slices))
    draw.source.shuffle(slices)
    return slices


def _pool(draw, driver, pool, first):
    where = draw.pick(
        ({"nodeName": alloc_worlds.NODE}, {"nodeName": "node-2"}, {"allNodes": True}, None)
    )
    where = where or {"nodeSelector": alloc_worlds.selector(draw)}
    for index in range(first, first + draw.number(1, 4)):
        generation, count = draw.number(1, 2), draw.number(1, 3)
        names = [f"gpu-{index}-{number}" for number in range(draw.number(0, 3))]
        if draw.chance(8):
            names.append("gpu-twice")
        yield {
            "metadata": {"name": f"slice-{index}"},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                "devices": [{"name": name} for name in names],
            }
            | where,
        }


def ours(slices):
    pools = allocator.gather_pools(
        allocating.read(slices, list[ResourceSlice]), allocating.read(NODE, Node), features.DEFAULT
    )
    return sorted([str(pool.pool_id), *_state(pool)] for pool in pools)


def _state(pool):
    """What is wrong with a pool hides what it has: nothing is allocated from it."""
    if pool.is_incomplete:
        return "incomplete", []
    return pool.invalid_reason, [] if pool.is_invalid else [
        slice_.metadata.name for slice_ in pool.slices
    ]


def theirs(oracle, slices):
    beta = [
        entry | {"spec": entry["spec"] | {"devices": _basic(entry["spec"]["devices"])}}
        for entry in slices
    ]
    answer = oracle.ask({"node": NODE, "slices": beta})
    return sorted(
        [
            f"{entry['driver']}/{entry['pool']}",
            "incomplete" if entry["incomplete"] else entry["invalid"],
            [] if entry["incomplete"] or entry["invalid"] else sorted(entry["slices"]),
        ]
        for entry in answer["pools"] or []
    )


def _basic(devices):
    """As v1beta1 has them."""
    return [{"name": device["name"], "basic": {}} for device in devices]
