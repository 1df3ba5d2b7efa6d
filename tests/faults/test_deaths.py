"""The short run of deaths and of power loss: 320 points, drawn by FAULTS_SEED. In full: `python -m tests.faults`."""

import os
import random
import shutil

import pytest

from tests.faults import deaths, power, recording
from tests.faults.world import Broken, world

DEATHS, LOSSES = 60, 260

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed"),
]


@pytest.fixture
def seed():
    drawn = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"FAULTS_SEED={drawn}")
    return drawn


async def tried(points, attempt, wanted, counts):
    """Tries points until `wanted` of them came to what `counts`; the words of those that broke a promise."""
    broken, reached = [], 0
    for point in points:
        try:
            reached += (await attempt(point)).startswith(counts)
        except Broken as error:
            broken.append(f"{point}: {error}")
        if reached >= wanted or broken:
            break
    print(f"{reached} points held")
    assert not broken, broken[0]
    assert reached >= wanted


async def test_death_at_any_step(seed):
    async with world() as made:
        points = await deaths.points(made, seed)
        counts = (deaths.DIED, deaths.SURVIVED, deaths.ENDED)
        await tried(points, lambda point: deaths.attempt(made, point), DEATHS, counts)


async def test_loss_of_power_at_any_step(seed):
    lives = random.Random(seed).sample(recording.names(), 4)
    recordings = []
    for life in lives:
        async with world() as made:
            recordings.append(await recording.record(made, life))
    async with world() as made:
        points = power.points(recordings, 16, seed)
        await tried(points, power.Bench(made, recordings, seed).attempt, LOSSES, power.SURVIVED)
