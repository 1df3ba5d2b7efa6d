"""The stream by which the kubelet learns how our devices are.

Each response has the whole list: at once, on every change, and as a heartbeat, since the kubelet
forgets what it has not heard for a while. v1 and v1alpha1 differ in their name alone. How a device
is, is decided by the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc.aio

from claimd.common import pacing
from claimd.kubernetes.kubelet_api.dra_health.v1 import api_pb2

from ..report import health

# Kubelets before 1.37 know the second alone.
SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
# The heartbeat: seconds between two responses if nothing changes.
HEARTBEAT = 10.0
# Seconds without a response after which the kubelet shows Unknown.
TIMEOUT = 30

_STATES = {
    health.HEALTHY: api_pb2.HEALTHY,
    health.UNHEALTHY: api_pb2.UNHEALTHY,
    health.UNKNOWN: api_pb2.UNKNOWN,
}


class Streams:
    """All streams send the same.

    Nothing is sent before the first `set`, since an empty list would say that there are no devices.
    """

    def __init__(self, pool: str, heartbeat: float = HEARTBEAT) -> None:
        self._pool, self._heartbeat = pool, heartbeat
        self._devices: tuple[health.DeviceHealth, ...] | None = None
        self._wakes: set[asyncio.Event] = set()  # one a stream
        self._closed = False

    def set(self, devices: Iterable[health.DeviceHealth]) -> None:
        """From now on this is how the devices are."""
        current = tuple(devices)
        if current != self._devices:
            self._devices = current
            self.resend()

    def resend(self) -> None:
        """Sends the list now, though nothing changed.

        Another instance that left may have taken what the kubelet knew with it.
        """
        for wake in self._wakes:
            wake.set()

    def close(self) -> None:
        """Ends the streams."""
        self._closed = True
        self.resend()

    async def watch(self, request: object, context: object) -> AsyncIterator[Any]:
        """One stream, for as long as the kubelet listens."""
        wake = asyncio.Event()
        self._wakes.add(wake)
        try:
            while not self._closed:
                # Cleared first, so that a change while the kubelet reads is not missed.
                wake.clear()
                if self._devices is not None:
                    yield self._response(self._devices)
                await pacing.wait(wake, self._heartbeat)
        finally:
            self._wakes.discard(wake)

    def _response(self, devices: Iterable[health.DeviceHealth]) -> Any:
        response = api_pb2.NodeWatchResourcesResponse()
        now = int(time.time())
        for device in devices:
            response.devices.add(
                device=api_pb2.DeviceIdentifier(pool_name=self._pool, device_name=device.device),
                health=_STATES[device.state],
                last_updated_time=now,
                health_check_timeout_seconds=TIMEOUT,
                message=device.message,
            )
        return response


def add_to(server: grpc.aio.Server, streams: Streams) -> None:
    method = grpc.unary_stream_rpc_method_handler(
        streams.watch,
        request_deserializer=api_pb2.NodeWatchResourcesRequest.FromString,
        response_serializer=api_pb2.NodeWatchResourcesResponse.SerializeToString,
    )
    handlers = []
    for name in SERVICES:
        methods = {"NodeWatchResources": method}
        handlers.append(grpc.method_handlers_generic_handler(name, methods))
    server.add_generic_rpc_handlers(handlers)
