"""A node of the model campaign: a kernel that shows GPUs, an API server, and up to two instances of
the plugin's heart over the same folders, each with a life of its own.

The parts are claimd's own, wired as `app` wires them. What should come of it is in `promises`, what
happens in `model`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from claimd.common import errors
from claimd.kubernetes.kube import client, client_config, credentials, resources
from claimd.node.prepare import (
    cdi,
    checkpoint,
    claim_reports,
    garbage,
    lost_checkpoints,
    metadata,
)
from claimd.node.report import events, status
from claimd_devices.gpu import DeviceNode, Inventory
from tests.faults import turns
from tests.support import apiserver, drivers, worlds

GPUS = 4


class Kernel:
    """GPUs at fixed addresses, with device numbers that belong to a boot or to a moment of plugging
    in.
    """

    def __init__(self) -> None:
        self.boot = 1
        self._next = 0
        self._there: dict[int, tuple[int, int]] = {}  # by address: minor, and which card it is
        for index in range(GPUS):
            self.plug(index)

    def plug(self, index: int, card: int = 0) -> None:
        self._there[index] = (self._next, card)
        self._next += 1

    def unplug(self, index: int) -> None:
        self._there.pop(index, None)

    def reboot(self) -> None:
        """The order of probing has changed: every number is another one's now."""
        self.boot += 1
        minors = [minor for minor, _ in self._there.values()]
        moved = zip(self._there.items(), minors[1:] + minors[:1], strict=True)
        self._there = {index: (minor, card) for (index, (_, card)), minor in moved}

    def inventory(self) -> Inventory:
        return Inventory.from_unsorted(
            worlds.gpu(
                index,
                uuid=f"{index:08x}{card:08x}",
                nodes=(
                    DeviceNode(path=f"/dev/dri/renderD{128 + minor}", major=226, minor=128 + minor),
                ),
            )
            for index, (minor, card) in self._there.items()
        )


class Hardware:
    """What one instance has seen of the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.last: Inventory | None = kernel.inventory()

    async def rescan(self) -> Inventory:
        self.last = self._kernel.inventory()
        return self.last


async def _no_pods() -> garbage.Pods:
    return {}


class Instance:
    """What a process of the plugin is, without its sockets for the kubelet."""

    def __init__(
        self,
        loop: turns.Loop,
        folder: Path,
        kernel: Kernel,
        api: apiserver.ApiServer,
        pods: Callable[[], Awaitable[garbage.Pods]] = _no_pods,
    ) -> None:
        self.life = turns.Life(loop)
        config = client_config.ClientConfig(
            host="127.0.0.1", port=api.port, secure=False, credentials=credentials.StaticToken()
        )
        self._client = client.Client(config, agent="model")
        resources_ = resources.Resources(self._client, worlds.DRIVER, worlds.NODE)
        self.checkpoints = checkpoint.CheckpointFolder(folder / "plugin", f"boot-{kernel.boot}")
        self.specs = cdi.SpecFolder(folder / "cdi", worlds.DRIVER)
        self.metadata = metadata.MetadataFolder(
            folder / "plugin/metadata", worlds.DRIVER, metadata.Published()
        )
        self._reporter = status.StatusReporter(resources_, worlds.DRIVER)
        self._kernel, self._hardware = kernel, Hardware(kernel)
        self._restored: Inventory | None = None
        self.reports = claim_reports.ClaimReports(
            driver=worlds.DRIVER,
            checkpoints=self.checkpoints,
            reporter=self._reporter,
            inventory=lambda: self._hardware.last or Inventory(),
        )
        self.driver = drivers.build(
            resources_=resources_,
            checkpoints=self.checkpoints,
            specs=self.specs,
            metadata_folder=self.metadata,
            reports=self.reports,
            watch=self._hardware,
        )
        self._lost = lost_checkpoints.LostCheckpoints(
            driver=self.driver,
            pods=pods,
            another_publishes=lambda: False,
            record_event=events.discard,
            set_taints=lambda _: None,
        )
        self.life.at_death.append(self._release)

    @property
    def sees_all(self) -> bool:
        return self._hardware.last == self._kernel.inventory()

    async def start(self) -> None:
        """Returns when it serves, or has died."""
        self.life.start(self._reporter.run())
        await self.done(self.life.start(self._starting()))

    async def glance(self) -> None:
        """What a living instance does twice a second, and after a change in the hardware."""
        await self.done(self.life.start(self._glance()))

    async def done(self, task: asyncio.Task[turns.T]) -> turns.T | None:
        """What the task returns; None if the process dies before."""
        waited: set[asyncio.Future[Any]] = {task, self.life.died}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None

    async def bury(self) -> None:
        await self.life.bury()
        await self._client.close()

    async def _starting(self) -> None:
        with contextlib.suppress(
            errors.ClaimError
        ):  # the other one is frozen: the next glance does it
            await self._restore()

    async def _glance(self) -> None:
        with contextlib.suppress(errors.ClaimError):
            if await self._hardware.rescan() != self._restored:
                await self._restore()
            await self.driver.claims.restorer.repair()
            await self._lost.sweep()

    async def _restore(self) -> None:
        seen = self._hardware.last
        await self.driver.claims.restorer.follow_up()
        self._restored = seen

    def _release(self) -> None:
        """As the kernel does for the dead: locks are let go and connections are cut. Nothing of
        ours is asked. Another file takes the descriptor's place, so that its number is not given to
        somebody else.
        """
        if (lock := self.checkpoints._lock._descriptor) is not None:
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), lock)
        for connection in list(self._client._open):
            connection.drop()
