"""What the model found, each as small as it gets: two instances over one folder, one of which dies
or does not know.
"""

import asyncio
import fcntl
import json
import os
import random
import tempfile
from pathlib import Path

from claimd.common import names
from claimd.node import app, config
from claimd.node.prepared import ClaimRef, PreparedClaim
from claimd_devices import fake
from claimd_devices.gpu import Inventory
from tests.faults import node, promises, turns
from tests.support import apiserver, drivers, worlds


class Scene:
    """A node with two instances that run, in quick time."""

    def __init__(self, folder, loop, api):
        self.folder, self.loop, self.api = folder, loop, api
        self.kernel = node.Kernel()
        self.disk = promises.Disk(folder)
        self.all = []

    async def instance(self):
        new_instance = node.Instance(self.loop, self.folder, self.kernel, self.api)
        self.all.append(new_instance)
        await new_instance.start()
        return new_instance

    def claim(self, name="c", index=0):
        obj = worlds.claim_object(name, worlds.result(worlds.gpu(index).name))
        self.api.put("resourceclaims", obj)
        return ClaimRef("default", name, obj["metadata"]["uid"])

    async def prepare(self, by, ref):
        answers = await by.done(
            by.life.start(drivers.prepare(by.driver, [ref], self.loop.time() + 45.0))
        )
        assert isinstance(answers[ref.uid], PreparedClaim), answers[ref.uid]

    async def unprepare(self, by, ref):
        assert await by.done(by.life.start(drivers.unprepare(by.driver, [ref]))) == {ref.uid: None}

    def entries(self, ref):
        return self.api.objects["resourceclaims", "default", ref.name]["status"].get("devices", [])

    async def comes_about(self, fact, living=()):
        """With the glances of those that live. The quick clock runs away from a server that the
        machine does not let run, so there is an hour of it.
        """
        deadline = self.loop.time() + 3600.0
        while not fact():
            assert self.loop.time() < deadline, "it never comes about"
            await asyncio.sleep(0.5)
            for instance in living:
                await instance.glance()


def play(scenario):
    """Runs an async function of a Scene in a loop of its own."""

    async def whole(loop, folder):
        async with apiserver.serve() as api:
            scene = Scene(folder, loop, api)
            try:
                await scenario(scene)
            finally:
                for instance in scene.all:
                    await instance.bury()

    def test():
        with (
            tempfile.TemporaryDirectory() as folder,
            asyncio.Runner(loop_factory=turns.Loop) as runner,
        ):
            runner.run(whole(runner.get_loop(), Path(folder)))

    test.__doc__ = scenario.__doc__
    return test


@play
async def test_a_cdi_file_is_put_right_by_the_instance_that_is_left(scene):
    """It did not make the file, and it was there before the claim was prepared."""
    old, new = await scene.instance(), await scene.instance()
    ref = scene.claim()
    await scene.prepare(old, ref)
    old.life.die()
    (scene.folder / "cdi").joinpath(*[p.name for p in (scene.folder / "cdi").iterdir()]).unlink()
    await new.glance()
    assert scene.disk.specs() == {ref.uid}


@play
async def test_a_claim_that_another_instance_unprepared_costs_no_restore_for_ever(scene):
    old, new = await scene.instance(), await scene.instance()
    ref = scene.claim()
    await scene.prepare(old, ref)
    await scene.unprepare(new, ref)
    await old.glance()
    assert not old.specs.is_disturbed()


@play
async def test_what_another_instance_recorded_is_answered_without_the_api_server(scene):
    old, new = await scene.instance(), await scene.instance()
    ref = scene.claim()
    await scene.prepare(old, ref)
    await scene.api.stop()
    began = scene.loop.time()
    await scene.prepare(new, ref)
    assert scene.loop.time() - began < 5.0


@play
async def test_a_device_of_a_checkpoint_that_is_damaged_at_once_stays_taken(scene):
    """The other instance has not seen the checkpoint whole, and looked at the CDI folder before."""
    old, new = await scene.instance(), await scene.instance()
    ref, rival = scene.claim(), scene.claim("rival")
    await scene.prepare(old, ref)
    os.truncate(scene.folder / f"plugin/claims/{ref.uid}.json", 0)
    prepare = drivers.prepare(new.driver, [rival], scene.loop.time() + 2.05)
    answers = await new.done(new.life.start(prepare))
    assert "gives it to claim default/c" in answers[rival.uid]


@play
async def test_a_checkpoint_that_can_be_read_again_takes_no_device_from_its_next_claim(scene):
    """The claim had no CDI file, by which its device would be known: it was never answered."""
    old, new = await scene.instance(), await scene.instance()
    ref, rival = scene.claim(), scene.claim("rival")
    await scene.prepare(old, ref)
    old.life.die()
    (scene.folder / "cdi" / names.cdi_file(worlds.DRIVER, ref.uid)).unlink()
    checkpoint = scene.folder / f"plugin/claims/{ref.uid}.json"
    checkpoint.rename(scene.folder / "unreadable")
    await scene.prepare(new, rival)
    (scene.folder / "unreadable").rename(checkpoint)

    fresh = await scene.instance()
    prepare = drivers.prepare(fresh.driver, [ref], scene.loop.time() + 2.05)
    answers = await fresh.done(fresh.life.start(prepare))
    assert "still prepared for claim default/rival" in str(answers[ref.uid])
    await scene.prepare(new, rival)
    await scene.unprepare(fresh, ref)
    await scene.prepare(new, rival)


@play
async def test_who_could_not_look_at_a_gpu_removes_no_cdi_file(scene):
    """The GPU came after the other instance's last look, and its next looks fail."""
    old, new = await scene.instance(), await scene.instance()
    ref = scene.claim()
    await scene.prepare(old, ref)
    new._hardware.last = Inventory()
    hardware = new.driver.claims.hardware
    for is_outdated in (True, False):
        hardware.is_outdated = lambda _, answer=is_outdated: answer
        await new.driver.claims.restorer.restore()
        assert scene.disk.specs() == ({ref.uid} if is_outdated else set())
        assert new.driver.claims.restorer.is_due == is_outdated


@play
async def test_a_report_that_died_with_its_instance_is_made_by_the_one_that_is_left(scene):
    old, new = await scene.instance(), await scene.instance()
    ref = scene.claim()
    scene.api.fail(503, times=4, method="PATCH")
    await scene.prepare(old, ref)
    await scene.comes_about(lambda: scene.api.count("PATCH"))
    old.life.die()
    await scene.comes_about(lambda: scene.entries(ref), [new])


@play
async def test_a_late_report_does_not_bring_back_what_another_instance_cleared(scene):
    old, new = await scene.instance(), await scene.instance()
    ref = scene.claim()
    scene.api.fail(503, times=2, method="PATCH")
    await scene.prepare(old, ref)
    await scene.comes_about(lambda: scene.api.count("PATCH") == 2)
    await scene.unprepare(new, ref)
    await scene.comes_about(lambda: scene.api.count("PATCH") >= 3)
    for _ in range(200):
        await asyncio.sleep(0.5)
        await old.glance()
    assert scene.entries(ref) == []


@play
async def test_a_claim_given_back_twice_in_a_moment_leaves_no_status(scene):
    """The second prepare is not the first that the API server hears of."""
    only = await scene.instance()
    ref = scene.claim()
    await scene.prepare(only, ref)
    await scene.comes_about(lambda: scene.entries(ref))
    for _ in range(2):
        await scene.unprepare(only, ref)
        await scene.prepare(only, ref)
    await scene.unprepare(only, ref)
    await scene.comes_about(lambda: not scene.entries(ref))


@play
async def test_a_claim_given_back_twice_after_a_restart_leaves_no_status(scene):
    """The end of the dead process's report is still to come when the claim is prepared anew, for a
    moment.
    """
    only = await scene.instance()
    ref = scene.claim()
    await scene.prepare(only, ref)
    await scene.comes_about(lambda: scene.entries(ref))
    only.life.die()
    fresh = await scene.instance()
    await scene.unprepare(fresh, ref)
    await scene.prepare(fresh, ref)
    await scene.unprepare(fresh, ref)
    await scene.comes_about(lambda: not scene.entries(ref), [fresh])


@play
async def test_a_report_that_leaves_while_its_claim_is_given_back_is_cleared(scene):
    """The process is frozen in the moment in which the report is due, and what it wakes to is the
    unprepare.
    """
    only = await scene.instance()
    ref = scene.claim()
    await scene.prepare(only, ref)
    only.life.freeze()
    await asyncio.sleep(50.0)
    scene.loop.disk.slow = 2.0
    ended = only.life.start(drivers.unprepare(only.driver, [ref]))
    await asyncio.sleep(50.0)
    only.life.thaw()
    assert await only.done(ended) == {ref.uid: None}
    for _ in range(20):
        await asyncio.sleep(0.5)
    await scene.comes_about(lambda: not scene.entries(ref), [only])


@play
async def test_a_cdi_file_is_not_restored_while_its_claim_is_given_back(scene):
    only = await scene.instance()
    ref, other = scene.claim(), scene.claim("other", 1)
    await scene.prepare(only, ref)
    await scene.prepare(only, other)
    scene.loop.disk.slow, scene.loop.disk.dice = 100.0, random.Random(0)
    ended = only.life.start(drivers.unprepare(only.driver, [ref]))
    await scene.comes_about(lambda: scene.disk.specs() == {other.uid})
    (scene.folder / "cdi" / names.cdi_file(worlds.DRIVER, other.uid)).unlink()
    await only.glance()
    assert await only.done(ended) == {ref.uid: None}
    assert scene.disk.specs() == {other.uid}


@play
async def test_an_uncleared_claim_is_not_cleared_by_a_prepare_that_dies_before_its_checkpoint_is_there(
    scene,
):
    """The claim is given back and prepared anew at once. What is reported then is the record on its
    way.
    """
    only = await scene.instance()
    ref = scene.claim()
    await scene.prepare(only, ref)
    await scene.comes_about(lambda: scene.entries(ref))
    scene.api.fail(503, times=1, method="PATCH")
    await scene.unprepare(only, ref)
    scene.loop.disk.slow, scene.loop.disk.dice = 10_000.0, random.Random(0)  # 8,400 s at first
    only.life.start(drivers.prepare(only.driver, [ref], scene.loop.time() + 45.0))
    await scene.comes_about(lambda: scene.api.count("PATCH") >= 3)
    await asyncio.sleep(1.0)
    assert scene.disk.records() == {}
    only.life.die()
    scene.loop.disk.slow = 0.0
    fresh = await scene.instance()
    await scene.comes_about(lambda: not scene.entries(ref), [fresh])


@play
async def test_a_report_that_died_is_made_by_one_that_has_read_the_checkpoint_for_a_call(scene):
    """Not only a glance reads the records again: after a call the glance has nothing to see."""
    old, new = await scene.instance(), await scene.instance()
    ref, other = scene.claim(), scene.claim("other", 1)
    scene.api.fail(503, times=1, method="PATCH")
    await scene.prepare(old, ref)
    await scene.comes_about(lambda: scene.api.count("PATCH"))
    old.life.die()
    await scene.prepare(new, other)
    await scene.comes_about(lambda: scene.entries(ref), [new])


@play
async def test_a_status_that_its_instance_could_not_clear_any_more_is_cleared(scene):
    only = await scene.instance()
    ref = scene.claim()
    await scene.prepare(only, ref)
    await scene.comes_about(lambda: scene.entries(ref))
    scene.api.fail(503, times=1000, method="PATCH")
    await scene.unprepare(only, ref)
    await scene.comes_about(lambda: scene.api.count("PATCH") >= 2)
    only.life.die()
    scene.api.faults.clear()
    fresh = await scene.instance()
    await scene.comes_about(lambda: not scene.entries(ref), [fresh])


async def test_a_start_survives_an_instance_that_is_frozen_with_the_lock_in_hand():
    with tempfile.TemporaryDirectory(prefix="f-") as name:
        async with apiserver.serve() as api:
            folder = Path(name)
            fake.write(folder / "fake", fake.parse(["amd:mi300x=1"]))
            connection = {"server": api.url}
            (folder / "kubeconfig").write_text(
                json.dumps(
                    {
                        "current-context": "t",
                        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
                        "clusters": [{"name": "t", "cluster": connection}],
                        "users": [{"name": "t", "user": {}}],
                    }
                )
            )
            settings = config.Config(
                node_name=worlds.NODE,
                kubelet_dir=folder / "kubelet",
                cdi_dir=folder / "cdi",
                root=str(folder / "fake"),
                kubeconfig=str(folder / "kubeconfig"),
            )
            plugin = names.plugin_folder(settings.kubelet_dir, settings.driver_name)
            plugin.mkdir(parents=True)
            (settings.kubelet_dir / "plugins_registry").mkdir()
            with (plugin / "claims.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                built = app.build(settings)
                built.reports.checkpoints._lock.patience = 0.2
                running = asyncio.create_task(built.run())
                try:
                    await apiserver.until(
                        lambda: list(plugin.glob("*.sock")) or running.done(), 10.0
                    )
                    await asyncio.wait([running], timeout=2.0)
                    assert not running.done(), running.exception()
                finally:
                    running.cancel()
                    await asyncio.wait([running])
                    # One that is cut off in the middle has not come to it.
                    await built.client.close()
