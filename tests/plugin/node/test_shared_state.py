"""What a look at the shared folders does, and what leads to one. The kernel tells of each change: the
time between two looks is too long for any of these tests.
"""

import asyncio
import contextlib
import os

import pytest

from claimd.common import durable, errors, names
from claimd.node import config, folder_watch, instance, shared_state
from claimd.node.prepare import checkpoint
from tests.plugin.node import test_app
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE

world = test_app.world  # a fixture

QUIET = 20  # so often nobody has looked when nothing is left that leads to a look


class Parts:
    """Counts what is asked of the restorer, the publisher and the streams, and plays all three."""

    def __init__(self, folder):
        self.checkpoints = checkpoint.CheckpointFolder(folder, "boot")
        self.is_due = False
        self.asked = []
        self.trouble = {}  # by name: the errors to raise, one each time

    def _note(self, name):
        self.asked.append(name)
        if self.trouble.get(name):
            raise self.trouble[name].pop(0)

    async def follow_up(self):
        self._note("follow_up")

    async def repair(self):
        self._note("repair")

    def resync(self):
        self._note("resync")

    def resend(self):
        self._note("resend")


class Shared:
    def __init__(self, tmp_path):
        self.config = config.Config(
            node_name=NODE,
            kubelet_dir=tmp_path / "kubelet",
            cdi_dir=tmp_path / "cdi",
            library_hook_dir=str(tmp_path / "hook"),
        )
        self.folder = names.plugin_folder(self.config.kubelet_dir, DRIVER)
        self.parts = Parts(self.folder)
        self.instance = instance.Instance(self.folder, "ours")
        for folder in (*self.folders().values(), self.config.kubelet_dir / "plugins_registry"):
            folder.mkdir(parents=True, exist_ok=True)
        self.instance.enter()
        self.state = shared_state.SharedState(
            self.config, self.instance, self.parts, self.parts, self.parts
        )

    def folders(self):
        return {
            "cdi": self.config.cdi_dir,
            "plugin": self.folder,
            "metadata": self.folder / "metadata",
            "instances": self.folder / "instances",
            "claims": self.folder / "claims",
            "hook": self.config.cdi_dir.parent / "hook",
        }

    async def look(self):
        """Waits for a look, and forgets what it asked for."""
        await apiserver.until(lambda: "repair" in self.parts.asked)
        asked = list(self.parts.asked)
        self.parts.asked.clear()
        return asked

    async def at_rest(self):
        """Waits until nothing is left that leads to a look."""
        await self.look()
        quiet = 0

        def rests():
            nonlocal quiet
            quiet = 0 if self.parts.asked else quiet + 1
            self.parts.asked.clear()
            return quiet == QUIET

        await apiserver.until(rests)


@pytest.fixture
async def shared(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_watch, "SPACING", 0.001)
    monkeypatch.setattr(folder_watch, "GLANCE_INTERVAL", 600.0)
    shared = Shared(tmp_path)
    running = asyncio.create_task(shared.state.run())
    yield shared
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    shared.instance.leave()


@pytest.mark.parametrize("name", ["cdi", "plugin", "metadata", "instances", "claims", "hook"])
async def test_a_change_in_any_of_the_folders_leads_to_a_look(shared, name):
    await shared.at_rest()
    (shared.folders()[name] / "changed").mkdir()
    assert await shared.look() == ["repair"]


async def test_the_files_are_restored_once_when_that_is_requested(shared):
    await shared.at_rest()
    shared.state.request_restore()
    assert await shared.look() == ["follow_up", "repair"]


async def test_a_restore_that_fails_is_tried_again(shared, caplog):
    await shared.at_rest()
    shared.parts.trouble["follow_up"] = [OSError("sick"), errors.ClaimError("held")]
    shared.state.request_restore()
    await apiserver.until(lambda: shared.parts.asked.count("follow_up") == 3)
    assert caplog.text.count("cannot make the CDI files what the checkpoints say") == 2


async def test_a_look_that_fails_is_repeated_and_told_once(shared, caplog):
    await shared.at_rest()
    for round_ in (1, 2):
        shared.parts.trouble["repair"] = [OSError("sick"), OSError("sick")]
        (shared.config.cdi_dir / f"changed-{round_}").touch()
        await apiserver.until(lambda: shared.parts.asked.count("repair") >= 3)
        assert caplog.text.count("cannot put right what others have changed") == round_
        shared.parts.asked.clear()


async def test_our_own_mark_is_made_again(shared):
    await shared.at_rest()
    (shared.folder / "instances" / "ours").unlink()
    await apiserver.until((shared.folder / "instances" / "ours").exists)


async def test_everything_is_published_again_after_a_takeover(shared):
    other = instance.Instance(shared.folder, "other")
    other.enter()
    shared.instance.on_registered()
    other.on_registered()

    # A look finds out whether the other lives, and that must not lead to the next look.
    await shared.at_rest()
    other.leave()
    await apiserver.until(lambda: "resync" in shared.parts.asked)
    assert [name for name in shared.parts.asked if name != "repair"] == ["resync", "resend"]


async def test_the_one_that_publishes_restores_what_a_dead_instance_left(shared):
    shared.instance.on_registered()
    await shared.at_rest()
    (shared.folder / "instances" / "dead").touch()
    await apiserver.until(lambda: "follow_up" in shared.parts.asked)
    assert os.listdir(shared.folder / "instances") == ["ours"]


async def test_a_death_is_left_to_the_one_that_publishes(shared):
    await shared.at_rest()
    dead = shared.folder / "instances" / "dead"
    dead.touch()
    assert await shared.look() == ["repair"]
    assert dead.exists()


async def test_what_a_dead_instance_left_unfinished_is_removed(world):
    """No commit and no file of a claim tells of it: only the death does."""
    async with world.plugin():
        await world.kubelet.register()
        await world.published()
        cdi_file = names.cdi_file(DRIVER, "uid-c")
        unfinished = world.tmp_path / "cdi" / durable.unfinished_name(cdi_file)
        unfinished.parent.mkdir(exist_ok=True)
        unfinished.write_text("half")
        plugin_folder = names.plugin_folder(world.tmp_path / "kubelet", DRIVER)
        (plugin_folder / "instances" / "dead").touch()
        await apiserver.until(lambda: not unfinished.exists())
