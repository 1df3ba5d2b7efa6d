"""Plugins of the node: found by their sockets, registered, watched over, and given up when they do
not come back.

A driver may have several instances; the newest that is connected is called. What is asked of one is
in `calls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from ...kube import errors
from ...kubelet.wire.pluginregistration.v1 import api_pb2, api_pb2_grpc
from .timing import Timing

log = logging.getLogger(__name__)

VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
HEALTH = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")  # in our order, not in the plugin's
_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Apart from each other, or the failure of an earlier connection would stand for a while.
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]

Mark = tuple[int, int]


class RegistrationError(Exception):
    """Why a plugin is not registered. What it says is told to the plugin."""


@dataclass(slots=True, kw_only=True, eq=False)
class Instance:
    """One registered socket of a driver."""

    driver: str
    socket: Path
    endpoint: str
    version: str  # of DRAPlugin
    health: str  # the service's name, or nothing
    channel: grpc.aio.Channel
    connected: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Plugins:
    """`lost` is awaited when a driver was away for the grace; `watch` runs as long as an instance
    is registered.
    """

    def __init__(
        self,
        folder: Path,
        timing: Timing,
        *,
        lost: Callable[[str], Awaitable[None]],
        watch: Callable[[Instance], Awaitable[None]],
    ) -> None:
        self.instances: dict[str, list[Instance]] = {}  # by driver, the newest last
        self._folder, self._timing, self._lost, self._watch = folder, timing, lost, watch
        self._sockets: dict[Path, tuple[Mark, Instance | None]] = {}  # None: not registered yet
        self._attempts: dict[Path, asyncio.Task[None]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Keeps to what the folder shows until cancelled; then nothing of it is connected any more."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                await self._look()
                await asyncio.sleep(self._timing.glance)
        finally:
            for path in list(self._sockets):
                await self._drop(path)
            await _end(*self._wipes.values())

    def pick(self, driver: str) -> Instance:
        """The instance to call. LookupError if there is none."""
        known = self.instances.get(driver)
        if not known:
            raise LookupError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(known) if each.connected), known[-1])

    async def _look(self) -> None:
        found = dict(_sockets(self._folder))
        for path, (mark, _) in list(self._sockets.items()):
            if found.get(path) != mark:
                await self._drop(path)
        for path, mark in found.items():
            if path not in self._sockets:
                self._sockets[path] = (mark, None)
                self._attempts[path] = asyncio.create_task(
                    self._register(path, mark), name=f"register {path}"
                )

    async def _register(self, path: Path, mark: Mark) -> None:
        pause = self._timing.register_again
        while True:
            try:
                async with grpc.aio.insecure_channel(f"unix:{path}", options=OPTIONS) as channel:
                    await self._introduce(path, mark, api_pb2_grpc.RegistrationStub(channel))
                return
            except grpc.aio.AioRpcError as error:
                log.warning(
                    "cannot register the plugin at %s: %s: %s",
                    path,
                    error.code().name,
                    error.details(),
                )
            except RegistrationError as error:
                log.warning("the plugin at %s is refused: %s", path, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._timing.register_limit)

    async def _introduce(self, path: Path, mark: Mark, stub: Any) -> None:
        info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=self._timing.info)
        try:
            instance = self._instance(path, info)
        except RegistrationError as error:
            await stub.NotifyRegistrationStatus(
                api_pb2.RegistrationStatus(plugin_registered=False, error=str(error)),
                timeout=self._timing.notify,
            )
            raise
        self._sockets[path] = (mark, instance)
        self.instances.setdefault(instance.driver, []).append(instance)
        instance.tasks = [
            asyncio.create_task(self._follow(instance), name=f"connection to {instance.driver}"),
            *(
                [asyncio.create_task(_run(self._watch, instance), name=instance.health)]
                if instance.health
                else []
            ),
        ]
        try:
            await stub.NotifyRegistrationStatus(
                api_pb2.RegistrationStatus(plugin_registered=True), timeout=self._timing.notify
            )
        except BaseException:
            if path in self._sockets:
                self._sockets[path] = (mark, None)
            await self._forget(instance)
            raise
        log.info("registered %s at %s, %s", instance.driver, instance.endpoint, instance.version)

    def _instance(self, path: Path, info: api_pb2.PluginInfo) -> Instance:
        endpoint = info.endpoint or str(path)
        if info.type != "DRAPlugin":
            raise RegistrationError(
                f"plugins of type {info.type!r} are not known here, expected DRAPlugin"
            )
        if not _DRIVER.fullmatch(info.name) or len(info.name) > 63:
            raise RegistrationError(
                f"{info.name!r} is no driver name: expected a DNS name of at most 63 characters"
            )
        if not endpoint.startswith("/"):
            raise RegistrationError(f"the endpoint {endpoint!r} is no absolute path")
        version = next((each for each in info.supported_versions if each in VERSIONS), "")
        if not version:
            raise RegistrationError(
                f"none of the services {', '.join(info.supported_versions) or '(no service at all)'} is known here, "
                f"expected one of {', '.join(VERSIONS)}"
            )
        if any(other.endpoint == endpoint for other in self.instances.get(info.name, ())):
            raise RegistrationError(f"endpoint {endpoint} is already registered for {info.name}")
        return Instance(
            driver=info.name,
            socket=path,
            endpoint=endpoint,
            version=version,
            health=next((each for each in HEALTH if each in info.supported_versions), ""),
            channel=grpc.aio.insecure_channel(f"unix:{endpoint}", options=OPTIONS),
        )

    async def _follow(self, instance: Instance) -> None:
        while True:
            state = instance.channel.get_state(try_to_connect=True)
            instance.connected = state is grpc.ChannelConnectivity.READY
            self._count(instance.driver)
            await instance.channel.wait_for_state_change(state)

    async def _drop(self, path: Path) -> None:
        """The socket is gone, or another is in its place."""
        _, instance = self._sockets.pop(path)
        if (attempt := self._attempts.pop(path, None)) is not None:
            await _end(attempt)
        if instance is not None:
            log.info("%s at %s is gone", instance.driver, instance.socket)
            await self._forget(instance)

    async def _forget(self, instance: Instance) -> None:
        if instance not in self.instances[instance.driver]:
            return
        self.instances[instance.driver].remove(instance)
        await _end(*instance.tasks)
        await instance.channel.close()
        self._count(instance.driver)

    def _count(self, driver: str) -> None:
        """Starts the clock when none of the driver's instances is connected, stops it when one is."""
        known = self.instances.get(driver, [])
        timer = self._wipes.get(driver)
        if any(each.connected for each in known):
            if timer is not None:
                timer.cancel()
                del self._wipes[driver]
        elif timer is None:
            self._wipes[driver] = asyncio.create_task(
                self._give_up(driver), name=f"slices of {driver}"
            )

    async def _give_up(self, driver: str) -> None:
        await asyncio.sleep(self._timing.wipe)
        log.warning(
            "%s has been away for %g s: its ResourceSlices are deleted", driver, self._timing.wipe
        )
        pause = 0.5
        while True:
            try:
                return await self._lost(driver)
            except errors.ApiError as error:
                log.warning("cannot delete the slices of %s, trying again: %s", driver, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 60.0)


async def _run(watch: Callable[[Instance], Awaitable[None]], instance: Instance) -> None:
    await watch(instance)


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _sockets(folder: Path) -> Iterator[tuple[Path, Mark]]:
    """Sockets below the folder with what tells them from another at the same place."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISSOCK(status.st_mode):
                yield Path(entry.path), (status.st_ino, status.st_mtime_ns)
            elif stat.S_ISDIR(status.st_mode):
                yield from _sockets(Path(entry.path))
