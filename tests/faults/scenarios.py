"""What claimd is doing when it dies: one scenario each. How it dies, and what must hold then, is
not here.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from claimd.common import names
from claimd.node.prepare import checkpoint
from claimd.node.prepared import PreparedClaim
from tests.support.worlds import DRIVER

from .stage import PREPARED, Stage
from .world import FOR_MACHINES

OLD, NEW = "0b9b1c5e-6f0a-4d55-8e7f-000000000001", "0b9b1c5e-6f0a-4d55-8e7f-000000000002"
BESIDE = "0b9b1c5e-6f0a-4d55-8e7f-000000000003"
STALE = "uid-stale"  # a claim that was given back, with files of ours

Step = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`before` the trouble is made, and `act` while it waits. If it `starts`, claimd is killed
    after `before`, and its next start is traced from the first instruction. With `beside`, another
    instance lives all along.
    """

    name: str
    before: Step
    act: Step
    starts: bool = False
    pod_uid: str = ""
    beside: bool = False


async def _nothing(stage: Stage) -> None:
    pass


async def _prepare(stage: Stage) -> None:
    await stage.prepare(("c", 0))
    await stage.settled()


async def _repeat_over_a_damaged_file(stage: Stage) -> None:
    (stage.world.cdi / names.cdi_file(DRIVER, "uid-c")).write_bytes(b"")
    next((stage.world.plugin / "metadata").glob("uid-c_*.json")).write_bytes(b"")
    await stage.prepare(("c", 0))


async def _restart(stage: Stage) -> None:
    await _prepare(stage)
    await stage.claimd.kill()
    await stage.recover()
    await stage.settled()


async def _many(stage: Stage) -> None:
    await stage.prepare(("c", 0), ("d", 1), ("e", 2))
    await stage.settled()


async def _unprepare(stage: Stage) -> None:
    await stage.unprepare("c")
    await stage.settled()


async def _hand_over(stage: Stage) -> None:
    if await stage.unprepare("c"):
        await stage.prepare(("d", 0))
    await stage.settled()


async def _prepare_a_share(stage: Stage) -> None:
    await stage.prepare(("share-a", 0))
    await stage.settled()


async def _share(stage: Stage) -> None:
    """One more comes to the GPU, the first leaves, and a third takes its place."""
    if await stage.prepare(("share-b", 0)) and await stage.unprepare("share-a"):
        await stage.prepare(("share-c", 0))
    await stage.settled()


async def _prepare_two_shares(stage: Stage) -> None:
    await stage.prepare(("share-a", 0), ("share-b", 0))
    await stage.settled()


async def _damage_shares(stage: Stage) -> None:
    """What a start has to put right, of each of them something else."""
    await _prepare_two_shares(stage)
    await stage.claimd.kill()
    (stage.world.cdi / names.cdi_file(DRIVER, "uid-share-a")).unlink()
    for path in (stage.world.plugin / "metadata").glob("uid-share-b_*.json"):
        path.write_bytes(b'{"api')


async def _start_with_shares(stage: Stage) -> None:
    await _start(stage)
    await _prepare_two_shares(stage)
    await _share_next(stage)


async def _share_next(stage: Stage) -> None:
    """One of two leaves, and a third takes its place."""
    if await stage.unprepare("share-a"):
        await stage.prepare(("share-c", 0))
    await stage.settled()


async def _prepare_for_a_machine(stage: Stage) -> None:
    await stage.prepare(("m", FOR_MACHINES))
    await stage.settled()


async def _unprepare_of_a_machine(stage: Stage) -> None:
    await stage.unprepare("m")
    await stage.settled()


async def _await_early(stage: Stage) -> None:
    await stage.await_early("early", FOR_MACHINES)


async def _early_and_kubelet(stage: Stage) -> None:
    """The scheduler waits, binds the pod, and the kubelet asks."""
    if await stage.await_early("early", FOR_MACHINES):
        await stage.prepare(("early", FOR_MACHINES))
    await stage.settled()


async def _start_with_an_early_claim(stage: Stage) -> None:
    await _start(stage)
    await _early_and_kubelet(stage)


async def _deallocate_early(stage: Stage) -> None:
    await stage.deallocate("early", is_sure=False)


async def _refuse_early(stage: Stage) -> None:
    """The GPU cannot be bound, and the scheduler takes the allocation back."""
    stage.world.kernel.unwilling.add("vfio-pci")
    await stage.await_early("early", FOR_MACHINES)
    stage.world.kernel.unwilling.clear()
    await stage.deallocate("early", is_sure=False)


async def _next_machine(stage: Stage) -> None:
    if await stage.unprepare("m"):
        await stage.prepare(("n", FOR_MACHINES))
    await stage.settled()


async def _start_with_a_machine(stage: Stage) -> None:
    await _start(stage)
    await _prepare_for_a_machine(stage)


async def _reboot_with_a_machine(stage: Stage) -> None:
    """The kernel has bound the GPU to its driver, and the kubelet has to start the pod again."""
    await _prepare_for_a_machine(stage)
    await stage.claimd.kill()
    stage.reboot()


async def _start_and_next_machine(stage: Stage) -> None:
    await _start_with_a_machine(stage)
    await _next_machine(stage)


def _given_back(uid: str) -> bytes:
    """The checkpoint of a claim without devices."""
    claim = PreparedClaim(namespace="default", name="stale", uid=uid, prepared_at="")
    return checkpoint.encode(checkpoint.Checkpoint(version=1, boot_id="b", claim=claim))


async def _damage(stage: Stage) -> None:
    """What a start has to put right."""
    await _many(stage)
    await stage.claimd.kill()
    world = stage.world
    (world.cdi / names.cdi_file(DRIVER, "uid-c")).unlink()
    (world.cdi / names.cdi_file(DRIVER, "uid-d")).write_bytes(b'{"cdi')
    (world.cdi / names.cdi_file(DRIVER, STALE)).write_text("{}")
    (world.plugin / "claims" / f"{STALE}.gone").write_bytes(_given_back(STALE))
    (world.plugin / "claims" / f".{STALE}.new").write_text("half")
    metadata = world.plugin / "metadata"
    (metadata / "uid-d_gpu.json").unlink()
    (metadata / "uid-e_gpu.json").write_bytes(b'{"api')
    (metadata / f"{STALE}_gpu.json").write_text("{}")
    (metadata / f".{STALE}_gpu.json.new").write_text("half")


async def _remove_everything(stage: Stage) -> None:
    await stage.claimd.kill()
    shutil.rmtree(stage.world.plugin, ignore_errors=True)


async def _start(stage: Stage) -> None:
    world = stage.world
    for resource, _, name in world.api.objects:
        if resource == "resourceslices":
            world.api.delete(resource, name)
    if await stage.claimd.register():
        await stage.claimd.until(world.published, "the slices")
        await stage.settled()


async def _start_and_prepare(stage: Stage) -> None:
    await _start(stage)
    await _prepare(stage)


async def _before_update(stage: Stage) -> None:
    """The old instance runs and has a claim."""
    await _start_the_old_one(stage)
    await _prepare(stage)


async def _before_update_with_shares(stage: Stage) -> None:
    await _start_the_old_one(stage)
    await _prepare_two_shares(stage)


async def _before_update_with_a_machine(stage: Stage) -> None:
    await _start_the_old_one(stage)
    await _prepare_for_a_machine(stage)


async def _start_the_old_one(stage: Stage) -> None:
    await stage.claimd.stop()
    stage.claimd = stage.old = await stage.world.start(OLD)
    assert await stage.claimd.register(), stage.world.tail()


async def _update(stage: Stage) -> None:
    """The new instance, which is the one that may die, takes over."""
    if await stage.claimd.register():
        await asyncio.gather(stage.prepare(("d", 1)), stage.prepare(("e", 2)))
        await stage.unprepare("c")
        await stage.settled()


async def _update_with_shares(stage: Stage) -> None:
    if await stage.claimd.register():
        await _share_next(stage)


async def _update_with_a_machine(stage: Stage) -> None:
    if await stage.claimd.register():
        await _prepare_for_a_machine(stage)
        await _next_machine(stage)


async def _be_replaced(stage: Stage) -> None:
    """The old instance, which is the one that may die, while the new one takes over."""
    old = stage.claimd
    starting = asyncio.ensure_future(stage.world.start(NEW))
    await stage.prepare(("d", 1))
    new = await starting
    assert await new.register(), stage.world.tail()
    await stage.unprepare("c")
    stage.claimd = new
    if stage.states.get("d") == PREPARED:
        await stage.prepare(("d", 1))
    await stage.prepare(("e", 2))
    await old.stop()
    await stage.settled()


async def _stop(stage: Stage) -> None:
    await asyncio.gather(stage.prepare(("d", 1)), stage.claimd.stop())


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="prepare", before=_nothing, act=_prepare),
        Scenario(name="again", before=_prepare, act=_repeat_over_a_damaged_file),
        Scenario(name="again-after-restart", before=_restart, act=_prepare),
        Scenario(name="many", before=_nothing, act=_many),
        Scenario(name="unprepare", before=_prepare, act=_unprepare),
        Scenario(name="hand-over", before=_prepare, act=_hand_over),
        Scenario(name="share", before=_prepare_a_share, act=_share),
        Scenario(name="share-start", before=_damage_shares, act=_start_with_shares, starts=True),
        Scenario(
            name="share-update",
            before=_before_update_with_shares,
            act=_update_with_shares,
            starts=True,
            pod_uid=NEW,
        ),
        Scenario(name="vfio", before=_nothing, act=_prepare_for_a_machine),
        Scenario(name="vfio-back", before=_prepare_for_a_machine, act=_unprepare_of_a_machine),
        Scenario(name="vfio-next", before=_prepare_for_a_machine, act=_next_machine),
        Scenario(
            name="vfio-start",
            before=_prepare_for_a_machine,
            act=_start_with_a_machine,
            starts=True,
        ),
        Scenario(
            name="vfio-reboot",
            before=_reboot_with_a_machine,
            act=_start_and_next_machine,
            starts=True,
        ),
        Scenario(
            name="vfio-update",
            before=_before_update_with_a_machine,
            act=_update_with_a_machine,
            starts=True,
            pod_uid=NEW,
        ),
        Scenario(name="early", before=_nothing, act=_early_and_kubelet),
        Scenario(name="early-undo", before=_await_early, act=_deallocate_early),
        Scenario(name="early-refused", before=_nothing, act=_refuse_early),
        Scenario(
            name="early-start",
            before=_await_early,
            act=_start_with_an_early_claim,
            starts=True,
        ),
        Scenario(name="start", before=_many, act=_start, starts=True),
        Scenario(name="restore", before=_damage, act=_start, starts=True),
        Scenario(
            name="first-start", before=_remove_everything, act=_start_and_prepare, starts=True
        ),
        Scenario(name="update-new", before=_before_update, act=_update, starts=True, pod_uid=NEW),
        Scenario(name="update-old", before=_before_update, act=_be_replaced),
        Scenario(name="stop", before=_prepare, act=_stop),
    )
}

# A second instance cannot live through a reboot or the loss of its folder, and an update has one.
_ALONE = (
    *("vfio-reboot", "first-start"),
    *("update-new", "update-old", "share-update", "vfio-update"),
)
SCENARIOS |= {
    f"{name}-beside": replace(scenario, name=f"{name}-beside", beside=True)
    for name, scenario in SCENARIOS.items()
    if name not in _ALONE
}
