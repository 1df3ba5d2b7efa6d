"""The short run of deaths and of power loss: 320 points, drawn by FAULTS_SEED. In full: `python -m
tests.faults`.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import random
import shutil

import pytest

from tests.faults import deaths, power, recording, scenarios
from tests.faults.world import Broken, world
from tests.support import progress

DEATHS, LOSSES = 60, 260
AT_ONCE = 3  # deaths: most of the time is waiting

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


@pytest.fixture
def seed():
    drawn = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"FAULTS_SEED={drawn}")
    return drawn


async def tried(points, attempts, wanted, counts):
    """Tries points until `wanted` of them came to what `counts`, one for each of `attempts` at the
    same time.
    """
    broken, reached, left = [], 0, iter(points)

    async def one_after_the_other(attempt):
        nonlocal reached
        for point in left:
            try:
                reached += (await attempt(point)).startswith(counts)
            except Broken as error:
                broken.append(f"{point}: {error}")
            progress.moved()
            if reached >= wanted or broken:
                break

    await asyncio.gather(*map(one_after_the_other, attempts))
    print(f"{reached} points held")
    assert not broken, broken[0]
    assert reached >= wanted


async def all_points(worlds, seed):
    """Returns the points of all scenarios. Each world lives through some of the scenarios."""
    names = list(scenarios.SCENARIOS)
    shares = [names[at :: len(worlds)] for at in range(len(worlds))]
    found = await asyncio.gather(
        *(deaths.points(world_, seed, share) for world_, share in zip(worlds, shares, strict=True))
    )
    points = list(itertools.chain(*found))
    random.Random(seed).shuffle(points)
    return points


async def test_death_at_any_step(seed):
    async with contextlib.AsyncExitStack() as stack:
        worlds = [await stack.enter_async_context(world()) for _ in range(AT_ONCE)]
        points = await all_points(worlds, seed)
        counts = (deaths.DIED, deaths.SURVIVED, deaths.ENDED)
        await tried(
            points, [functools.partial(deaths.attempt, world_) for world_ in worlds], DEATHS, counts
        )


async def test_loss_of_power_at_any_step(seed):
    lives = random.Random(seed).sample(recording.names(), 4)
    recordings = []
    for life in lives:
        async with world() as world_:
            recordings.append(await recording.record(world_, life))
        progress.moved()
    async with world() as world_:
        points = power.points(recordings, 16, seed)
        await tried(points, [power.Bench(world_, recordings, seed).attempt], LOSSES, power.SURVIVED)
