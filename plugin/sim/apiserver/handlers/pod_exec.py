"""`kubectl exec`: a command in a container, its streams as channels of a WebSocket
(v5.channel.k8s.io and v4).

A message's first byte is its channel. Who runs commands is whoever runs the pods.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from ....api.document import Document
from ..storage.store import Store
from ..types.resource import PODS
from ..types.status_errors import StatusError, bad_request
from ..wire import websocket
from ..wire.http import HttpRequest, HttpResponse
from ..wire.request_info import RequestInfo
from ..wire.resource_request import ResourceRequest
from . import pod_logs

# In the order in which we like them; only the first has a message that closes a channel.
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255


class Executed(Protocol):
    """A command that runs."""

    def output(self) -> AsyncIterator[bytes]:
        """What it prints, until nobody can print any more."""
        ...

    def errors(self) -> AsyncIterator[bytes]: ...

    async def write(self, data: bytes) -> None:
        """To its standard input, if it has one."""
        ...

    def end_input(self) -> None: ...

    def resize(self, width: int, height: int) -> None: ...

    async def wait(self) -> int:
        """Its exit code, or 128 and a signal."""
        ...

    def kill(self) -> None: ...


# Namespace, pod, container, command, whether it reads, whether it has a terminal. None if the
# container does not run.
Execute = Callable[[str, str, str, Sequence[str], bool, bool], Awaitable[Executed | None]]


def is_asked(info: RequestInfo, http: HttpRequest) -> bool:
    """With streams, by whatever protocol."""
    return (info.resource, info.subresource) == ("pods", "exec") and bool(http.header("upgrade"))


def respond(store: Store, execute: Execute, request: ResourceRequest) -> HttpResponse:
    """Switches to a WebSocket, on which the command runs.

    What is wrong is told before the protocol is looked at: where a WebSocket is refused, kubectl
    asks again for SPDY, and shows what is said to that.
    """
    http, info = request.http, request.info
    pod = store.get(PODS, info.namespace, info.name)
    container = pod_logs.container_of(pod, request.param("container"))
    command = http.query.get("command")
    if not command:
        raise bad_request("you must specify at least one command for the container")
    if not _runs(pod, container):
        message = f'unable to upgrade connection: container not found ("{container}")'
        raise StatusError(500, "InternalError", message)

    protocol = http.header("upgrade")
    if protocol.lower() != "websocket":
        message = f"there is no {protocol} here: kubectl has WebSockets for it from 1.31 on"
        raise StatusError(503, "ServiceUnavailable", message)
    start = partial(
        execute,
        info.namespace,
        info.name,
        container,
        command,
        http.flag("stdin"),
        http.flag("tty"),
    )
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


def _runs(pod: Document, container: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(
        status.get("name") == container and "running" in (status.get("state") or {})
        for status in statuses
    )


async def _attend(
    start: Callable[[], Awaitable[Executed | None]], socket: websocket.WebSocket
) -> None:
    """From the command's start to its end, or to that of the client, which ends the command."""
    executed = await start()
    if executed is None:
        await _tell_end(socket, _failure("InternalError", "the container has ended"))
        return

    hung_up = asyncio.create_task(_receive(socket, executed))
    printing = asyncio.gather(
        _send(socket, _STDOUT, executed.output()), _send(socket, _STDERR, executed.errors())
    )
    tasks: list[asyncio.Future[Any]] = [hung_up, printing]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            await _tell_end(socket, _status(await executed.wait()))
    finally:
        executed.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await socket.close()


async def _receive(socket: websocket.WebSocket, executed: Executed) -> None:
    """What the client sends, until it hangs up."""
    while (message := await socket.receive()) is not None:
        if not message:
            continue
        channel, data = message[0], message[1:]
        if channel == _STDIN:
            # A command that reads no more is no mistake of the client's.
            with contextlib.suppress(OSError):
                await executed.write(data)
        elif channel == _CLOSE and data[:1] == bytes([_STDIN]):
            executed.end_input()
        elif channel == _RESIZE:
            with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError):
                size = msgspec.json.decode(data)
                executed.resize(int(size["Width"]), int(size["Height"]))


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
