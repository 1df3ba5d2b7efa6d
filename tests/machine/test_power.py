"""The short run of `power`: fifty losses of power on each of two file systems, with a control."""

import asyncio
import os
import random

import pytest

from tests.faults.world import Broken, world
from tests.machine import cuts, kernel, lives, power
from tests.support import progress

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
    """The lives of two disks, by file system. The guests run at the same time."""

    async def record():
        linux = kernel.fetch()
        return await asyncio.gather(
            *(lives.record(linux, file_system, SECONDS, seed) for file_system in lives.SIZES)
        )

    return {recording.file_system: recording for recording in asyncio.run(record())}


async def attempts(recording, seed, count, **options):
    """Returns how many cuts were tried, and what was wrong with those that broke a promise."""
    broken = []
    async with world() as world_:
        bench = power.Bench(world_, recording, seed, **options)
        tried = cuts.draw(recording.events, power.ANSWERED, count, seed)
        for cut in tried:
            try:
                await bench.attempt(cut)
            except Broken as error:
                broken.append(f"{cut}: {error}")
            progress.moved()
    return len(tried), broken


@pytest.mark.timeout(400)
@pytest.mark.parametrize("file_system", lives.SIZES)
async def test_no_answer_is_lost_with_the_power(recordings, seed, file_system):
    tried, broken = await attempts(recordings[file_system], seed, CUTS)
    assert tried == CUTS
    assert not broken, "\n".join(broken)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("file_system", lives.SIZES)
async def test_a_disk_that_forgets_what_it_flushed_loses_answers(recordings, seed, file_system):
    """The control: the check above would notice a sync that has no effect."""
    _, broken = await attempts(recordings[file_system], seed, CONTROLS, without_flushes=True)
    assert broken
