"""An HTTP/1.1 server with persistent connections, for the tools and the simulated API server.

It parses requests and writes responses; the caller answers them. A response is written at once, or
streams until it ends or the client disconnects.
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
MAX_BODY = 3 << 20  # bytes, the limit of a real API server
MAX_HEAD = 1 << 20
BACKLOG = 512  # all clients of a node may reconnect at once


class Send(Protocol):
    """The function with which a stream sends data."""

    async def __call__(self, data: bytes) -> None: ...

    async def pieces(self, pieces: Iterator[bytes]) -> None:
        """Sends much data piece by piece. Other connections have their turn in between."""


Stream = Callable[[Send], Awaitable[None]]
Upgrade = Callable[[websocket.WebSocket], Awaitable[None]]


@dataclass(frozen=True)
class HttpRequest:
    """One request with its body."""

    method: str
    path: str  # as it came, still percent-encoded
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]  # by the lower-case name
    body: bytes = b""

    def header(self, name: str) -> str:
        """Returns a header by its lower-case name; empty if it is missing."""
        return self.headers.get(name, "")

    def param(self, name: str) -> str:
        """Returns the first value of a query parameter; empty if it is missing."""
        return self.query.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        """Returns True if a query parameter is present and not false or 0, as Go's servers read flags."""
        values = self.query.get(name)
        return values is not None and values[0].lower() not in ("false", "0")


@dataclass(frozen=True)
class HttpResponse:
    """A response: with a body, in pieces, as a stream, or as an upgrade to a WebSocket.

    Pieces replace the body, and each is produced when its turn comes. A stream replaces the body,
    too: it is called to send it, part by part. With an upgrade the status is 101, and the connection
    is a WebSocket from then on.
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

    `respond` answers each request in one synchronous step and must not raise. All responses
    together produce one piece at a time, so that no client waits for longer than one piece takes.
    While more than `max_in_flight` requests are being read, `too_many_requests` answers instead of
    `respond`.
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
        """Starts to serve and returns the port, which the system chooses if it is 0.

        May be called again after `stop`.
        """
        self._stopped = False
        self._server = await asyncio.start_server(
            self._on_connection, host, port, limit=READ_SIZE, backlog=BACKLOG, ssl=tls
        )
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Ends every connection, even in the middle of a response."""
        self._stopped = True

        # A connection that asyncio is just accepting arrives within a few turns of the loop, sees
        # that we have stopped, and closes itself. If the server were closed first, asyncio would
        # forget this connection without closing it, and the client would wait forever.
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

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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
            # A later piece could not be produced. The client sees that the response breaks off.
            log.exception("a response ended")
        finally:
            self._connections.discard(task)

            # An orderly close would wait until the client has read everything.
            if task.cancelling():
                writer.transport.abort()
            else:
                writer.close()

    async def _converse(self, connection: _Connection) -> None:
        """Answers request after request, until one side ends the connection."""
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

            # Upgrades and streams end the connection.
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
            if not connection.start_next():
                return

    async def _response(self, connection: _Connection, head: h11.Request) -> HttpResponse:
        # The limit counts when the request begins. The body is read in any case, or the connection
        # could not be used again.
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
        # The values of repeated headers are joined.
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    parameters = parse_qs(query, keep_blank_values=True) if query else {}
    return HttpRequest(head.method.decode(), path, parameters, headers, body)


class _Connection:
    """One client's connection: h11's state machine, with the reading and writing of bytes."""

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
        """Returns the body; None if it is too large."""
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
        """Writes a response in pieces.

        An error in a piece ends the connection, since HTTP has no other way to report it.
        """
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
        """Writes the pieces. Other connections have their turn after each piece."""
        while True:
            async with self._turn:
                piece = next(pieces, None)
                if piece is None:
                    return
                self._writer.write(frame(piece))
                await asyncio.sleep(0)
            await self._writer.drain()

    async def upgrade(self, response: HttpResponse, upgrade: Upgrade) -> None:
        """Switches to a WebSocket, and returns when the WebSocket has ended."""
        head = h11.InformationalResponse(
            status_code=101, headers=list(response.headers), reason=b"Switching Protocols"
        )
        self._writer.write(self._http.send(head) or b"")
        received, _ = self._http.trailing_data
        await upgrade(websocket.WebSocket(self._reader, self._writer, received))

    def refuse(self, error: h11.RemoteProtocolError) -> None:
        """Answers a request that is not valid HTTP, if a response is still possible."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = f"400 Bad Request: {error}".encode()
            self.write(HttpResponse(error.error_status_hint, body, "text/plain; charset=utf-8"))

    async def drain(self) -> None:
        await self._writer.drain()

    def start_next(self) -> bool:
        """Prepares for the next request. Returns False if one side wants to close."""
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    async def stream(self, response: HttpResponse, stream: Stream) -> None:
        """Sends a stream until it ends, which completes the response, or the client disconnects.

        To notice a disconnect, the server reads from the client. So the connection cannot be used for
        another request, and the response announces that.
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
    """Frames a stream's data as chunks. h11's checks would cost too much for a watch."""

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
