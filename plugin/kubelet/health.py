"""The stream by which the kubelet learns how our devices are: the whole list at once, on every
change, and again and again, since the kubelet forgets what it has not heard for a while. v1 and
v1alpha1 differ in their name alone.

What a device's health is is decided by the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc.aio

from .. import pacing
from ..report import health
from .wire.dra_health.v1 import api_pb2

SERVICES = (
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
)  # kubelets before 1.37 know the second alone
AGAIN = 10.0  # seconds between two reports
TIMEOUT = 30  # seconds without a report after which the kubelet shows Unknown

_STATES = {
    health.HEALTHY: api_pb2.HEALTHY,
    health.UNHEALTHY: api_pb2.UNHEALTHY,
    health.UNKNOWN: api_pb2.UNKNOWN,
}


class Streams:
    """All streams tell the same. Nothing is told before the first `set`, since an empty list would
    say something.
    """

    def __init__(self, pool: str, again: float = AGAIN) -> None:
        self._pool, self._again = pool, again
        self._rows: tuple[health.DeviceHealth, ...] | None = None
        self._wakes: set[asyncio.Event] = set()
        self._closed = False

    def set(self, rows: Iterable[health.DeviceHealth]) -> None:
        """From now on this is how the devices are."""
        fresh = tuple(rows)
        if fresh != self._rows:
            self._rows = fresh
            self.poke()

    def poke(self) -> None:
        """Says it again now: another instance that left may have taken what the kubelet knew with
        it.
        """
        for wake in self._wakes:
            wake.set()

    def close(self) -> None:
        """Ends the streams."""
        self._closed = True
        self.poke()

    async def watch(self, request: object, context: object) -> AsyncIterator[Any]:
        wake = asyncio.Event()
        self._wakes.add(wake)
        try:
            while not self._closed:
                wake.clear()
                if self._rows is not None:
                    yield self._response(self._rows)
                await pacing.wait(wake, self._again)
        finally:
            self._wakes.discard(wake)

    def _response(self, rows: Iterable[health.DeviceHealth]) -> Any:
        response, now = api_pb2.NodeWatchResourcesResponse(), int(time.time())
        for row in rows:
            response.devices.add(
                device=api_pb2.DeviceIdentifier(pool_name=self._pool, device_name=row.device),
                health=_STATES[row.state],
                last_updated_time=now,
                health_check_timeout_seconds=TIMEOUT,
                message=row.message,
            )
        return response


def add_to(server: grpc.aio.Server, streams: Streams) -> None:
    method = grpc.unary_stream_rpc_method_handler(
        streams.watch,
        request_deserializer=api_pb2.NodeWatchResourcesRequest.FromString,
        response_serializer=api_pb2.NodeWatchResourcesResponse.SerializeToString,
    )
    handlers = [
        grpc.method_handlers_generic_handler(name, {"NodeWatchResources": method})
        for name in SERVICES
    ]
    server.add_generic_rpc_handlers(handlers)
