"""A plugin that is killed between a claim's checkpoint and its CDI file."""

import asyncio
import os
import stat

import pytest

from claimd.common import durable, names
from claimd.sim.crash import CrashInPrepare

DRIVER = "gpu.example.com"


class Plugin:
    """A plugin that writes a checkpoint and then the CDI file, and blocks on a pipe in its place."""

    def __init__(self, folder):
        self.checkpoints, self.cdi = folder / "checkpoints", folder / "cdi"
        self.checkpoints.mkdir()
        self.cdi.mkdir()
        self.killed = 0

    def kill(self):
        self.killed += 1

    def crash(self):
        return CrashInPrepare(self, self.checkpoints, self.cdi, DRIVER)

    def records(self, uid):
        (self.checkpoints / f"{uid}.json").write_text("{}")

    def cdi_file(self, uid):
        return self.cdi / names.cdi_file(DRIVER, uid)

    def pipe(self, uid):
        return self.cdi / durable.unfinished_name(names.cdi_file(DRIVER, uid))


@pytest.fixture
def plugin(tmp_path):
    return Plugin(tmp_path)


async def test_a_kill_between_checkpoint_and_cdi_file(plugin):
    plugin.records("old")
    (plugin.checkpoints / "new.json.part").write_text("")
    crash = plugin.crash()
    assert crash.prepared_claims() == {"old"}
    crash.hang_at("uid")
    assert stat.S_ISFIFO(os.stat(plugin.pipe("uid")).st_mode)
    plugin.records("uid")
    assert await crash.kill(30) == "the record was written, the CDI file not"
    assert plugin.killed == 1
    assert list(plugin.cdi.iterdir()) == []


async def test_the_cdi_file_may_have_been_quicker(plugin):
    crash = plugin.crash()
    plugin.records("uid")
    plugin.cdi_file("uid").write_text("{}")
    assert await crash.kill(30) == "the record and the CDI file were written"
    assert [path.name for path in plugin.cdi.iterdir()] == [plugin.cdi_file("uid").name]


async def test_a_claim_that_was_prepared_before_does_not_hang(plugin):
    plugin.records("old")
    crash = plugin.crash()
    crash.hang_at("old")
    assert list(plugin.cdi.iterdir()) == []


async def test_a_pipe_that_the_plugin_removes_comes_back(plugin):
    crash = plugin.crash()
    crash.hang_at("uid")
    plugin.pipe("uid").unlink()
    killing = asyncio.create_task(crash.kill(30))
    async with asyncio.timeout(30):
        while not plugin.pipe("uid").exists():
            await asyncio.sleep(0.001)
    plugin.records("uid")
    assert await killing == "the record was written, the CDI file not"


async def test_nothing_is_killed_and_nothing_left_where_nothing_is_prepared(plugin):
    crash = plugin.crash()
    crash.hang_at("uid")
    with pytest.raises(TimeoutError):
        await crash.kill(0.02)
    assert plugin.killed == 0
    assert list(plugin.cdi.iterdir()) == []


async def test_who_waits_for_a_reader_goes_on(plugin):
    """A thread of the plugin that writes into the pipe does not stay blocked."""
    crash = plugin.crash()
    crash.hang_at("uid")
    writing = asyncio.create_task(asyncio.to_thread(open, plugin.pipe("uid"), "wb"))
    plugin.records("uid")
    await crash.kill(30)
    (await asyncio.wait_for(writing, 30)).close()
