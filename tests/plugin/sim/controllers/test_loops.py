import asyncio
import contextlib
import time

from plugin.kube import errors
from plugin.sim.apiserver.server import Options, serve
from plugin.sim.assume_cache import AssumeCache
from plugin.sim.controllers.loops import Evictions
from plugin.sim.requests import delete
from plugin.sim.work_loop import WorkLoop
from tests.support import planes
from tests.support.plane import running


class Slow(WorkLoop):
    """While it sends something, the rules go away."""

    async def send_all(self, calls):
        rules = self.caches["devicetaintrules"]
        for rule in list(rules.objects.values()):
            with contextlib.suppress(errors.NotFound):
                await self.api.send(delete("devicetaintrules", rule))
        async with asyncio.timeout(30):
            while rules.objects:
                await asyncio.sleep(0.005)
        return await super().send_all(calls)


async def test_a_rule_may_go_while_its_pods_are_evicted(tmp_path):
    async with serve(Options()) as server, running(server, tmp_path) as plane:
        await plane.make(
            planes.rule("r", {"key": "k", "effect": "NoExecute"}), planes.pod("p", claims=["mine"])
        )
        pod = await plane.until(lambda: plane.pod("p"))
        collections = [AssumeCache(plane.api, kind) for kind in Evictions.RESOURCES]
        worker = Slow("evictions", plane.api, collections)
        tasks = [asyncio.create_task(one.run()) for one in collections]
        async with asyncio.timeout(30):
            while not (
                all(one.synced for one in collections) and worker.objects("devicetaintrules")
            ):
                await asyncio.sleep(0.005)
        held = planes.claim("mine", devices=["gpu-0"], pods=["p"])
        held["status"]["reservedFor"][0]["uid"] = pod["metadata"]["uid"]
        worker.objects("resourceclaims")["default/mine"] = held
        worker.objects("pods")["default/p"] = pod | {"spec": pod["spec"] | {"nodeName": "node-1"}}
        await Evictions(worker, time.time).reconcile()
        await plane.until(lambda: not plane.pod("p"))
        for task in tasks:
            task.cancel()
