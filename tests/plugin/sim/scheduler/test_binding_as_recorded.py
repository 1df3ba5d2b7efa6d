"""Devices with binding conditions, compared with recordings of Kubernetes' own scheduler."""

import asyncio

import pytest

from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim import scheduler
from claimd.sim.apiserver import server
from tests.cluster.preemption import Cluster
from tests.support import binding_situations as situations
from tests.support import samples

# The seconds that stand for the time that devices have in a situation which waits for its end.
SHORT = 0.5


class Simulated:
    """The simulated scheduler as a task that can be restarted."""

    def __init__(self, path, timeout):
        self._path, self._timeout, self._task = path, timeout, None

    async def restart(self):
        await self.end()
        self._client = client.Client(kubeconfig.load(self._path), agent="scheduler")
        self._task = asyncio.create_task(scheduler.run(self._client, self._timeout))

    async def end(self):
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._client.close()


@pytest.mark.parametrize("name", samples.parameters([[name] for name in situations.ALL]))
async def test_it_does_what_kubernetes_own_scheduler_does(name, tmp_path):
    situation, seconds = situations.ALL[name]
    expected = iter(situations.load(name))

    async def look(seen):
        wanted = next(expected)
        try:
            async with asyncio.timeout(10):
                while await seen() != wanted:
                    await asyncio.sleep(situations.GLANCE)
        except TimeoutError:
            assert await seen() == wanted

    async with server.serve(server.Options()) as api:
        path = api.kubeconfig(tmp_path / "admin")
        admin = client.Client(kubeconfig.load(path), agent="admin")
        simulated = Simulated(path, SHORT if seconds == situations.SHORT else seconds)
        try:
            await simulated.restart()
            await situation(situations.Stage(Cluster(admin), look, simulated.restart))
        finally:
            await simulated.end()
            await admin.close()
    assert list(expected) == []
