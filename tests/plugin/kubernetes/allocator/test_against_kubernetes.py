"""Compares our allocator with Kubernetes' own on random worlds.

The tests are skipped if there is no Go to build Kubernetes' allocator.
"""

import json
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claimd.kubernetes.allocator import features
from tests.support import (
    alloc_hard,
    alloc_worlds,
    allocating,
    oracle,
    pool_worlds,
    samples,
    shared_worlds,
)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(oracle.missing("allocator")), reason=str(oracle.missing("allocator"))),
]
CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.fixture(scope="module")
def kubernetes():
    with oracle.Oracle() as running:
        yield running


def check(kubernetes, world, **options):
    if features.takes_oldest(frozenset(world.get("features", features.DEFAULT))):
        return  # Kubernetes takes another allocator, which has a test of its own
    theirs = allocating.theirs(kubernetes, world, timeout=2)
    if theirs.get("timedOut"):
        return
    ours = allocating.ours(world, **options)
    assert allocating.comparable(ours) == allocating.comparable(theirs), json.dumps(world, indent=1)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "options", [{"prune_after": 0}, {}, {"prune": False}], ids=["pruning", "usual", "no-pruning"]
)
@pytest.mark.parametrize("selectors", [True, False], ids=["selectors", "plain"])
def test_same_answer(kubernetes, options, selectors):
    """Small worlds, which hypothesis shrinks further if the answers differ."""

    @settings(
        max_examples=samples.share(300),
        deadline=None,
        suppress_health_check=CALM,
        derandomize=True,
        database=None,
    )
    @given(st.randoms(use_true_random=False), st.integers(1, 5))
    def same(source, size):
        world = alloc_worlds.world(alloc_worlds.Draw(source), size=size, selectors=selectors)
        check(kubernetes, world, **options)

    same()


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{"prune_after": 0}, {}], ids=["pruning", "usual"])
def test_same_answer_in_larger_worlds(kubernetes, options):
    for seed in range(samples.share(150)):
        draw = alloc_worlds.Draw(random.Random(seed))
        check(kubernetes, alloc_worlds.world(draw, size=9), **options)


@pytest.mark.sampled
def test_same_answer_with_features_off(kubernetes):
    """Kubernetes then uses an older allocator, which does not know shared capacity."""
    for seed in range(samples.share(150)):
        world = alloc_worlds.for_the_oldest_allocator(seed)
        ours = allocating.comparable(allocating.ours(world))
        theirs, finished = allocating.among_theirs(kubernetes, world, ours)
        assert not finished or theirs == ours, seed


@pytest.mark.parametrize("count", [1, 4, 8])
def test_same_answer_on_a_large_node(kubernetes, count):
    check(kubernetes, alloc_hard.large_node(count))


@pytest.mark.skipif(bool(oracle.missing("pools")), reason=str(oracle.missing("pools")))
def test_same_pools():
    with oracle.Oracle("pools") as running:
        for seed in range(1000):
            world = pool_worlds.numbered(seed)
            assert pool_worlds.ours(world) == pool_worlds.theirs(running, world), seed


@pytest.mark.sampled
def test_same_answers_where_gpus_are_shared(kubernetes):
    """Nodes as claimd publishes them. Each claim gets what the claims before it have left."""
    outcomes = Counter()
    for seed in range(samples.share(200)):
        world, steps = shared_worlds.numbered(seed)
        taken = []
        for step in steps:
            if isinstance(step, int):
                del taken[step : step + 1]
                continue
            question = world | {"claims": [step], "taken": taken}
            theirs = allocating.comparable(allocating.theirs(kubernetes, question, timeout=10))
            ours = allocating.comparable(allocating.ours(question))
            assert ours == theirs, json.dumps(question, indent=1)

            outcomes["no" if ours is None else "error" if isinstance(ours, dict) else "yes"] += 1
            if isinstance(ours, list):
                taken = [*taken, shared_worlds.held(step, ours[0], seed)]
                outcomes["shares"] += sum(result["shared"] for result in ours[0]["results"])
    assert min(outcomes["yes"], outcomes["no"], outcomes["shares"]) > samples.share(300), outcomes
