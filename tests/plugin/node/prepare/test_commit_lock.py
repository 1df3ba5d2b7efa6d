"""The lock of the checkpoints' folder, and what its count tells."""

import asyncio
import contextlib
import errno
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
async def holding(lock, patience=5.0):
    await lock.acquire(patience)
    try:
        yield
    finally:
        lock.release()


async def test_one_holds_it_at_a_time(locks):
    first, second = locks
    async with holding(first):
        assert (first.is_held(), second.is_held()) == (True, False)
        with pytest.raises(errors.ClaimError, match=r"has held .*claims\.lock for 0\.02 s"):
            await second.acquire(0.02)
        waiting = asyncio.create_task(second.acquire(5.0))
        await asyncio.wait([waiting], timeout=0.03)
        assert not waiting.done()
    await waiting
    assert (first.is_held(), second.is_held()) == (False, True)
    second.release()


async def test_each_has_one_descriptor_however_often_it_tries(locks, tmp_path):
    first = locks[0]
    second = commit_lock.CommitLock(tmp_path / "plugins" / "driver" / "claims.lock")

    def descriptors():
        gc.collect()  # those of other tests
        return len(os.listdir("/proc/self/fd"))

    async with holding(first):
        before = descriptors()
        for _ in range(3):
            with pytest.raises(errors.ClaimError):
                await second.acquire(0.0)
            assert second.others_announced() is True
    async with holding(second):
        pass
    assert descriptors() == before + 1
    del second
    assert descriptors() == before


async def test_a_file_that_is_replaced_while_it_is_locked_is_no_lock(locks, monkeypatch):
    first, second = locks
    async with holding(first):
        pass
    flock = fcntl.flock

    def replace(descriptor, how):
        flock(descriptor, how)
        monkeypatch.setattr(fcntl, "flock", flock)
        os.unlink(first._path)
        assert second.try_acquire()

    monkeypatch.setattr(fcntl, "flock", replace)
    assert not first.try_acquire()
    assert (first.is_held(), second.is_held()) == (False, True)
    assert not first.try_acquire()
    second.release()
    async with holding(first):
        assert not second.try_acquire()


async def test_a_file_in_its_place_is_the_lock_from_then_on(locks):
    """As when somebody has removed the folder, and another instance has made it anew."""
    first, second = locks
    async with holding(first):
        first.seen = 0
        first.announce()
    os.rename(first._path, f"{first._path}.old")
    async with holding(second):
        second.seen = 0
        second.announce()
        second.seen = 1
        with pytest.raises(errors.ClaimError):
            await first.acquire(0.0)
    assert not first.others_announced(), "its count is the same"
    async with holding(first):
        assert first.count() == 1


async def test_an_announcement_is_counted_once_as_long_as_the_lock_is_held(locks):
    first, second = locks
    async with holding(first):
        assert first.count() == 0
        first.seen = 0
        first.announce()
        first.announce()
        assert (first.count(), first.seen) == (1, 1)
    async with holding(first):
        first.announce()
        assert (first.count(), first.seen) == (2, 2)
    assert not first.others_announced()
    assert second.others_announced(), "it has not looked yet"
    async with holding(second):
        assert second.count() == 2
        second.seen = 2
    assert not second.others_announced()
    async with holding(first):
        first.announce()
    assert second.others_announced()


async def test_an_announcement_that_was_not_written_does_not_count(locks):
    first, _ = locks
    async with holding(first):
        first.seen = 0
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(OSError):
                first.announce()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert first.seen == 0
        first.announce()
        assert (first.count(), first.seen) == (1, 1)


async def test_a_commit_without_the_lock_is_a_mistake(locks):
    with pytest.raises(AssertionError, match="without the lock"):
        locks[0].announce()


@pytest.mark.parametrize(("seen", "expected"), [(-1, False), (0, False), (1, True)])
def test_a_lock_file_that_is_gone_was_taken_away_if_there_was_a_commit(locks, seen, expected):
    locks[0].seen = seen
    assert locks[0].others_announced() is expected


async def test_a_folder_may_be_there_without_the_lock(tmp_path):
    lock = commit_lock.CommitLock(tmp_path / "claims.lock")
    async with holding(lock):
        assert lock.count() == 0
    assert os.stat(tmp_path / "claims.lock").st_mode & 0o777 == 0o600


async def test_a_lock_file_that_was_taken_away_is_made_anew_and_counts_from_nothing(locks):
    first, _ = locks
    async with holding(first):
        first.seen = 0
        first.announce()
    os.unlink(first._path)
    async with holding(first):
        assert first.count() == 0


# ---------------------------------------------------------------- calls of one process


@pytest.fixture
def shared(tmp_path):
    return commit_lock.SharedLock(tmp_path / "claims.lock")


async def test_only_the_first_call_begins_and_only_the_last_ends(shared):
    events = []
    await shared.enter(lambda: events.append("begin"))
    await shared.enter(lambda: events.append("begin again"))
    shared.leave(lambda: events.append("too early"))
    assert shared.is_held()
    shared.leave(lambda: events.append("end"))
    assert (events, shared.is_held()) == (["begin", "end"], False)


async def test_a_beginning_that_fails_leaves_the_lock_free(shared, tmp_path):
    def fail():
        raise OSError("the folder cannot be read")

    with pytest.raises(OSError, match="cannot be read"):
        await shared.enter(fail)
    assert (shared.users, shared.is_held()) == (0, False)
    assert commit_lock.CommitLock(tmp_path / "claims.lock").try_acquire()


async def test_calls_that_wait_for_another_process_begin_once(shared, tmp_path):
    other = commit_lock.CommitLock(tmp_path / "claims.lock")
    assert other.try_acquire()
    begun = []
    calls = [asyncio.create_task(shared.enter(lambda: begun.append(1))) for _ in range(3)]
    await asyncio.sleep(0)
    other.release()
    await asyncio.gather(*calls)
    assert (begun, shared.users) == ([1], 3)


async def test_a_lock_that_cannot_be_looked_at_is_free_for_others(locks, monkeypatch):
    first, second = locks
    async with holding(first):
        first.seen = first.count()

    def fail(path, **how):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fail)
        with pytest.raises(OSError, match="Input/output error"):
            first.try_acquire()
        assert not first.others_announced(), "the open file has the count"
    async with holding(second, patience=0.0):
        second.seen = second.count()
        second.announce()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fail)
        assert first.others_announced()


async def test_a_file_that_cannot_be_opened_has_an_unknown_count(locks, monkeypatch):
    first, second = locks
    async with holding(first):
        first.seen = first.count()
        first.announce()
    os.unlink(first._path)
    async with holding(second):
        pass

    def fail(path, flags, *mode):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        assert first.others_announced()
        with pytest.raises(OSError, match="Too many open files"):
            first.try_acquire()
    assert first.try_acquire()
    first.release()
