"""The description for a failed test, on a simulated cluster that was not read before."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from claimd.sim import cluster
from claimd.sim.apiserver import server
from claimd.sim.demo.views import Views
from claimd.sim.testing import account

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"nodeName": "none", "containers": [{"name": "c", "image": "i"}]},
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "p.1"},
    "type": "Warning",
    "reason": "Waits",
    "message": "for a node",
}


@pytest.mark.parametrize("of_all", [True, False])
async def test_the_first_look_sees_what_there_is(of_all):
    with tempfile.TemporaryDirectory(prefix="sim-", dir="/tmp") as folder:
        async with (
            cluster.up([], Path(folder), options=server.Options()) as up,
            asyncio.TaskGroup() as group,
        ):
            views = Views(up, group)
            pod = await views.kinds.apply(POD)
            await views.kinds.apply(EVENT | {"involvedObject": pod["metadata"] | {"kind": "Pod"}})
            if of_all:
                told = await account.describe_unhealthy_pods(up, views)
                assert told[0] == "pod default/p is Pending"
            else:
                told = await account.describe_objects(up, views, "pod", [pod])
            assert any("Warning Waits: for a node" in line for line in told)
            views.close()
