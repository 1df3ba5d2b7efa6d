"""Each bug of the driver that the crash campaign found."""

import asyncio
import contextlib

from claimd.node import app, config
from claimd.node.prepared import ClaimRef
from tests.faults.power import Hardware
from tests.faults.world import world
from tests.support import drivers
from tests.support.worlds import NODE, inventory


@contextlib.asynccontextmanager
async def driver(world_):
    """An instance of the plugin as `claimd run` builds it, without its servers and tasks."""
    settings = config.Config(
        node_name=NODE,
        kubelet_dir=world_.kubelet,
        cdi_dir=world_.cdi,
        kubeconfig=str(world_.folder / "kubeconfig"),
    )
    built = app.build(settings)
    built.driver.claims.hardware.watch = Hardware(inventory())
    try:
        yield built.driver
    finally:
        await built.client.close()


async def test_a_claim_that_another_instance_unprepared_is_looked_after_no_more():
    async with world() as world_, driver(world_) as driver_, driver(world_) as two:
        world_.gpus = inventory().gpus
        world_.claim("c", 0)
        ref = ClaimRef("default", "c", "uid-c")
        await drivers.prepare(driver_, [ref], asyncio.get_running_loop().time() + 10)
        await drivers.unprepare(two, [ref])
        await driver_.claims.restorer.repair()
        assert not driver_.claims.files.specs.is_disturbed(), (
            "it would put the folder right twice a second, for ever"
        )
