"""HTTP/1.1 for the API server: bytes to requests, answers to bytes, over connections that are kept.

What a request means is not known here. An answer is made at once, or streams until the asker is
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import h11

log = logging.getLogger(__name__)

CHUNK = 256 << 10
LARGEST = 3 << 20  # bytes of a body, as a real server takes them
LARGEST_HEAD = 1 << 20

Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class HttpRequest:
    method: str
    path: str  # as it came, still quoted
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]  # by the lower-case name
    body: bytes = b""

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    def param(self, name: str) -> str:
        """The first value of a query parameter; empty if it is not there."""
        return self.query.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        """A query parameter as Go's servers read a flag: there, and not false or 0."""
        values = self.query.get(name)
        return values is not None and values[0].lower() not in ("false", "0")


@dataclass(frozen=True)
class HttpResponse:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[Send], Awaitable[None]] | None = field(default=None)  # instead of a body


Respond = Callable[[HttpRequest], HttpResponse]


class Server:
    """`busy` answers in place of `respond` while more than `most` requests are being read."""

    def __init__(self, respond: Respond, busy: Respond, most: int) -> None:
        self._respond, self._busy, self._most = respond, busy, most
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._stopped = False

    async def start(self, host: str, port: int) -> int:
        """The port, which the system chooses for 0."""
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=CHUNK, backlog=512
        )
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        self._stopped = True
        if self._server:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(
            5
        ):  # turns of the loop, after which one that was being taken on has come and is dropped
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        if self._stopped:  # taken on in the moment of the stop, which has not seen it
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._converse(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the asker is gone, or we stop
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD)
        while True:
            try:
                event = await _event(http, reader, writer)
                if not isinstance(event, h11.Request):
                    return
                self._in_flight += 1
                try:
                    answer = await self._answer(http, event, reader, writer)
                finally:
                    self._in_flight -= 1
            except h11.RemoteProtocolError as error:
                if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    body = f"400 Bad HttpRequest: {error}".encode()
                    _write(
                        http,
                        writer,
                        HttpResponse(error.error_status_hint, body, "text/plain; charset=utf-8"),
                    )
                return
            if answer.stream:
                await _stream(http, reader, writer, answer)
                return
            _write(http, writer, answer, whole=event.method != b"HEAD")
            await writer.drain()
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _answer(
        self,
        http: h11.Connection,
        head: h11.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> HttpResponse:
        too_many = self._in_flight > self._most
        parts, size = [], 0
        while isinstance(event := await _event(http, reader, writer), h11.Data):
            size += len(event.data)
            if size > LARGEST:
                return HttpResponse(413, b"the request is too large", "text/plain; charset=utf-8")
            parts.append(bytes(event.data))
        path, _, query = head.target.decode("latin-1").partition("?")
        headers: dict[str, str] = {}
        for name, value in head.headers:  # of a name that comes twice, both values
            key, said = name.decode(), value.decode("latin-1")
            headers[key] = f"{headers[key]},{said}" if key in headers else said
        asked = HttpRequest(
            head.method.decode(),
            path,
            parse_qs(query, keep_blank_values=True) if query else {},
            headers,
            b"".join(parts),
        )
        return self._busy(asked) if too_many else self._respond(asked)


async def _event(
    http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Any:
    while (event := http.next_event()) is h11.NEED_DATA:
        if http.they_are_waiting_for_100_continue:
            writer.write(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        http.receive_data(await reader.read(CHUNK))
    return event


def _write(
    http: h11.Connection, writer: asyncio.StreamWriter, answer: HttpResponse, whole: bool = True
) -> None:
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        *answer.headers,
    ]
    parts = [
        _head(http, answer, headers),
        http.send(h11.Data(data=answer.body if whole else b"")),
        http.send(h11.EndOfMessage()),
    ]
    writer.write(b"".join(part for part in parts if part))


def _head(http: h11.Connection, answer: HttpResponse, headers: list[tuple[str, str]]) -> bytes:
    phrase = HTTPStatus(answer.status).phrase.encode()
    return http.send(h11.Response(status_code=answer.status, headers=headers, reason=phrase)) or b""


async def _stream(
    http: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: HttpResponse,
) -> None:
    """Until the stream ends by itself, which ends the answer well, or whoever asked hangs up."""
    assert answer.stream
    headers = [
        ("Content-Type", answer.content_type),
        ("Transfer-Encoding", "chunked"),
        *answer.headers,
    ]
    writer.write(_head(http, answer, headers))

    async def send(data: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()

    streaming = asyncio.ensure_future(answer.stream(send))
    gone = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({streaming, gone}, return_when=asyncio.FIRST_COMPLETED)
        if streaming.done() and not streaming.exception():
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    finally:
        for task in (streaming, gone):
            task.cancel()
        for found in await asyncio.gather(streaming, gone, return_exceptions=True):
            if isinstance(found, Exception) and not isinstance(found, OSError):
                log.error("a stream ended: %r", found)
        with contextlib.suppress(OSError):
            writer.close()
