"""A checkpoint that cannot be read costs its own claim alone: with real files, a real API server, and
errors of the disk that the test orders.
"""

import errno
import os
import socket

import pytest

from claimd.common import metrics
from claimd.node.prepare import checkpoint, checkpoint_trouble
from claimd.node.prepared import PreparedClaim
from tests.plugin.node.prepare.test_driver import FIRST, SECOND, world
from tests.support.worlds import gpu, result

__all__ = ["world"]  # the fixture

THIRD = gpu(2).name


class SickDisk:
    """Lets files be opened, or not, by their names."""

    def __init__(self, monkeypatch):
        self.errors = {}
        self._open = os.open
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(checkpoint_trouble, "RETRY_INTERVAL", 0.0)
        monkeypatch.setattr(checkpoint_trouble, "SLOWNESS", 0)

    def open(self, path, flags, *more, **options):
        number = self.errors.get(os.path.basename(path))
        if number and not flags & os.O_WRONLY:
            raise OSError(number, os.strerror(number), path)
        return self._open(path, flags, *more, **options)


@pytest.fixture
def disk(monkeypatch):
    return SickDisk(monkeypatch)


def put_folder(path):
    path.mkdir()


def put_pipe(path):
    os.mkfifo(path)


def put_dangling_link(path):
    path.symlink_to("/nowhere")


def put_link(path):
    path.symlink_to(path.with_name("uid-b.json"))


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(path.parent)
        listening.bind(path.name)


ODD = [put_folder, put_pipe, put_dangling_link, put_link, put_socket]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES, errno.ESTALE])
async def test_after_a_start_the_claim_is_refused_and_all_others_go_on(world, disk, number):
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    await world.prepare(a, b)
    disk.errors["uid-a.json"] = number
    fresh = world.instance()
    await fresh.claims.restorer.restore()

    assert world.specs() == [world.spec(a).name, world.spec(b).name], "its CDI file stays"
    assert world.missing_mounts() == []
    path = world.tmp_path / "plugin/claims/uid-a.json"
    refused = await world.prepare(a, by=fresh, patience=1)
    assert f"checkpoint {path} cannot be read: {os.strerror(number)}" in refused
    assert "`dmesg`" in refused
    assert f"checkpoint {path} cannot be read" in await world.unprepare(a, by=fresh)
    assert fresh.claims.checkpoints.trouble.unready_reason().startswith(f"checkpoint {path}")

    assert isinstance(await world.prepare(b, by=fresh), PreparedClaim)
    c = world.claim("c", result(THIRD))
    assert isinstance(await world.prepare(c, by=fresh), PreparedClaim)
    assert await world.unprepare(b, by=fresh) is None
    assert world.specs() == [world.spec(a).name, world.spec(c).name]


async def test_the_refusal_names_the_file_although_the_api_server_is_away(world, disk):
    a = world.claim("a")
    await world.prepare(a)
    disk.errors["uid-a.json"] = errno.EIO
    fresh = world.instance()
    await fresh.claims.restorer.restore()
    world.api.fail(503, times=99, path="/resourceclaims/")
    assert "uid-a.json cannot be read" in await world.prepare(a, by=fresh, patience=1)


async def test_its_devices_stay_taken_until_it_can_be_read_and_is_given_back(world, disk):
    a, rival = world.claim("a"), world.claim("rival")
    await world.prepare(a)
    disk.errors["uid-a.json"] = errno.EIO
    fresh = world.instance()
    for restored in (False, True):
        if restored:
            await fresh.claims.restorer.restore()
        refused = await world.prepare(rival, by=fresh, patience=1)
        assert f"{FIRST} is not free: {world.spec(a)} gives it to claim default/a" in refused
        assert "uid-a.json cannot be read" in refused

    disk.errors.clear()
    await fresh.claims.restorer.repair()
    assert fresh.claims.checkpoints.trouble.unready_reason() == ""
    assert "is still prepared for claim default/a" in await world.prepare(
        rival, by=fresh, patience=1
    )
    assert isinstance(await world.prepare(a, by=fresh), PreparedClaim)
    assert await world.unprepare(a, by=fresh) is None
    assert isinstance(await world.prepare(rival, by=fresh), PreparedClaim)


async def test_a_disk_that_works_again_within_the_call_costs_no_second_call(world, disk):
    a = world.claim("a")
    await world.prepare(a)
    disk.errors["uid-a.json"] = errno.EMFILE
    fresh = world.instance()
    await fresh.claims.restorer.restore()
    rescan, world.hardware.coming = world.hardware.rescan, world.hardware.last

    async def rescan_and_heal():
        disk.errors.clear()
        return await rescan()

    world.hardware.rescan = rescan_and_heal
    assert isinstance(await world.prepare(a, by=fresh), PreparedClaim)


async def test_a_running_process_keeps_the_claim_that_it_had(world, disk):
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    await world.prepare(a)
    disk.errors["uid-a.json"] = errno.EIO

    # What another instance commits makes this one read the folder again.
    await world.prepare(b, by=world.instance())
    await world.driver.claims.restorer.repair()
    checkpoints = world.driver.claims.checkpoints
    assert set(checkpoints.claims) == {"uid-a", "uid-b"}
    assert "uid-a.json cannot be read" in checkpoints.trouble.unready_reason()
    assert isinstance(await world.prepare(a), PreparedClaim)
    assert "is still prepared" in await world.prepare(world.claim("rival"), patience=1)
    assert await world.unprepare(a) is None
    assert (world.records(), checkpoints.trouble.unready_reason()) == (["uid-b.json"], "")


@pytest.mark.parametrize("put", ODD)
async def test_odd_things_are_named_once_and_left_alone(world, monkeypatch, caplog, put):
    monkeypatch.chdir(world.tmp_path)
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    await world.prepare(b)
    odd = world.tmp_path / "plugin/claims/x.json"
    put(odd)
    for instance in (world.driver, world.instance()):
        caplog.clear()
        for _ in range(3):
            await instance.claims.restorer.restore()
            await instance.claims.restorer.repair()
            assert isinstance(await world.prepare(a, by=instance), PreparedClaim)
            assert await world.unprepare(a, by=instance) is None
        assert isinstance(await world.prepare(b, by=instance), PreparedClaim)
        assert caplog.text.count(str(odd)) == 1
        assert instance.claims.checkpoints.trouble.unready_reason() == ""
    assert os.path.lexists(odd)
    assert checkpoint.read_claims(world.tmp_path / "plugin")[1] != []


@pytest.mark.parametrize("put", ODD)
async def test_an_odd_thing_in_the_place_of_a_checkpoint(world, monkeypatch, put):
    monkeypatch.chdir(world.tmp_path)
    a, b = world.claim("a"), world.claim("b", result(SECOND))
    await world.prepare(a, b)
    path = world.tmp_path / "plugin/claims/uid-a.json"
    path.unlink()
    put(path)

    assert isinstance(await world.prepare(world.claim("c", result(THIRD))), PreparedClaim)
    assert "uid-a" in world.driver.claims.checkpoints.claims, "memory knows it"

    fresh = world.instance()
    await fresh.claims.restorer.restore()
    assert world.spec(a).exists()
    assert f"{path} is at the place of a checkpoint" in await world.prepare(a, by=fresh, patience=1)
    assert f"{FIRST} is not free" in await world.prepare(world.claim("rival"), by=fresh, patience=1)
    assert isinstance(await world.prepare(b, by=fresh), PreparedClaim)
    assert os.path.lexists(path)


async def test_it_is_told_once_and_counted(tmp_path, disk, caplog):
    folder = tmp_path / "claims"
    folder.mkdir()
    for name in ("uid-a.json", "uid-b.gone"):
        (folder / name).write_text("")
        disk.errors[name] = errno.EIO
    told = []
    checkpoints = checkpoint.CheckpointFolder(tmp_path, "boot-1", on_unreadable=told.append)
    for _ in range(3):
        async with checkpoints.lock():
            assert checkpoints.claims == {}
    assert metrics.CHECKPOINTS_UNREADABLE.values[()] == 2
    assert [text.partition(";")[0] for text in told] == [
        f"Checkpoint {folder}/uid-a.json cannot be read: Input/output error",
        f"Checkpoint {folder}/uid-b.gone cannot be read: Input/output error",
    ]
    assert caplog.text.count("uid-a.json") == 1

    for name in os.listdir(folder):
        (folder / name).unlink()
    async with checkpoints.lock():
        assert checkpoints.trouble.unreadable == {}
    assert metrics.CHECKPOINTS_UNREADABLE.values[()] == 0


async def test_a_damaged_file_that_cannot_be_renamed_costs_its_own_claim(tmp_path, monkeypatch):
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "uid-a.json").write_text("{")

    def refuse(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "rename", refuse)
    checkpoints = checkpoint.CheckpointFolder(tmp_path, "boot-1")
    async with checkpoints.lock():
        assert "cannot be renamed: Read-only file system" in checkpoints.trouble.unready_reason()


async def test_what_becomes_readable_during_the_start_is_followed_up(world, disk):
    """The crash campaign found it: the CDI file of a claim that was given back stayed."""
    a = world.claim("a")
    await world.prepare(a)
    text = world.spec(a).read_bytes()
    await world.unprepare(a)
    gone = checkpoint.encode(
        checkpoint.Checkpoint(
            version=1,
            boot_id="b",
            claim=PreparedClaim(namespace="default", name="a", uid="uid-a", prepared_at=""),
        )
    )
    world.spec(a).write_bytes(text)
    (world.tmp_path / "plugin/claims/uid-a.gone").write_bytes(gone)

    disk.errors["uid-a.gone"] = errno.EIO
    fresh = world.instance()
    specs = fresh.claims.files.specs
    sweep = specs.sweep

    def sweep_and_heal():
        disk.errors.clear()
        return sweep()

    specs.sweep = sweep_and_heal
    await fresh.claims.restorer.follow_up()
    await fresh.claims.restorer.repair()
    assert not world.spec(a).exists()


def test_a_slow_disk_is_not_read_again_at_once(tmp_path, monkeypatch):
    """A read of a sick disk may take many seconds, in which the process does nothing else."""
    now = [100.0]
    monkeypatch.setattr(checkpoint_trouble.time, "monotonic", lambda: now[0])
    trouble = checkpoint_trouble.Trouble(tmp_path, lambda _: None)
    trouble.unreadable["uid-a.json"] = object()
    reads = []

    def read_slowly(path):
        reads.append(now[0])
        now[0] += 20.0
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for _ in range(500):
        assert not trouble.is_readable_again(read_slowly)
        now[0] += 1.0
    assert reads == [100.0, 320.0, 540.0]
