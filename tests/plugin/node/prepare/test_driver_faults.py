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
async def driver(made):
    """An instance of the plugin as `claimd run` builds it, without its servers and tasks."""
    settings = config.Config(
        node_name=NODE,
        kubelet_dir=made.kubelet,
        cdi_dir=made.cdi,
        kubeconfig=str(made.folder / "kubeconfig"),
    )
    built = app.build(settings)
    built.driver.claims.hardware.watch = Hardware(inventory())
    try:
        yield built.driver
    finally:
        await built.client.close()


async def test_a_claim_that_another_instance_unprepared_is_looked_after_no_more():
    async with world() as made, driver(made) as one, driver(made) as two:
        made.gpus = inventory().gpus
        made.claim("c", 0)
        ref = ClaimRef("default", "c", "uid-c")
        await drivers.prepare(one, [ref], asyncio.get_running_loop().time() + 10)
        await drivers.unprepare(two, [ref])
        await one.claims.restorer.repair()
        assert not one.claims.files.specs.is_disturbed(), (
            "it would put the folder right twice a second, for ever"
        )
