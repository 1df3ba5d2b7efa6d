"""Scheduler and controllers with many objects at once: recorded worlds, and random changes."""

import asyncio
import contextlib
import random

import pytest

from claimd.kubernetes.kube import errors
from claimd.sim import controllers, scheduler
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.requests import delete, patch_status
from tests.cluster.worlds import NODE, OTHER, WORLDS
from tests.support import planes
from tests.support.plane import furnish, running

STRIKES = 25  # in the life of each of three schedulers
SEED = 7


@pytest.mark.slow
async def test_the_worlds_that_a_real_scheduler_has_decided(tmp_path):
    """Creates all objects at once, as tests/cluster/test_13_scheduler.py does for the real
    scheduler."""
    async with (
        serve(Options()) as api,
        running(api, tmp_path, scheduler.run, controllers.run) as plane,
    ):
        await plane.make(planes.node(NODE, cpu="64"), planes.node(OTHER, cpu="64"))
        for world in WORLDS:
            await plane.make(*world.classes, *world.slices)
            claims = [
                claim | {"metadata": claim["metadata"] | {"namespace": "default"}}
                for claim in world.claims
            ]
            names = [claim["metadata"]["name"] for claim in claims]
            where = {"kubernetes.io/hostname": world.node}
            await plane.make(*claims, planes.pod(world.name, claims=names, nodeSelector=where))
        fit = [world.name for world in WORLDS if world.fits]
        await plane.until(lambda: all(plane.place(name) for name in fit))
        for world in WORLDS:
            claims = [
                plane.get("resourceclaims", claim["metadata"]["name"]) for claim in world.claims
            ]
            assert all("allocation" in claim.get("status", {}) for claim in claims) == world.fits, (
                world.name
            )
            if not world.fits:
                await plane.until(lambda name=world.name: plane.told(name, "FailedScheduling"))


class Fate:
    """Random changes with a fixed seed: pods come and go, claims are deleted, devices tainted, the
    scheduler restarted."""

    def __init__(self, plane):
        self.plane = plane
        self.random = random.Random(SEED)
        self.count = 0

    async def strikes(self):
        act = self.random.choices(
            (self.pod_comes, self.pod_goes, self.claim_goes, self.rule_comes, self.rule_goes),
            (50, 20, 5, 4, 6),
        )[0]
        with contextlib.suppress(
            errors.NotFound, errors.Conflict
        ):  # it is gone already, or being deleted
            await act()

    async def pod_comes(self):
        self.count += 1
        shared = [f"shared-{self.random.randrange(2)}"]
        wish = self.random.choice(
            (
                {"templates": ["gpu"]},
                {"claims": shared},
                {},
                {"templates": ["gpu"], "claims": shared},
            )
        )
        await self.plane.make(planes.pod(f"p{self.count}", **wish))

    async def pod_goes(self):
        await self._delete("pods", lambda _: True)

    async def claim_goes(self):
        await self._delete("resourceclaims", lambda name: not name.startswith("shared"))

    async def rule_comes(self):
        self.count += 1
        taint = {"key": "x", "effect": self.random.choice(("NoExecute", "NoSchedule"))}
        where = {
            "pool": f"node-{self.random.randrange(1, 4)}",
            "device": f"gpu-{self.random.randrange(2)}",
        }
        await self.plane.make(planes.rule(f"r{self.count}", taint, **where))

    async def rule_goes(self):
        await self._delete("devicetaintrules", lambda _: True)

    async def _delete(self, kind, may):
        candidates = [
            obj for obj in self.plane.copies[kind].objects.values() if may(obj["metadata"]["name"])
        ]
        if candidates:
            await self.plane.api.send(delete(kind, self.random.choice(candidates)))

    async def kubelets(self):
        """Ends pods after a while, and removes deleted ones."""
        while True:
            for pod in list(self.plane.copies["pods"].objects.values()):
                with contextlib.suppress(errors.NotFound, errors.Conflict):
                    if pod["metadata"].get("deletionTimestamp"):
                        await self.plane.api.send(delete("pods", pod, gracePeriodSeconds=0))
                    elif pod["spec"].get("nodeName") and self.random.random() < 0.1:
                        await self.plane.api.send(patch_status("pods", pod, {"phase": "Succeeded"}))
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_no_device_is_given_twice_and_none_is_lost(tmp_path):
    async with serve(Options()) as api, running(api, tmp_path, controllers.run) as plane:
        await furnish(plane)
        await plane.make(planes.claim("shared-0"), planes.claim("shared-1"))
        fate = Fate(plane)
        kubelets = asyncio.create_task(fate.kubelets())
        for _ in range(3):
            async with running(api, tmp_path, scheduler.run):
                for _ in range(STRIKES):
                    await fate.strikes()
                    devices = plane.devices()
                    assert len(devices) == len(set(devices)), devices
                    await asyncio.sleep(fate.random.choice((0, 0, 0.002, 0.01)))
        async with running(api, tmp_path, scheduler.run):
            for rule in list(plane.copies["devicetaintrules"].objects.values()):
                await plane.api.send(delete("devicetaintrules", rule))
            pods = plane.copies["pods"]
            await plane.until(
                lambda: all(obj["spec"].get("nodeName") for obj in pods.objects.values())
            )
            for pod in list(pods.objects.values()):
                with contextlib.suppress(errors.NotFound):
                    await plane.api.send(delete("pods", pod))
            await plane.until(
                lambda: not pods.objects and len(plane.claims()) == 2 and not plane.devices()
            )
        kubelets.cancel()
