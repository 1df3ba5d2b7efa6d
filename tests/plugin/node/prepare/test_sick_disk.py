"""A sick disk costs no claim that is prepared already: with real files, a real API server, and errors
of the disk that the test orders.
"""

import contextlib
import errno
import fcntl
import os

import pytest

from claimd.node.prepare import checkpoint_trouble
from claimd.node.prepared import PreparedClaim
from tests.plugin.node.prepare.test_driver import FIRST, SECOND, world
from tests.support.worlds import result

__all__ = ["world"]  # the fixture


class SickDisk:
    """Refuses calls of the kernel with an error, once `fails` is set to the name of a fault."""

    def __init__(self, folder, monkeypatch):
        self.fails = ""
        self._folder = str(folder)
        self._monkeypatch = monkeypatch
        for name in (
            "open",
            "listdir",
            "fsync",
            "fstat",
            "stat",
            "rename",
            "unlink",
            "mkdir",
            "pwrite",
        ):
            self._replace(os, name)
        self._replace(fcntl, "flock")

    def _replace(self, module, name):
        real = getattr(module, name)

        def call(*arguments, **options):
            number = 0
            if self.fails and self._is_ours(arguments[0]):
                number = FAULTS[self.fails](name, arguments)
            if number:
                raise OSError(number, os.strerror(number))
            return real(*arguments, **options)

        self._monkeypatch.setattr(module, name, call)

    def _is_ours(self, file):
        """Returns True if a path, or a file that a descriptor stands for, is in our folder."""
        if isinstance(file, int):
            file = os.readlink(f"/proc/self/fd/{file}")
        return str(file).startswith(self._folder)


def be_read_only(name, arguments):
    """The file system after its first error, as ext4 behaves with errors=remount-ro."""
    writes = name in ("fsync", "rename", "unlink", "mkdir", "pwrite")
    if name == "open":
        writes = bool(arguments[1] & (os.O_WRONLY | os.O_RDWR))
    return errno.EROFS if writes else 0


def lack_descriptors(name, arguments):
    return errno.EMFILE if name in ("open", "listdir") else 0


def lack_locks(name, arguments):
    return errno.ENOLCK if name == "flock" and arguments[1] != fcntl.LOCK_UN else 0


def fail_to_sync(name, arguments):
    return errno.EIO if name == "fsync" else 0


def fail_to_stat(name, arguments):
    return errno.EIO if name == "fstat" else 0


def fail_to_look_at_the_lock(name, arguments):
    return errno.EIO if name == "stat" and str(arguments[0]).endswith("claims.lock") else 0


FAULTS = {
    function.__name__: function
    for function in (
        be_read_only,
        lack_descriptors,
        lack_locks,
        fail_to_sync,
        fail_to_stat,
        fail_to_look_at_the_lock,
    )
}


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_trouble, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint_trouble, "SLOWNESS", 0)
    sick = SickDisk(tmp_path, monkeypatch)
    yield sick
    sick.fails = ""


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_prepared_claim_is_answered_and_no_other(world, disk, fault, is_confirmed):
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    before = await world.prepare(a)
    driver = world.driver
    if not is_confirmed:
        # Another process, which the kubelet has not asked for the claim.
        driver = world.instance()
        await driver.claims.restorer.restore()
    checkpoints, spec = driver.claims.checkpoints, world.spec(a).read_bytes()
    assert checkpoints.trouble.unready_reason() == ""

    disk.fails = fault
    for _ in range(2):
        refused = await world.prepare(b, by=driver)
        assert "cannot keep the checkpoint or the CDI file of claim default/b" in refused
        assert await world.prepare(a, by=driver) == before
        with contextlib.suppress(OSError):
            await driver.claims.restorer.repair()
    assert str(checkpoints.path) in checkpoints.trouble.unready_reason()
    assert world.spec(a).read_bytes() == spec

    disk.fails = ""
    await driver.claims.restorer.repair()
    assert checkpoints.trouble.unready_reason() == ""
    assert isinstance(await world.prepare(b, by=driver), PreparedClaim)
    assert await world.unprepare(a, b, by=driver) == {"uid-a": None, "uid-b": None}
    assert (world.records(), world.specs()) == ([], [])
    assert [name for name in os.listdir(checkpoints.path.parent) if "probe" in name] == []


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_claim_whose_cdi_file_is_gone_is_refused(world, disk, fault):
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    await world.prepare(a)
    disk.fails = fault
    await world.prepare(b)
    disk.fails = ""
    world.spec(a).unlink()
    disk.fails = fault
    assert "claim default/a" in await world.prepare(a)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_claim_that_is_allocated_with_another_device_is_refused(world, disk, fault):
    await world.prepare(world.claim("a"))
    driver = world.instance()
    await driver.claims.restorer.restore()
    a = world.claim("a", result(SECOND))
    disk.fails = fault
    assert "claim default/a" in await world.prepare(a, by=driver)


@pytest.mark.parametrize("fault", ["lack_locks", "lack_descriptors", "fail_to_look_at_the_lock"])
async def test_a_claim_that_another_instance_may_have_given_back_is_refused(world, disk, fault):
    # The report of a claim takes the lock as well, and would look at the folder again.
    _, reporting = world.closing[0]
    reporting.cancel()
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    await world.prepare(a)
    other = world.instance()
    assert isinstance(await world.prepare(b, by=other), PreparedClaim)
    disk.fails = fault
    assert "claim default/a" in await world.prepare(a)


async def test_a_claim_whose_own_write_failed_is_refused(world, disk):
    """Its checkpoint may be there or not, so its answer would be no promise."""
    a = world.claim("a")
    await world.prepare(a)
    disk.fails = "fail_to_sync"
    assert "claim default/a" in await world.unprepare(a)
    disk.fails = "lack_locks"
    assert "claim default/a" in await world.prepare(a)

    disk.fails = ""
    assert (await world.prepare(a)).devices[0].device == FIRST
    assert world.records() == ["uid-a.json"]


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"fail_to_stat"}))
async def test_a_failed_unprepare_brings_the_cdi_file_back(world, disk, fault):
    a = world.claim("a")
    await world.prepare(a)
    spec = world.spec(a).read_bytes()
    disk.fails = fault
    assert "claim default/a" in await world.unprepare(a)
    disk.fails = ""
    await world.driver.claims.restorer.repair()
    assert world.spec(a).read_bytes() == spec
