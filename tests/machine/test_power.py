"""The short run of `power`: fifty losses of power on each of two file systems, with a control."""

import asyncio
import os
import random

import pytest

from tests.faults.world import Broken, world
from tests.machine import cuts, kernel, power
from tests.support import progress

SOUND, UNSYNCED = ("ext4", "xfs"), "ext4-unsynced"
KINDS = (*SOUND, UNSYNCED)
SECONDS = 25.0  # of calls in the guest
CUTS = 50
CONTROLS = 40


@pytest.fixture(scope="module")
def seed():
    drawn = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"FAULTS_SEED={drawn}")
    return drawn


@pytest.fixture(scope="module")
def recordings(seed):
    """The lives of three disks, by their kind. The guests run at the same time."""

    async def record():
        linux = kernel.fetch()
        return await asyncio.gather(*(power.record(linux, kind, SECONDS, seed) for kind in KINDS))

    return dict(zip(KINDS, asyncio.run(record()), strict=True))


async def attempts(recording, seed, count):
    """Returns how many cuts were tried, and what was wrong with those that broke a promise."""
    broken = []
    async with world() as world_:
        bench = power.Bench(world_, recording, seed)
        tried = cuts.draw(recording.events, power.ANSWERED, count, seed)
        for cut in tried:
            try:
                await bench.attempt(cut)
            except Broken as error:
                broken.append(f"{cut}: {error}")
            progress.moved()
    return len(tried), broken


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", SOUND)
async def test_no_answer_is_lost_with_the_power(recordings, seed, kind):
    tried, broken = await attempts(recordings[kind], seed, CUTS)
    assert tried == CUTS
    assert not broken, "\n".join(broken)


@pytest.mark.timeout(400)
async def test_a_claimd_that_does_not_sync_folders_loses_answers(recordings, seed):
    """The control: the check above notices a sync that is missing."""
    _, broken = await attempts(recordings[UNSYNCED], seed, CONTROLS)
    assert any("lost" in each or "is back" in each for each in broken), broken
