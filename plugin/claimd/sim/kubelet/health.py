"""The health of devices, as drivers stream it, and as a pod's status shows it.

A device without news for its timeout is Unknown. As in a real kubelet, the timeout is checked
when the health is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc.aio

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2

from .claim_info import DeviceUse
from .plugins import Plugin
from .timing import Timing

log = logging.getLogger(__name__)

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_WORDS = {api_pb2.HEALTHY: HEALTHY, api_pb2.UNHEALTHY: UNHEALTHY}
DEFAULT_TIMEOUT = 30.0  # seconds, for a device without its own timeout
MESSAGE_LIMIT = 1024  # bytes

Device = tuple[str, str, str]  # driver, pool, device


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The last health that a driver has sent for a device."""

    health: str
    message: str
    timeout: float
    heard_at: float  # in monotonic time


class HealthInfoCache:
    """The health of all devices of the node."""

    def __init__(self, timing: Timing, changed: Callable[[set[Device]], None]) -> None:
        """Takes `changed`, which gets the devices whose health or message has changed."""
        self._timing, self._changed = timing, changed
        self._devices: dict[Device, DeviceHealth] = {}

    async def watch(self, plugin: Plugin) -> None:
        """Reads a plugin's health stream until cancelled, or until the plugin turns out not to have
        one.

        A stream that ends is reopened; meanwhile the driver's devices are Unknown.
        """
        listen = plugin.channel.unary_stream(
            f"/{plugin.health}/NodeWatchResources",
            request_serializer=api_pb2.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=api_pb2.NodeWatchResourcesResponse.FromString,
        )
        try:
            while True:
                try:
                    async for response in listen(api_pb2.NodeWatchResourcesRequest()):
                        self._update(plugin.driver, response)
                except grpc.aio.AioRpcError as error:
                    code = error.code()
                    log.info("health of %s: %s: %s", plugin.driver, code.name, error.details())
                    if code is grpc.StatusCode.UNIMPLEMENTED:
                        return
                self._clear(plugin.driver)
                await asyncio.sleep(self._timing.health_retry)
        finally:
            self._clear(plugin.driver)

    def health_of(self, device: Device) -> tuple[str, str]:
        """Returns the device's health and message."""
        known = self._devices.get(device)
        if known is None or time.monotonic() - known.heard_at > known.timeout:
            return UNKNOWN, ""
        return known.health, known.message

    def resource_statuses(self, uses: Iterable[DeviceUse]) -> list[Document]:
        """Returns `allocatedResourcesStatus` of a container with these uses."""
        by_title: dict[str, dict[str, Document]] = {}
        for use in uses:
            if not use.title:
                continue
            device = (use.driver, use.prepared.pool, use.prepared.device)
            health, message = self.health_of(device)
            resource_id = use.prepared.cdi[0] if use.prepared.cdi else "/".join(device)
            row = {"resourceID": resource_id, "health": health}
            if message:
                row["message"] = message
            by_title.setdefault(use.title, {})[resource_id] = row
        return [
            {"name": title, "resources": list(rows.values())} for title, rows in by_title.items()
        ]

    def _update(self, driver: str, response: Any) -> None:
        changed = set()
        for entry in response.devices:
            device = (driver, entry.device.pool_name, entry.device.device_name)
            timeout = DEFAULT_TIMEOUT
            if entry.health_check_timeout_seconds > 0:
                timeout = float(entry.health_check_timeout_seconds)
            health = DeviceHealth(
                health=_WORDS.get(entry.health, UNKNOWN),
                message=_truncate(entry.message),
                timeout=timeout,
                heard_at=time.monotonic(),
            )
            if self.health_of(device) != (health.health, health.message):
                changed.add(device)
            self._devices[device] = health
        if changed:
            self._changed(changed)

    def _clear(self, driver: str) -> None:
        """Forgets the health of a driver's devices, even if another plugin of the driver has sent
        it.
        """
        gone = {device for device in self._devices if device[0] == driver}
        for device in gone:
            del self._devices[device]
        if gone:
            self._changed(gone)


def _truncate(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MESSAGE_LIMIT:
        return message
    return encoded[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."
