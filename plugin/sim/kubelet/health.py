"""How devices are, as drivers tell by their streams, and what a pod's status says of it.

A device of which nothing was heard for its time is unknown; that is looked at when it is read, as a
kubelet does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc.aio

from ...api.document import Document
from ...kubelet.wire.dra_health.v1 import api_pb2
from .claims import Use
from .plugins import Instance
from .timing import Timing

log = logging.getLogger(__name__)

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_WORDS = {api_pb2.HEALTHY: HEALTHY, api_pb2.UNHEALTHY: UNHEALTHY}
SILENCE = 30.0  # seconds, for a device that names none
LARGEST = 1024  # bytes of a message

Device = tuple[str, str, str]  # driver, pool, device


@dataclass(frozen=True, slots=True)
class State:
    health: str
    message: str
    timeout: float
    heard: float  # by the monotonic clock


class Health:
    def __init__(self, timing: Timing, changed: Callable[[set[Device]], None]) -> None:
        self._timing, self._changed = timing, changed
        self._states: dict[Device, State] = {}

    async def watch(self, instance: Instance) -> None:
        """Listens to an instance until cancelled, or until it says that it has no such service."""
        listen = instance.channel.unary_stream(
            f"/{instance.health}/NodeWatchResources",
            request_serializer=api_pb2.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=api_pb2.NodeWatchResourcesResponse.FromString,
        )
        try:
            while True:
                try:
                    async for response in listen(api_pb2.NodeWatchResourcesRequest()):
                        self._take(instance.driver, response)
                except grpc.aio.AioRpcError as error:
                    log.info(
                        "health of %s: %s: %s", instance.driver, error.code().name, error.details()
                    )
                    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                        return
                self._clear(instance.driver)
                await asyncio.sleep(self._timing.health_again)
        finally:
            self._clear(instance.driver)

    def of(self, device: Device) -> tuple[str, str]:
        state = self._states.get(device)
        if state is None or time.monotonic() - state.heard > state.timeout:
            return UNKNOWN, ""
        return state.health, state.message

    def shown(self, uses: Iterable[Use]) -> list[Document]:
        """allocatedResourcesStatus of a container."""
        found: dict[str, dict[str, Document]] = {}
        for use in uses:
            if not use.title:
                continue
            given = use.given
            health, message = self.of((use.driver, given.pool, given.device))
            id_ = given.cdi[0] if given.cdi else f"{use.driver}/{given.pool}/{given.device}"
            row = {"resourceID": id_, "health": health} | ({"message": message} if message else {})
            found.setdefault(use.title, {})[id_] = row
        return [{"name": title, "resources": list(rows.values())} for title, rows in found.items()]

    def _take(self, driver: str, response: Any) -> None:
        differ = set()
        for each in response.devices:
            device = (driver, each.device.pool_name, each.device.device_name)
            state = State(
                health=_WORDS.get(each.health, UNKNOWN),
                message=_cut(each.message),
                timeout=float(each.health_check_timeout_seconds)
                if each.health_check_timeout_seconds > 0
                else SILENCE,
                heard=time.monotonic(),
            )
            if self.of(device) != (state.health, state.message):
                differ.add(device)
            self._states[device] = state
        if differ:
            self._changed(differ)

    def _clear(self, driver: str) -> None:
        """What is known of a driver ends with the stream, also if another instance of it told the
        same.
        """
        gone = {device for device in self._states if device[0] == driver}
        for device in gone:
            del self._states[device]
        if gone:
            self._changed(gone)


def _cut(message: str) -> str:
    if len(message.encode()) <= LARGEST:
        return message
    return message.encode()[: LARGEST - 3].decode(errors="ignore") + "..."
