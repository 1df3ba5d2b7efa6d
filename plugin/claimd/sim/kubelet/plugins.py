"""The node's plugins: finds their sockets, registers them, and deletes the slices of lost ones.

A driver may have several plugins, and the kubelet calls the newest connected one. The calls are
in the module `calls`.
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

from claimd.common import pacing
from claimd.kubernetes.kube import errors
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc

from .timing import Timing

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"
DRA_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
# The first of these that a plugin offers is used; the plugin's order does not matter.
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_DRIVER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WIPE_BACKOFF, _WIPE_BACKOFF_LIMIT = 0.5, 60.0  # seconds
# Each channel connects separately. With shared connections, an earlier failure would delay a new
# channel.
CHANNEL_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]

SocketId = tuple[int, int]  # (inode, time): tells a socket from a later one at the same path


class RegistrationError(Exception):
    """The reason why a plugin is refused, which is sent to the plugin."""


@dataclass(slots=True, kw_only=True, eq=False)
class Plugin:
    """One registered socket of a driver."""

    driver: str
    socket: Path  # the socket in the registration folder
    endpoint: str  # the socket for calls
    version: str  # one of DRA_SERVICES
    health: str  # one of HEALTH_SERVICES, or empty
    channel: grpc.aio.Channel
    connected: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class PluginRegistry:
    """The plugins whose sockets are in a folder, while `run` runs."""

    def __init__(
        self,
        folder: Path,
        timing: Timing,
        *,
        wipe: Callable[[str], Awaitable[None]],
        watch_health: Callable[[Plugin], Awaitable[None]],
    ) -> None:
        """Creates a registry without plugins.

        `wipe` is awaited when a driver was away for the wiping delay, and repeated until it
        succeeds. `watch_health` runs as long as a plugin with a health service is registered.
        """
        self.plugins: dict[str, list[Plugin]] = {}  # by driver, newest last
        self._folder, self._timing = folder, timing
        self._wipe, self._watch_health = wipe, watch_health
        # The plugin is None until it is registered.
        self._sockets: dict[Path, tuple[SocketId, Plugin | None]] = {}
        self._registrations: dict[Path, asyncio.Task[None]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}  # by driver

    async def run(self) -> None:
        """Follows the folder until cancelled, then disconnects all plugins."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                await self._look()
                await asyncio.sleep(self._timing.registry_poll)
        finally:
            for path in list(self._sockets):
                await self._drop(path)
            await _cancel(*self._wipes.values())

    def get(self, driver: str) -> Plugin:
        """Returns the plugin to call. Raises LookupError if the driver has none."""
        plugins = self.plugins.get(driver)
        if not plugins:
            raise LookupError(f"DRA driver {driver} is not registered")
        for plugin in reversed(plugins):
            if plugin.connected:
                return plugin
        return plugins[-1]

    async def _look(self) -> None:
        """Drops sockets that are gone or replaced, then registers new ones."""
        present = dict(_find_sockets(self._folder))
        for path, (socket_id, _) in list(self._sockets.items()):
            if present.get(path) != socket_id:
                await self._drop(path)

        for path, socket_id in present.items():
            if path not in self._sockets:
                self._sockets[path] = (socket_id, None)
                self._registrations[path] = asyncio.create_task(
                    self._register(path, socket_id), name=f"register {path}"
                )

    # ------------------------------------------------------------------ registration

    async def _register(self, path: Path, socket_id: SocketId) -> None:
        """Registers the plugin, and retries until it succeeds. A refused plugin may answer
        otherwise later.
        """
        backoff = pacing.Backoff(
            self._timing.registration_backoff, self._timing.registration_backoff_limit
        )
        while True:
            try:
                channel = grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS)
                async with channel:
                    stub = api_pb2_grpc.RegistrationStub(channel)
                    await self._register_once(path, socket_id, stub)
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
            await asyncio.sleep(backoff.next_delay())

    async def _register_once(self, path: Path, socket_id: SocketId, stub: Any) -> None:
        info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=self._timing.get_info)
        try:
            plugin = self._plugin_of(path, info)
        except RegistrationError as error:
            refusal = api_pb2.RegistrationStatus(plugin_registered=False, error=str(error))
            await stub.NotifyRegistrationStatus(refusal, timeout=self._timing.notify)
            raise

        # The plugin is added before it is notified, because it may be called as soon as it knows.
        self._sockets[path] = (socket_id, plugin)
        self.plugins.setdefault(plugin.driver, []).append(plugin)
        following = self._follow_connection(plugin)
        plugin.tasks = [asyncio.create_task(following, name=f"connection to {plugin.driver}")]
        if plugin.health:
            watching = _run(self._watch_health, plugin)
            plugin.tasks.append(asyncio.create_task(watching, name=plugin.health))

        try:
            registered = api_pb2.RegistrationStatus(plugin_registered=True)
            await stub.NotifyRegistrationStatus(registered, timeout=self._timing.notify)
        except BaseException:
            if path in self._sockets:
                self._sockets[path] = (socket_id, None)
            await self._unregister(plugin)
            raise
        log.info("registered %s at %s, %s", plugin.driver, plugin.endpoint, plugin.version)

    def _plugin_of(self, path: Path, info: api_pb2.PluginInfo) -> Plugin:
        """Builds the plugin from its GetInfo answer. Raises RegistrationError if it is not
        acceptable.
        """
        endpoint = info.endpoint or str(path)
        if info.type != PLUGIN_TYPE:
            raise RegistrationError(
                f"plugins of type {info.type!r} are not known here, expected {PLUGIN_TYPE}"
            )
        if not _DRIVER_NAME.fullmatch(info.name) or len(info.name) > 63:
            raise RegistrationError(
                f"{info.name!r} is no driver name: expected a DNS name of at most 63 characters"
            )
        if not endpoint.startswith("/"):
            raise RegistrationError(f"the endpoint {endpoint!r} is no absolute path")

        # For DRA services the plugin's order counts, for health services ours.
        offered = list(info.supported_versions)
        version = next((service for service in offered if service in DRA_SERVICES), "")
        health = next((service for service in HEALTH_SERVICES if service in offered), "")
        if not version:
            raise RegistrationError(
                f"none of the services {', '.join(offered) or '(no service at all)'} "
                f"is known here, expected one of {', '.join(DRA_SERVICES)}"
            )
        if any(other.endpoint == endpoint for other in self.plugins.get(info.name, ())):
            raise RegistrationError(f"endpoint {endpoint} is already registered for {info.name}")
        return Plugin(
            driver=info.name,
            socket=path,
            endpoint=endpoint,
            version=version,
            health=health,
            channel=grpc.aio.insecure_channel(f"unix:{endpoint}", options=CHANNEL_OPTIONS),
        )

    async def _drop(self, path: Path) -> None:
        """Forgets a socket that is gone or replaced, and its plugin."""
        _, plugin = self._sockets.pop(path)
        registration = self._registrations.pop(path, None)
        if registration is not None:
            await _cancel(registration)
        if plugin is not None:
            log.info("%s at %s is gone", plugin.driver, plugin.socket)
            await self._unregister(plugin)

    async def _unregister(self, plugin: Plugin) -> None:
        if plugin not in self.plugins[plugin.driver]:
            return
        self.plugins[plugin.driver].remove(plugin)
        await _cancel(*plugin.tasks)
        await plugin.channel.close()
        self._update_wipe(plugin.driver)

    # ------------------------------------------------------------------ connections

    async def _follow_connection(self, plugin: Plugin) -> None:
        while True:
            state = plugin.channel.get_state(try_to_connect=True)
            plugin.connected = state is grpc.ChannelConnectivity.READY
            self._update_wipe(plugin.driver)
            await plugin.channel.wait_for_state_change(state)

    def _update_wipe(self, driver: str) -> None:
        """Starts the wiping delay if no plugin of the driver is connected. Otherwise stops the
        delay.
        """
        connected = any(plugin.connected for plugin in self.plugins.get(driver, ()))
        wipe = self._wipes.get(driver)
        if connected and wipe is not None:
            wipe.cancel()
            del self._wipes[driver]
        elif not connected and wipe is None:
            self._wipes[driver] = asyncio.create_task(
                self._wipe_later(driver), name=f"slices of {driver}"
            )

    async def _wipe_later(self, driver: str) -> None:
        delay = self._timing.wiping_delay
        await asyncio.sleep(delay)
        log.warning("%s has been away for %g s: its ResourceSlices are deleted", driver, delay)
        backoff = pacing.Backoff(_WIPE_BACKOFF, _WIPE_BACKOFF_LIMIT)
        while True:
            try:
                return await self._wipe(driver)
            except errors.ApiError as error:
                log.warning("cannot delete the slices of %s, trying again: %s", driver, error)
            await asyncio.sleep(backoff.next_delay())


async def _run(watch_health: Callable[[Plugin], Awaitable[None]], plugin: Plugin) -> None:
    """Wraps the awaitable in a coroutine, as a task requires."""
    await watch_health(plugin)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _find_sockets(folder: Path) -> Iterator[tuple[Path, SocketId]]:
    """Yields the sockets below the folder, except those in hidden folders."""
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
                yield from _find_sockets(Path(entry.path))
