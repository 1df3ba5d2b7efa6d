"""The streams of a command as channels of a WebSocket, for `kubectl exec`.

The protocols are v5.channel.k8s.io and v4. The first byte of a message is its channel.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Protocol

import msgspec

from claimd.common import websocket
from claimd.common.http_server import HttpRequest, HttpResponse
from claimd.kubernetes.api.document import Document

from ..types.status_errors import StatusError, bad_request

# In the order of preference. Only the first has a message that closes a channel.
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255


class Streams(Protocol):
    """The streams of a command that runs."""

    def output(self) -> AsyncIterator[bytes]:
        """Yields the standard output until all its writers are gone."""
        ...

    def errors(self) -> AsyncIterator[bytes]: ...

    async def write(self, data: bytes) -> None:
        """Writes to the standard input, if the command has one."""
        ...

    def end_input(self) -> None: ...

    def resize(self, width: int, height: int) -> None: ...

    async def wait(self) -> int:
        """Returns the exit code, or 128 plus the signal."""
        ...

    def kill(self) -> None:
        """Ends the command, because its client is gone."""
        ...


class _TerminalSize(msgspec.Struct, rename="pascal"):
    """The size of a terminal, within the kernel's limits."""

    width: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
    height: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]


def channels(http: HttpRequest, start: Callable[[], Awaitable[Streams | None]]) -> HttpResponse:
    """Switches to the channels of a WebSocket, and then calls `start`.

    `start` returns the streams, or None if the container has ended. All checks of a request must
    come before this. If a WebSocket is refused, kubectl tries SPDY and shows the answer to that.
    """
    protocol = http.header("upgrade")
    if protocol.lower() != "websocket":
        message = f"there is no {protocol} here: kubectl has WebSockets for it from 1.31 on"
        raise StatusError(503, "ServiceUnavailable", message)
    headers = (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", websocket.accept(http.header("sec-websocket-key"))),
        ("Sec-WebSocket-Protocol", _protocol(http)),
    )
    return HttpResponse(101, headers=headers, upgrade=partial(_attend, start))


def _protocol(http: HttpRequest) -> str:
    offered = [word.strip() for word in http.header("sec-websocket-protocol").split(",")]
    for protocol in PROTOCOLS:
        if protocol in offered:
            return protocol
    raise bad_request(f"no protocol of {offered} is known; there are {', '.join(PROTOCOLS)}")


async def _attend(
    start: Callable[[], Awaitable[Streams | None]], socket: websocket.WebSocket
) -> None:
    """Runs a command until it ends, or until the client disconnects, which ends the command."""
    streams = await start()
    if streams is None:
        await _tell_end(socket, _failure("InternalError", "the container has ended"))
        return

    hung_up = asyncio.create_task(_receive(socket, streams))
    printing = asyncio.gather(
        _send(socket, _STDOUT, streams.output()), _send(socket, _STDERR, streams.errors())
    )
    tasks: list[asyncio.Future[Any]] = [hung_up, printing]
    try:
        # The command has ended when all writers of its output are gone. Only then is its exit code
        # sent.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            await _tell_end(socket, _status(await streams.wait()))
    finally:
        streams.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await socket.close()


async def _receive(socket: websocket.WebSocket, streams: Streams) -> None:
    """Handles the client's messages until it disconnects."""
    while (message := await socket.receive()) is not None:
        if not message:
            continue
        channel, data = message[0], message[1:]
        if channel == _STDIN:
            # If a command does not read its input, that is no error of the client.
            with contextlib.suppress(OSError):
                await streams.write(data)
        elif channel == _CLOSE and data[:1] == bytes([_STDIN]):
            streams.end_input()
        elif channel == _RESIZE:
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                size = msgspec.json.decode(data, type=_TerminalSize)
                streams.resize(size.width, size.height)


async def _send(socket: websocket.WebSocket, channel: int, parts: AsyncIterator[bytes]) -> None:
    async for part in parts:
        await socket.send(bytes([channel]) + part)


async def _tell_end(socket: websocket.WebSocket, status: Document) -> None:
    await socket.send(bytes([_STATUS]) + msgspec.json.encode(status))


def _status(code: int) -> Document:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    words = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return _failure("NonZeroExitCode", words) | {"details": {"causes": causes}}


def _failure(reason: str, message: str) -> Document:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason}
