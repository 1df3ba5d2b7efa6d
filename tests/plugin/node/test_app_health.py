"""The whole program beside a fake tree that falls sick: the slice's taint, the kubelet's stream,
the claim, Events.
"""

import asyncio
import contextlib
import re
import sys
import time

import grpc
import pytest

from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2 as v1
from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2_grpc as v1_grpc
from claimd.node.report import health
from claimd_devices import fake, faults, scan
from claimd_devices.gpu import Roots
from tests.plugin.node.test_app import World as Node
from tests.plugin.node.test_app import world as node
from tests.support import apiserver
from tests.support.kubelet import calling

__all__ = ["node"]
PATIENCE = 20.0
FAULTS = {  # order: kind of the finding, severity as the stream has it
    "wedge": ("wedged", v1.UNHEALTHY),
    "hot": ("hot", v1.UNHEALTHY),
    "aer": ("aer-fatal", v1.UNHEALTHY),
    "link": ("link", v1.UNHEALTHY),
    "xid": ("xid", v1.UNHEALTHY),
    "eio": ("unreadable", v1.UNHEALTHY),
    "hang": ("unresponsive", v1.UNKNOWN),
    "unplug": ("absent", v1.UNHEALTHY),
}
SENTENCES = {
    "wedge": "the GPU hangs and its driver could not recover it (wedged)",
    "hot": "103 °C, at or above the critical 100 °C",
    "aer": "the PCIe port has reported fatal errors of the GPU",
    "link": "its PCIe link has 4 of 16 lanes",
    "xid": "the NVIDIA driver reported Xid 79",
    "eio": "reading config fails with input/output errors",
    "hang": "a read has not come back for 2 s",
    "unplug": "it has vanished from the PCI bus",
}


async def wide(*flags: str) -> list[str]:
    """What `claimd devices -o wide` prints, by a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "claimd",
        "devices",
        "-o",
        "wide",
        *flags,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().splitlines()


class World:
    def __init__(self, node: Node, words: list[str]) -> None:
        self.node = node
        self.tree = node.tmp_path / "fake"
        fake.write(self.tree, fake.parse(words))
        faults.enable(self.tree)
        self.gpus = node.gpus = scan.scan(Roots.in_folder(self.tree)).gpus
        self.told: dict[str, tuple[int, str]] = {}  # by the kubelet's stream

    def give(self, order: str, index: int = 0, value: str = "") -> None:
        faults.inject(self.tree, order, self.gpus[index].address, value)

    async def ailing(self) -> dict[str, str]:
        """What `devices -o wide` says beside a running claimd: the kind of trouble and since when,
        by device.
        """
        lines = await wide(f"--root={self.tree}", f"--kubelet-dir={self.node.kubelet.folder}")
        matches = (
            re.fullmatch(r"(gpu-\S+): (failed|degraded|unknown): (.*)", line) for line in lines
        )
        return {match[1]: match[3] for match in matches if match}

    def taints(self) -> dict[str, list[tuple[str, str]]]:
        devices = [
            device for slice_ in self.node.slices() for device in slice_["spec"].get("devices", [])
        ]
        return {d["name"]: [(t["key"], t["effect"]) for t in d.get("taints", [])] for d in devices}

    async def until(self, fact) -> None:
        await apiserver.until(fact, PATIENCE)

    @contextlib.asynccontextmanager
    async def running(self, **settings):
        async with self.node.plugin(**{"health-interval": 1, **settings}) as plugin:
            info = await self.node.kubelet.register()
            assert list(info.supported_versions)[2:] == [
                "v1.DRAResourceHealth",
                "v1alpha1.DRAResourceHealth",
            ]
            await self.node.published()
            async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
                listening = asyncio.create_task(self._listen(channel))
                await self.until(lambda: self.told)
                try:
                    yield plugin, info
                finally:
                    listening.cancel()
                    await asyncio.wait([listening])

    async def _listen(self, channel) -> None:
        call = v1_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
            v1.NodeWatchResourcesRequest()
        )
        async for response in call:
            self.told = {d.device.device_name: (d.health, d.message) for d in response.devices}


@pytest.mark.slow
async def test_each_fault_is_in_the_slice_and_in_the_stream_and_clears(node):
    world = World(node, ["nvidia:h100=9"])
    async with world.running(**{"taint-degraded": "NoSchedule"}):
        assert set(world.told) == {gpu.name for gpu in world.gpus}
        assert {health for health, _ in world.told.values()} == {v1.HEALTHY}
        for index, order in enumerate(FAULTS):
            world.give(order, index)
        for index, (kind, health) in enumerate(FAULTS.values()):
            name = world.gpus[index].name
            await world.until(
                lambda n=name, k=kind: world.taints()[n] == [(f"claimd.dev/{k}", "NoSchedule")]
            )
            await world.until(lambda n=name, h=health: world.told[n][0] == h and world.told[n][1])
        ailing = await world.ailing()
        assert set(ailing) == {gpu.name for gpu in world.gpus[:8]}
        for index, order in enumerate(FAULTS):
            assert SENTENCES[order] in ailing[world.gpus[index].name]
            assert re.search(
                r" \(since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\)$", ailing[world.gpus[index].name]
            ), order
        assert world.taints()[world.gpus[8].name] == []
        assert world.told[world.gpus[8].name] == (v1.HEALTHY, "")
        for index, order in enumerate(FAULTS):
            world.give("plug" if order == "unplug" else "heal", index)
        await world.until(lambda: world.taints() == {gpu.name: [] for gpu in world.gpus})
        await world.until(lambda: world.told == {gpu.name: (v1.HEALTHY, "") for gpu in world.gpus})
        assert await world.ailing() == {}


async def test_the_claim_and_the_events_say_the_same(node):
    world = World(node, ["amd:mi300x=2"])
    async with world.running() as (_, info):
        claim = node.claim("c")
        async with calling(info.endpoint) as caller:
            assert not (await caller.prepare(claim))[claim["metadata"]["uid"]].error

            def conditions():
                stored = node.api.objects["resourceclaims", "default", "c"]
                return [
                    (c["type"], c["status"], c["reason"], c["message"])
                    for entry in stored["status"].get("devices", [])
                    for c in entry["conditions"]
                ]

            await world.until(conditions)
            world.give("wedge")
            await world.until(lambda: world.told[world.gpus[0].name][0] == v1.UNHEALTHY)
            sentence = world.told[world.gpus[0].name][1]
            assert "the GPU hangs" in sentence
            await world.until(lambda: ("Healthy", "False", "Wedged", sentence) in conditions())
            await world.until(
                lambda: node.reasons().count("DeviceUnhealthy") == 2
            )  # of the claim and of the node
            world.give("heal")
            await world.until(lambda: [c[0] for c in conditions()] == ["Ready"])
            await world.until(lambda: node.reasons().count("DeviceHealthy") == 2)


async def test_a_divided_gpu_is_one_event_of_the_node_and_one_of_each_claim(node):
    world = World(node, ["amd:mi300x,mode=cpx"])
    async with world.running() as (_, info):
        claims = [node.claim(f"c{number}", 1 + number) for number in range(2)]
        async with calling(info.endpoint) as caller:
            for claim in claims:
                assert not (await caller.prepare(claim))[claim["metadata"]["uid"]].error
        world.give("wedge")
        await world.until(lambda: all(world.taints().values()))
        await world.until(lambda: node.reasons().count("DeviceUnhealthy") >= 3)
        about = [
            (obj["regarding"]["kind"], obj["regarding"]["name"])
            for (kind, _, _), obj in sorted(node.api.objects.items(), key=lambda item: item[0])
            if kind == "events" and obj["reason"] == "DeviceUnhealthy"
        ]
        assert sorted(about) == [
            ("Node", "node-1"),
            ("ResourceClaim", "c0"),
            ("ResourceClaim", "c1"),
        ]


@pytest.mark.slow
async def test_a_gpu_that_vanished_is_published_for_the_grace_and_comes_back(node):
    world = World(node, ["amd:mi300x=2"])
    first, second = (gpu.name for gpu in world.gpus)
    async with world.running(**{"absent-grace": 4, "taint-failed": "NoExecute"}):
        before = node.slices()[0]["spec"]["devices"]
        world.give("unplug")
        await world.until(
            lambda: world.taints() == {first: [("claimd.dev/absent", "NoExecute")], second: []}
        )
        assert node.slices()[0]["spec"]["devices"][0]["attributes"] == before[0]["attributes"]
        await world.until(lambda: world.taints() == {second: []})
        await world.until(lambda: set(world.told) == {second})
        assert "DeviceHealthy" not in node.reasons(), "it was given up, which is not to be well"
        world.give("plug")
        await world.until(lambda: node.slices()[0]["spec"]["devices"] == before)


async def test_what_heals_in_a_moment_evicts_nobody(node):
    world = World(node, ["amd:mi300x=2"])
    first, second = (gpu.name for gpu in world.gpus)
    async with world.running(**{"taint-failed": "NoExecute"}):
        began = time.monotonic()
        world.give("wedge", 0)
        world.give("wedge", 1)
        await world.until(lambda: all(world.taints().values()))
        world.give("heal", 0)
        await world.until(lambda: world.taints()[first] == [])
        sick = time.monotonic() - began
        await world.until(lambda: world.taints()[second] == [("claimd.dev/wedged", "NoExecute")])
        effects: dict[str, list[str]] = {first: [], second: []}
        for _, kind, slice_ in node.api.log:
            for device in slice_["spec"]["devices"] if kind == "resourceslices" else ():
                effects[device["name"]] += [taint["effect"] for taint in device.get("taints", [])]
        # A busy machine may take longer than the moment.
        if sick < health.EVICT_AFTER:
            assert set(effects[first]) == {"NoSchedule"}
        assert effects[second][0] == "NoSchedule", "nobody is put there from the first moment on"
        assert effects[second][-1] == "NoExecute"


async def test_killed_and_started_again_it_knows_which_gpus_are_sick(node):
    """Of a GPU that hangs the kernel speaks once; one that is gone shows nowhere."""
    world = World(node, ["amd:mi300x=3"])
    first, second, third = (gpu.name for gpu in world.gpus)
    known = {
        first: [("claimd.dev/wedged", "NoSchedule")],
        second: [("claimd.dev/absent", "NoSchedule")],
        third: [],
    }
    async with world.running() as (plugin, _):
        world.give("wedge", 0)
        world.give("unplug", 1)
        await world.until(lambda: world.taints() == known)
        plugin.process.kill()
        await plugin.process.wait()
    (world.tree / "dev/kmsg").unlink()
    before = node.slices()[0]["metadata"]["resourceVersion"]
    world.told = {}
    async with world.running() as (plugin, _):
        await world.until(
            lambda: world.told and world.told[first][0] == world.told[second][0] == v1.UNHEALTHY
        )
        assert node.slices()[0]["metadata"]["resourceVersion"] == before, (
            "a start that knows all writes nothing"
        )
        world.give("heal", 0)
        world.give("plug", 1)
        await world.until(lambda: world.taints() == {name: [] for name in known})


async def test_a_person_clears_what_no_driver_reports_as_over(node):
    world = World(node, ["nvidia:h100=2"])
    first, second = (gpu.name for gpu in world.gpus)
    sick = {first: [("claimd.dev/xid", "NoSchedule")], second: []}
    well = {first: [], second: []}
    folders = (f"--root={world.tree}", f"--kubelet-dir={node.kubelet.folder}")
    async with world.running() as (plugin, _):
        world.give("xid")
        await world.until(lambda: world.taints() == sick)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "claimd", "clear", first, "--by", "ann", *folders)
        )
        assert await process.wait() == 0
        await world.until(lambda: world.taints() == well)
        await world.until(lambda: "DeviceHealthy" in node.reasons())
        plugin.process.kill()
        await plugin.process.wait()

    # The kernel's log still has the error. A later error counts.
    async with world.running():
        await world.until(lambda: world.told.get(first) == (v1.HEALTHY, ""))
        assert world.taints() == well
        world.give("xid")
        await world.until(lambda: world.taints() == sick)


@pytest.mark.parametrize("order", ["hang", "eio"])
async def test_the_end_is_not_held_up_by_a_sick_gpu(node, order):
    world = World(node, ["amd:mi300x=2"])
    async with world.running() as (plugin, _):
        world.give(order)
        await world.until(lambda: world.taints()[world.gpus[0].name])
        assert await plugin.stop() == 0
