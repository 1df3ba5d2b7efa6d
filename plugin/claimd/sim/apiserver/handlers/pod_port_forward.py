"""The handler of `kubectl port-forward`, which runs a SPDY session through a WebSocket.

The protocol is SPDY/3.1+portforward.k8s.io. A connection to a port is two streams with the same
request id: one for data and one for errors. The part of the cluster that runs the pods connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from functools import partial

from claimd.common import websocket
from claimd.common.http_server import HttpResponse

from ..storage.store import Store
from ..types.resource import PODS
from ..wire import spdy
from ..wire.resource_request import ResourceRequest
from . import pod_streams

PROTOCOLS = ("SPDY/3.1+portforward.k8s.io",)
_READ_SIZE = 1 << 15
_LAST_PORT = (1 << 16) - 1

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# Connects to a port. The parameters are namespace, pod and port. Raises OSError if no process
# listens or the pod does not run.
Connect = Callable[[str, str, int], Awaitable[Connection]]


def respond(store: Store, connect: Connect, request: ResourceRequest) -> HttpResponse:
    """Switches to a WebSocket, which carries connections until the client disconnects."""
    info = request.info
    store.get(PODS, info.namespace, info.name)
    forwarding = _Forwarding(partial(connect, info.namespace, info.name), info.name)
    return pod_streams.switch(request.http, PROTOCOLS, forwarding.attend)


class _Forwarding:
    """A session with all its connections."""

    def __init__(self, connect: Callable[[int], Awaitable[Connection]], pod: str) -> None:
        self._connect, self._pod = connect, pod
        # The streams whose connection lacks the other stream, by request id.
        self._halves: dict[str, spdy.Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def attend(self, socket: websocket.WebSocket) -> None:
        """Runs the session, and closes all its connections at the end."""
        try:
            await spdy.Session(socket, self._accept_stream).run()
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await socket.close()

    def _accept_stream(self, stream: spdy.Stream) -> None:
        """Starts a connection at its second stream. The two streams may come in any order."""
        request_id = stream.headers.get("requestid", "")
        other = self._halves.pop(request_id, None)
        if other is None:
            self._halves[request_id] = stream
            return

        data, errors = stream, other
        if stream.headers.get("streamtype") == "error":
            data, errors = other, stream
        task = asyncio.create_task(self._forward(data, errors))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, data: spdy.Stream, errors: spdy.Stream) -> None:
        """Copies data until either side ends the connection."""
        port = data.headers.get("port", "")
        with contextlib.suppress(OSError):
            try:
                reader, writer = await self._connect(_port(port))
            except (OSError, ValueError) as error:
                text = f"error forwarding port {port} to pod {self._pod}: {error}"
                await errors.write(text.encode())
            else:
                await _copy_both_ways(data, reader, writer)
            await errors.close()
            await data.close()


def _port(text: str) -> int:
    """Parses a port. Raises ValueError for any other text.

    The operating system's errors for such a text would differ from case to case.
    """
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) <= _LAST_PORT:
        raise ValueError(f"expected a port from 1 to {_LAST_PORT}")
    return int(text)


async def _copy_both_ways(
    data: spdy.Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    sending = asyncio.create_task(_send(data, writer))
    try:
        while part := await reader.read(_READ_SIZE):
            await data.write(part)
    finally:
        sending.cancel()
        writer.close()


async def _send(data: spdy.Stream, writer: asyncio.StreamWriter) -> None:
    """Sends the client's data, and its end. The answer may come after that end."""
    with contextlib.suppress(OSError):
        while (part := await data.read()) is not None:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
