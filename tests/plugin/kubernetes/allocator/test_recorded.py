"""Compares our allocator with recorded answers of Kubernetes' allocator on random worlds.

The recording also has the number of steps of our search. A pruning rule that stops working costs
steps, which the answer alone would not show. No Go is needed.
"""

import json

import pytest

from claimd.kubernetes.allocator import features
from tests.support import alloc_records, alloc_worlds, allocating

LINES = alloc_records.lines()


def takes_oldest(world):
    """Returns True if Kubernetes uses its oldest allocator for the features of the world."""
    return features.takes_oldest(frozenset(world.get("features", features.DEFAULT)))


@pytest.mark.parametrize("part", range(6))
def test_recorded(part):
    for seed, plain, pruned, answer in LINES[part::6]:
        world = alloc_worlds.numbered(int(seed))
        assert alloc_records.steps(world, 0) == pruned, seed
        if plain != "many":
            assert alloc_records.steps(world, None) == plain, seed
        if answer and not takes_oldest(world):
            ours = allocating.comparable(allocating.ours(world, prune_after=0))
            assert ours == json.loads(answer), seed
