"""The stream that tells the kubelet the health of our devices.

Each response has the whole list. It is sent at the beginning, on every change, and as a heartbeat,
since the kubelet forgets the health of a device after a while. The versions v1 and v1alpha1 differ
only in their name. The caller decides whether a device is healthy.
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

# Kubelets before 1.37 know only v1alpha1.
SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")

# Seconds between two responses if nothing changes.
HEARTBEAT = 10.0

# Seconds without a response after which the kubelet shows a device as Unknown.
TIMEOUT = 30

_STATES = {
    health.HEALTHY: api_pb2.HEALTHY,
    health.UNHEALTHY: api_pb2.UNHEALTHY,
    health.UNKNOWN: api_pb2.UNKNOWN,
}


class Streams:
    """The health streams of all connections, which all send the same list.

    They send no response before the first `set`: an empty list would mean that the node has no
    devices.
    """

    def __init__(self, pool: str, heartbeat: float = HEARTBEAT) -> None:
        self._pool, self._heartbeat = pool, heartbeat
        self._devices: tuple[health.DeviceHealth, ...] | None = None
        self._wakes: set[asyncio.Event] = set()  # one for each stream
        self._closed = False

    def set(self, devices: Iterable[health.DeviceHealth]) -> None:
        """Sends the new state of the devices to all streams, if it has changed."""
        current = tuple(devices)
        if current != self._devices:
            self._devices = current
            self.resend()

    def resend(self) -> None:
        """Sends the list again although it has not changed.

        The kubelet may have dropped its state when another instance of the plugin ended.
        """
        for wake in self._wakes:
            wake.set()

    def close(self) -> None:
        """Ends all streams."""
        self._closed = True
        self.resend()

    async def watch(self, request: object, context: object) -> AsyncIterator[Any]:
        """Serves one stream until the kubelet ends it or `close` is called."""
        wake = asyncio.Event()
        self._wakes.add(wake)
        try:
            while not self._closed:
                # This comes first, so that a change during the send is not missed.
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
    """Adds the service to the server, under each of its names."""
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
