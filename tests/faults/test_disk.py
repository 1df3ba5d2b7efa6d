"""The folder of the checkpoints is taken away, replaced, read-only or full under a real claimd; or
claimd is frozen.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest

from claimd.common import names
from tests.faults.scenarios import NEW, OLD
from tests.faults.stage import Stage
from tests.faults.world import world
from tests.support.worlds import DRIVER

AGAIN = 45.0  # seconds in which all is right again when the disk is, on a machine that is busy


@contextlib.asynccontextmanager
async def scene(pod_uid=""):
    async with world() as world_:
        claimd = await world_.start(pod_uid)
        assert await claimd.register()
        yield Stage(world=world_, claimd=claimd)


async def again(stage, *wanted):
    """As the kubelet asks for what its pods use, until it is answered."""
    deadline = time.monotonic() + AGAIN
    while not await stage.prepare(*wanted):
        assert not stage.claimd.dead, stage.world.tail()
        assert time.monotonic() < deadline, stage.errors[-1]
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "how",
    [
        "deleted",
        "replaced",
        "deleted with all that is beside it",
        "deleted with the sockets",
    ],
)
async def test_the_folder_of_the_checkpoints_is_another_one(how):
    async with scene() as stage:
        await stage.prepare(("c", 0))
        folder = stage.world.plugin / "claims"
        if how == "replaced":
            folder.rename(stage.world.folder / "away")
            folder.mkdir()
        elif how == "deleted":
            shutil.rmtree(folder)
        else:
            for path in stage.world.plugin.iterdir():
                if how == "deleted with the sockets" or not path.is_socket():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        if how == "deleted with the sockets":
            stage.world.plugin.rmdir()
        await stage.prepare(("d", 1))  # refused or not
        await again(stage, ("c", 0), ("d", 1))
        await stage.observe()
        await stage.wind_down()


async def test_a_checkpoint_that_was_changed_behind_our_back_is_not_believed():
    """A container of the pod that starts again would be given the GPU of another."""
    async with scene() as stage:
        await stage.prepare(("c", 0))
        await stage.settled()
        spec = stage.world.cdi / names.cdi_file(DRIVER, "uid-c")
        right = spec.read_bytes()
        await stage.claimd.kill()

        file = stage.world.plugin / "claims" / "uid-c.json"
        content = file.read_bytes()
        gpu, other = stage.world.gpus[:2]
        for mine, theirs in ((gpu.name, other.name), (gpu.address, other.address)):
            content = content.replace(mine.encode(), theirs.encode())
        assert content != file.read_bytes()
        file.write_bytes(content)

        stage.claimd = await stage.world.start()
        assert await stage.claimd.register()
        assert not spec.exists() or spec.read_bytes() == right
        (damaged,) = (path for path in file.parent.iterdir() if ".damaged-" in path.name)
        assert damaged.read_bytes() == content
        damaged.unlink()
        await again(stage, ("c", 0))
        assert spec.read_bytes() == right
        await stage.observe()
        await stage.wind_down()


@contextlib.contextmanager
def small_disk(folder):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", "--recursive", folder], check=True)


def mountable():
    return not subprocess.run(
        ["unshare", "--mount", "true"], capture_output=True, check=False
    ).returncode


@pytest.mark.skipif(not mountable(), reason="may not mount")
@pytest.mark.parametrize("how", ["full", "read-only"])
async def test_the_disk_will_not_have_it_and_then_will(how):
    async with world() as world_:
        world_.plugin.mkdir(parents=True)
        with small_disk(world_.plugin):
            claimd = await world_.start()
            assert await claimd.register()
            # A rival that is given back would make room on the disk.
            stage = Stage(world=world_, claimd=claimd, has_rivals=False)
            await stage.prepare(("c", 0), ("e", 2))
            await stage.settled()
            filler = world_.plugin / "claims.lock.filler"
            if how == "full":
                with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                    while file.write(b"x" * 4096):
                        pass
            else:
                subprocess.run(
                    ["mount", "--bind", world_.plugin / "claims", world_.plugin / "claims"],
                    check=True,
                )
                subprocess.run(
                    ["mount", "-o", "remount,bind,ro", world_.plugin / "claims"], check=True
                )
            assert not await stage.prepare(("d", 1))
            assert "default/d" in stage.errors[-1]
            assert ("No space" if how == "full" else "Read-only") in stage.errors[-1]
            if not await stage.prepare(("c", 0)):
                assert "default/c" in stage.errors[-1]
            gone = await stage.unprepare("e")
            assert gone or "default/e" in stage.errors[-1]
            if how == "full":
                filler.unlink()
            else:
                subprocess.run(["umount", world_.plugin / "claims"], check=True)
            await again(stage, ("c", 0), ("d", 1))
            await stage.retry()
            await stage.observe()
            await stage.wind_down()
            await world_.end()


async def test_a_frozen_claimd_that_wakes_brings_nothing_back():
    async with scene(OLD) as stage:
        old = stage.claimd
        await stage.prepare(("c", 0), ("e", 2))
        os.kill(old.process.pid, signal.SIGSTOP)
        stage.old, stage.claimd = old, await stage.world.start(NEW)
        assert await stage.claimd.register()
        assert await stage.unprepare("c")
        assert await stage.prepare(("d", 0))
        os.kill(old.process.pid, signal.SIGCONT)
        stage.claimd = old  # a call that was on its way to it
        assert await stage.prepare(("d", 0), ("e", 2))
        stage.claimd = next(claimd for claimd in stage.world.running if claimd.pod_uid == NEW)
        stage.patience = 3.0
        await stage.observe()
        await stage.wind_down()
