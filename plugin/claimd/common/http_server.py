"""HTTP/1.1 for the API server: bytes to requests, responses to bytes, connections that are kept.

What a request means is not known here. A response is written at once, or streams until it ends or
the client hangs up.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs

import h11

from . import websocket

log = logging.getLogger(__name__)

READ_SIZE = 256 << 10
MAX_BODY = 3 << 20  # bytes, as a real server takes them
MAX_HEAD = 1 << 20
BACKLOG = 512  # a node's worth of clients that all come back at once


class Send(Protocol):
    """What a stream sends by."""

    async def __call__(self, data: bytes) -> None: ...

    async def pieces(self, pieces: Iterator[bytes]) -> None:
        """Much, made piece by piece: everybody else goes on in between."""


Stream = Callable[[Send], Awaitable[None]]
Upgrade = Callable[[websocket.WebSocket], Awaitable[None]]


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
    """With pieces there is no body: they are it, and each is made when its turn has come.

    With a stream there is none either: the stream is asked to send one, part by part. With an
    upgrade the status is 101, and the connection is a WebSocket from then on.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    pieces: Iterator[bytes] | None = None
    stream: Stream | None = None
    upgrade: Upgrade | None = None


Respond = Callable[[HttpRequest], HttpResponse]


class Server:
    """Serves connections until it is stopped.

    `respond` answers each request in one synchronous step and does not raise. What it answers in
    pieces is written one piece at a time, whoever they are of: so nobody waits for longer than one
    takes to make. While more than
    `max_in_flight` requests are being read, `too_many_requests` answers in its place.
    """

    def __init__(self, respond: Respond, too_many_requests: Respond, max_in_flight: int) -> None:
        self._respond, self._too_many_requests = respond, too_many_requests
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._turn = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._stopped = False

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """The port, which the system chooses for 0. After `stop` it serves again."""
        self._stopped = False
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=READ_SIZE, backlog=BACKLOG, ssl=tls
        )
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Ends every connection, also in the middle of a response."""
        self._stopped = True

        # A connection that the loop is just taking on comes within a few of its turns, sees that we
        # have stopped, and drops itself. Were the server closed before that, asyncio would forget
        # such a connection without closing it, and its client would wait for ever.
        loop = asyncio.get_running_loop()
        listening = self._server.sockets if self._server else ()
        for socket in listening:
            loop.remove_reader(socket.fileno())
        for _ in range(5):
            await asyncio.sleep(0)
        if self._server:
            self._server.close()

        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        if self._stopped:
            writer.transport.abort()
            return

        self._connections.add(task)
        try:
            await self._converse(_Connection(reader, writer, self._turn))
        except (OSError, asyncio.CancelledError):
            pass  # the client is gone, or we stop
        except Exception:
            # Of what is made piece by piece the rest cannot be made: its reader sees that it ends.
            log.exception("a response ended")
        finally:
            self._connections.discard(task)
            # What was not sent yet would keep a connection that is closed in order.
            if task.cancelling():
                writer.transport.abort()
            else:
                writer.close()

    async def _converse(self, connection: _Connection) -> None:
        """Request after request, until one of the two wants to end it."""
        while True:
            try:
                head = await connection.next_event()
                if not isinstance(head, h11.Request):
                    return
                self._in_flight += 1
                try:
                    response = await self._response(connection, head)
                finally:
                    self._in_flight -= 1
            except h11.RemoteProtocolError as error:
                connection.refuse(error)
                return

            if response.upgrade:
                await connection.upgrade(response, response.upgrade)
                return
            if response.stream:
                await connection.stream(response, response.stream)
                return
            with_body = head.method != b"HEAD"
            if response.pieces is not None:
                await connection.write_pieces(response, response.pieces if with_body else iter(()))
            else:
                connection.write(response, with_body)
                await connection.drain()
            if not connection.reused():
                return

    async def _response(self, connection: _Connection, head: h11.Request) -> HttpResponse:
        # Whether there is room is decided when the request begins; its body is read in any case,
        # or the connection could not be used again.
        too_many = self._in_flight > self._max_in_flight
        body = await connection.read_body()
        if body is None:
            return HttpResponse(413, b"the request is too large", "text/plain; charset=utf-8")
        request = _request(head, body)
        return self._too_many_requests(request) if too_many else self._respond(request)


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    path, _, query = head.target.decode("latin-1").partition("?")
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        # Of a header that comes twice, both values count.
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    parameters = parse_qs(query, keep_blank_values=True) if query else {}
    return HttpRequest(head.method.decode(), path, parameters, headers, body)


class _Connection:
    """One client's connection: h11's states, with the bytes read and written."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turn: asyncio.Lock
    ) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._reader, self._writer, self._turn = reader, writer, turn

    async def next_event(self) -> Any:
        http = self._http
        while (event := http.next_event()) is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                proceed = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(http.send(proceed) or b"")
            http.receive_data(await self._reader.read(READ_SIZE))
        return event

    async def read_body(self) -> bytes | None:
        """None for one that is too large."""
        parts, size = [], 0
        while isinstance(event := await self.next_event(), h11.Data):
            size += len(event.data)
            if size > MAX_BODY:
                return None
            parts.append(bytes(event.data))
        return b"".join(parts)

    def write(self, response: HttpResponse, with_body: bool = True) -> None:
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            *response.headers,
        ]
        head = self._head(response, headers)
        body = self._http.send(h11.Data(data=response.body if with_body else b"")) or b""
        end = self._http.send(h11.EndOfMessage()) or b""
        self._writer.write(head + body + end)

    async def write_pieces(self, response: HttpResponse, pieces: Iterator[bytes]) -> None:
        """An error while a piece is made ends the connection, as there is no other way to tell."""
        headers = [
            ("Content-Type", response.content_type),
            ("Transfer-Encoding", "chunked"),
            *response.headers,
        ]
        self._writer.write(self._head(response, headers))
        await self._in_turn(pieces, lambda piece: self._http.send(h11.Data(data=piece)) or b"")
        self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()

    async def _in_turn(self, pieces: Iterator[bytes], frame: Callable[[bytes], bytes]) -> None:
        """Writes them, and whoever has something small to say is heard after each."""
        while True:
            async with self._turn:
                piece = next(pieces, None)
                if piece is None:
                    return
                self._writer.write(frame(piece))
                await asyncio.sleep(0)
            await self._writer.drain()

    async def upgrade(self, response: HttpResponse, upgrade: Upgrade) -> None:
        """Until the WebSocket has ended."""
        head = h11.InformationalResponse(
            status_code=101, headers=list(response.headers), reason=b"Switching Protocols"
        )
        self._writer.write(self._http.send(head) or b"")
        received, _ = self._http.trailing_data
        await upgrade(websocket.WebSocket(self._reader, self._writer, received))

    def refuse(self, error: h11.RemoteProtocolError) -> None:
        """What is no HTTP is told so, if there still is a response to give."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = f"400 Bad Request: {error}".encode()
            self.write(HttpResponse(error.error_status_hint, body, "text/plain; charset=utf-8"))

    async def drain(self) -> None:
        await self._writer.drain()

    def reused(self) -> bool:
        """Makes ready for the next request, if both sides are done and neither has said close."""
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    async def stream(self, response: HttpResponse, stream: Stream) -> None:
        """Until the stream ends by itself, which ends the response well, or the client hangs up.

        Whether the client hangs up is seen by reading from it, so that the connection is of no use
        for another request after that: the client is told so beforehand.
        """
        headers = [
            ("Content-Type", response.content_type),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            *response.headers,
        ]
        self._writer.write(self._head(response, headers))

        streaming = asyncio.ensure_future(stream(_Chunks(self._writer, self._in_turn)))
        hung_up = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait({streaming, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            if streaming.done() and not streaming.exception():
                self._writer.write(b"0\r\n\r\n")
                await self._writer.drain()
        finally:
            for task in (streaming, hung_up):
                task.cancel()
            for outcome in await asyncio.gather(streaming, hung_up, return_exceptions=True):
                if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                    log.error("a stream ended: %r", outcome)
            with contextlib.suppress(OSError):
                self._writer.close()

    def _head(self, response: HttpResponse, headers: list[tuple[str, str]]) -> bytes:
        headers.append(("Date", _date(int(time.time()))))
        reason = HTTPStatus(response.status).phrase.encode()
        head = h11.Response(status_code=response.status, headers=headers, reason=reason)
        return self._http.send(head) or b""


class _Chunks:
    """What a stream sends, framed here: a watch of many events would pay for h11's checks."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        in_turn: Callable[[Iterator[bytes], Callable[[bytes], bytes]], Awaitable[None]],
    ) -> None:
        self._writer, self._in_turn = writer, in_turn

    async def __call__(self, data: bytes) -> None:
        self._writer.write(_chunk(data))
        await self._writer.drain()

    async def pieces(self, pieces: Iterator[bytes]) -> None:
        await self._in_turn(pieces, _chunk)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@functools.lru_cache(maxsize=1)
def _date(now: int) -> str:
    return email.utils.formatdate(now, usegmt=True)
