"""Files that are replaced as a whole: what is left of a write that fails, and who waits for a sync."""

import asyncio
import contextlib
import errno
import os
import resource
import stat
import threading
import time
from concurrent import futures

import pytest

from claimd.common import durable


@contextlib.contextmanager
def limiting(kind, soft):
    """The process may have no more than so much of it."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def until(fact):
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def folder(tmp_path):
    new_folder = durable.Folder(tmp_path / "files")
    new_folder.make()
    return new_folder


# ---------------------------------------------------------------- replace


def test_what_is_being_written_has_a_name_that_no_reader_takes():
    """Neither .json nor .yaml, by which container runtimes find CDI files."""
    assert durable.unfinished_name("claim.json") == ".claim.json.new"


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_made_and_replaced(tmp_path, sync):
    path, temporary = tmp_path / "file", tmp_path / ".file"
    for content in (b"one", b"another"):
        durable.replace(str(path), content, temporary=str(temporary), sync=sync)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o644), (0o600, 0o600)])
def test_a_file_has_its_mode(tmp_path, mode, expected):
    before = os.umask(0o022)
    try:
        more = {} if mode is None else {"mode": mode}
        durable.replace(
            str(tmp_path / "file"), b"x", temporary=str(tmp_path / ".file"), sync=False, **more
        )
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


def test_what_an_earlier_writer_left_unfinished_is_overwritten(tmp_path):
    (tmp_path / ".file").write_bytes(b"a longer text that its writer died of")
    durable.replace(str(tmp_path / "file"), b"x", temporary=str(tmp_path / ".file"), sync=False)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_nothing_is_written_into_an_old_temporary_file(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"before")
    for plant in (os.symlink, os.link):
        plant(precious, tmp_path / ".file")
        durable.replace(
            str(tmp_path / "file"), b"x", temporary=str(tmp_path / ".file"), mode=0o600, sync=False
        )
        assert precious.read_bytes() == b"before"
        assert stat.S_ISREG((tmp_path / "file").lstat().st_mode)
        assert stat.S_IMODE((tmp_path / "file").lstat().st_mode) == 0o600


def test_without_room_the_old_content_stays_and_no_temporary_file_is_left(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with limiting(resource.RLIMIT_FSIZE, 4), pytest.raises(OSError) as caught:
        durable.replace(str(path), b"12345678", temporary=str(tmp_path / ".file"), sync=False)
    assert caught.value.errno == errno.ENOSPC, "a part of it was written"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_renamed_is_left_neither_here_nor_there(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError):
        durable.replace(str(tmp_path / "file"), b"x", temporary=str(tmp_path / ".file"), sync=True)
    assert os.listdir(tmp_path) == ["file"]


# ---------------------------------------------------------------- a folder


def test_a_file_of_a_folder_is_for_us_alone(folder):
    folder.write("a", b"x")
    assert stat.S_IMODE((folder.path / "a").stat().st_mode) == 0o600


def test_files_are_renamed_and_removed_and_those_that_are_missing_are_no_failure(folder):
    for name in "abc":
        folder.write(name, name.encode())
    folder.rename("a", "z")
    folder.rename("a", "y")
    folder.remove("b")
    folder.remove("b")
    folder.remove_unsynced("c")
    folder.remove_unsynced("c")
    assert os.listdir(folder.path) == ["z"]
    assert (folder.path / "z").read_bytes() == b"a"


def test_a_file_that_cannot_be_removed_is_a_failure(folder):
    """The caller would take a claim for given back whose checkpoint comes back."""
    (folder.path / "a").mkdir()
    for remove in (folder.remove, folder.remove_unsynced):
        with pytest.raises(OSError):
            remove("a")


def test_a_file_that_cannot_be_renamed_is_a_failure(folder):
    """Likewise: the checkpoint would still say that the claim is prepared."""
    folder.write("a", b"x")
    (folder.path / "b").mkdir()
    with pytest.raises(OSError):
        folder.rename("a", "b")
    assert (folder.path / "a").read_bytes() == b"x"


def test_a_file_whose_folder_could_not_be_synced_is_not_there(folder):
    """It might be gone after a loss of power, and the caller takes it for failed."""
    failures = []

    def write():
        try:
            folder.write("a", b"x")
        except OSError as error:
            failures.append(error.errno)

    writing = threading.Thread(target=write)
    with folder._syncing:
        writing.start()
        until((folder.path / "a").exists)
        with limiting(resource.RLIMIT_NOFILE, 0):  # the folder cannot be opened for its sync
            folder._syncing.release()
            writing.join()
            folder._syncing.acquire()
    assert failures == [errno.EMFILE]
    assert os.listdir(folder.path) == []


def test_a_change_that_could_not_be_synced_is_not_taken_for_durable(folder):
    folder.write("a", b"x")
    (folder.path / "b").write_bytes(b"y")
    before = folder._synced
    with limiting(resource.RLIMIT_NOFILE, 0), pytest.raises(OSError):
        folder.remove("b")
    assert folder._synced == before < folder._changes
    folder.remove("b")
    assert folder._synced == folder._changes


def test_one_sync_serves_all_that_wait_for_it(folder):
    """The first syncs for those that changed the folder before it began; they need none."""
    with folder._syncing:
        writing = [
            threading.Thread(target=folder.write, args=(f"f{n}", b"x"), daemon=True)
            for n in range(8)
        ]
        for thread in writing:
            thread.start()
        until(lambda: folder._changes == 8)
        folder._synced = 8  # as by a sync that began after all of these changes
        folder.path.rename(folder.path.with_name("elsewhere"))  # a sync of their own would fail
    for thread in writing:
        thread.join()
    assert len(os.listdir(folder.path.with_name("elsewhere"))) == 8


def test_a_sync_covers_what_was_changed_before_it_began(folder):
    with folder._syncing:
        writing = [threading.Thread(target=folder.write, args=(f"f{n}", b"x")) for n in range(8)]
        for thread in writing:
            thread.start()
        until(lambda: folder._changes == 8)
    for thread in writing:
        thread.join()
    assert folder._synced == 8


def test_a_fingerprint_tells_of_entries_and_of_another_folder(folder):
    os.utime(folder.path, ns=(0, 0))
    first = folder.fingerprint()
    assert first == folder.fingerprint()
    folder.write("a", b"x")
    second = folder.fingerprint()
    assert second != first
    folder.path.rename(folder.path.with_name("old"))
    assert folder.fingerprint() is None
    folder.make()
    os.utime(folder.path, ns=(0, second[1]))
    assert folder.fingerprint() not in (None, second), "made anew, at the same time"


# ---------------------------------------------------------------- work in a thread


async def test_work_in_a_thread_is_waited_for_even_if_its_caller_is_cancelled():
    go_on, ended = threading.Event(), threading.Event()

    def work():
        go_on.wait(10)
        ended.set()

    waiting = asyncio.create_task(durable.in_thread(work))
    await asyncio.sleep(0.01)
    waiting.cancel()
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    go_on.set()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert ended.is_set()


async def test_a_failure_in_a_thread_is_the_callers():
    def work():
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await durable.in_thread(work)


async def test_work_that_a_pool_never_begins_is_not_waited_for_for_ever():
    """A pool that is being ended drops what waits for a thread."""
    go_on = threading.Event()
    pool = futures.ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    first = asyncio.create_task(durable.in_thread(go_on.wait))
    second = asyncio.create_task(durable.in_thread(lambda: None))
    await asyncio.sleep(0)
    pool.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    await asyncio.wait([first, second], timeout=10)
    assert (first.done(), second.cancelled()) == (True, True)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_only_a_file_is_opened_and_nothing_stays_open(tmp_path, make):
    make(tmp_path / "odd")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(durable.NotAFileError, match="not a file"):
        durable.open_regular(str(tmp_path / "odd"))
    assert len(os.listdir("/proc/self/fd")) == before
