"""The lock of the checkpoints' folder, and what its count tells."""

import asyncio
import contextlib
import fcntl
import gc
import os
import resource

import pytest

from claimd.common import errors
from claimd.node.prepare import commit_lock


@pytest.fixture
def locks(tmp_path):
    """Two processes' locks on one folder that is not there yet."""
    path = tmp_path / "plugins" / "driver" / "claims.lock"
    return commit_lock.CommitLock(path), commit_lock.CommitLock(path)


@contextlib.asynccontextmanager
async def held(lock, patience=5.0):
    await lock.acquire(patience)
    try:
        yield
    finally:
        lock.release()


async def test_one_holds_it_at_a_time(locks):
    one, two = locks
    async with held(one):
        assert (one.is_held(), two.is_held()) == (True, False)
        with pytest.raises(errors.ClaimError, match=r"has held .*claims\.lock for 0\.02 s"):
            await two.acquire(0.02)
        waiting = asyncio.create_task(two.acquire(5.0))
        await asyncio.wait([waiting], timeout=0.03)
        assert not waiting.done()
    await waiting
    assert (one.is_held(), two.is_held()) == (False, True)
    two.release()


async def test_each_has_one_descriptor_however_often_it_tries(locks, tmp_path):
    one = locks[0]
    two = commit_lock.CommitLock(tmp_path / "plugins" / "driver" / "claims.lock")

    def descriptors():
        gc.collect()  # those of other tests
        return len(os.listdir("/proc/self/fd"))

    async with held(one):
        before = descriptors()
        for _ in range(3):
            with pytest.raises(errors.ClaimError):
                await two.acquire(0.0)
            assert two.others_announced() is True
    async with held(two):
        pass
    assert descriptors() == before + 1
    del two
    assert descriptors() == before


async def test_a_file_that_is_replaced_while_it_is_locked_is_no_lock(locks, monkeypatch):
    one, two = locks
    async with held(one):
        pass
    flock = fcntl.flock

    def replaced(descriptor, how):
        flock(descriptor, how)
        monkeypatch.setattr(fcntl, "flock", flock)
        os.unlink(one._path)
        assert two.try_acquire()

    monkeypatch.setattr(fcntl, "flock", replaced)
    assert not one.try_acquire()
    assert (one.is_held(), two.is_held()) == (False, True)
    assert not one.try_acquire()
    two.release()
    async with held(one):
        assert not two.try_acquire()


async def test_a_file_in_its_place_is_the_lock_from_then_on(locks):
    """As when somebody has removed the folder, and another instance has made it anew."""
    one, two = locks
    async with held(one):
        one.seen = 0
        one.announce()
    os.rename(one._path, f"{one._path}.old")
    async with held(two):
        two.seen = 0
        two.announce()
        two.seen = 1
        with pytest.raises(errors.ClaimError):
            await one.acquire(0.0)
    assert not one.others_announced(), "its count is the same"
    async with held(one):
        assert one.count() == 1


async def test_an_announcement_is_counted_once_as_long_as_the_lock_is_held(locks):
    one, two = locks
    async with held(one):
        assert one.count() == 0
        one.seen = 0
        one.announce()
        one.announce()
        assert (one.count(), one.seen) == (1, 1)
    async with held(one):
        one.announce()
        assert (one.count(), one.seen) == (2, 2)
    assert not one.others_announced()
    assert two.others_announced(), "it has not looked yet"
    async with held(two):
        assert two.count() == 2
        two.seen = 2
    assert not two.others_announced()
    async with held(one):
        one.announce()
    assert two.others_announced()


async def test_an_announcement_that_was_not_written_does_not_count(locks):
    one, _ = locks
    async with held(one):
        one.seen = 0
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(OSError):
                one.announce()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert one.seen == 0
        one.announce()
        assert (one.count(), one.seen) == (1, 1)


async def test_a_commit_without_the_lock_is_a_mistake(locks):
    with pytest.raises(AssertionError, match="without the lock"):
        locks[0].announce()


@pytest.mark.parametrize(("seen", "expected"), [(-1, False), (0, False), (1, True)])
def test_a_lock_file_that_is_gone_was_taken_away_if_there_was_a_commit(locks, seen, expected):
    locks[0].seen = seen
    assert locks[0].others_announced() is expected


async def test_a_folder_may_be_there_without_the_lock(tmp_path):
    lock = commit_lock.CommitLock(tmp_path / "claims.lock")
    async with held(lock):
        assert lock.count() == 0
    assert os.stat(tmp_path / "claims.lock").st_mode & 0o777 == 0o600


async def test_a_lock_file_that_was_taken_away_is_made_anew_and_counts_from_nothing(locks):
    one, _ = locks
    async with held(one):
        one.seen = 0
        one.announce()
    os.unlink(one._path)
    async with held(one):
        assert one.count() == 0
