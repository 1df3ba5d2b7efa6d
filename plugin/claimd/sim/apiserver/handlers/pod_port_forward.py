"""`kubectl port-forward`: connections to ports of a pod, each as two streams of a SPDY session that
goes through a WebSocket (SPDY/3.1+portforward.k8s.io).

A connection has a stream for its data and one for what goes wrong, of one request id. Who connects
is whoever runs the pods.
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
# Namespace, pod, port. OSError if nobody listens, or the pod does not run.
Connect = Callable[[str, str, int], Awaitable[Connection]]


def respond(store: Store, connect: Connect, request: ResourceRequest) -> HttpResponse:
    """Switches to a WebSocket, through which connections are made until the client hangs up."""
    info = request.info
    store.get(PODS, info.namespace, info.name)
    forwarding = _Forwarding(partial(connect, info.namespace, info.name), info.name)
    return pod_streams.switch(request.http, PROTOCOLS, forwarding.attend)


class _Forwarding:
    """One session, with all its connections."""

    def __init__(self, connect: Callable[[int], Awaitable[Connection]], pod: str) -> None:
        self._connect, self._pod = connect, pod
        self._halves: dict[str, spdy.Stream] = {}  # by request id, until the other one comes
        self._tasks: set[asyncio.Task[None]] = set()

    async def attend(self, socket: websocket.WebSocket) -> None:
        try:
            await spdy.Session(socket, self._opened).run()
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await socket.close()

    def _opened(self, stream: spdy.Stream) -> None:
        """A connection begins with its second stream, in whichever order they come."""
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
        """A client that is gone ends it; so does the end of what is behind the port."""
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
    """ValueError for what no port can be: the system has other errors for each sort of it."""
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
    """What the client sends; its end is passed on, as the answer may come after it."""
    with contextlib.suppress(OSError):
        while (part := await data.read()) is not None:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
