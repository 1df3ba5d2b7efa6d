"""An HTTP/1.1 server with persistent connections, for the tools and the simulated API server.

It parses requests and writes responses; the caller answers them. A response is written at once, or
streams until it ends or the client disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import email.utils
import functools
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs

import h11

from . import websocket

log = logging.getLogger(__name__)

READ_SIZE = 256 << 10
MAX_BODY = 3 << 20  # bytes, the limit of a real API server
MAX_HEAD = 1 << 20
MAX_PARAMETERS = 1000
BACKLOG = 512  # all clients of a node may reconnect at once

# The bytes of unfinished requests that a server holds. Heads come from anybody. Bodies come only
# from clients whose request has been admitted. A request needs its share only beyond the first
# SMALL bytes, so small requests are served in every flood.
SMALL = 64 << 10
ALL_HEADS = 16 << 20
ALL_BODIES = 64 << 20
# Other connections have their turn after so many chunks of a body.
CHUNKS_AT_A_TIME = 100
# The time for a whole request, in seconds, and for the rest of one that was refused.
REQUEST_TIME = 60.0
REST_TIME = 1.0


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
# Returns a refusal of a request whose body has not arrived, or None if the body may come.
Refuse = Callable[[HttpRequest], HttpResponse | None]
Clock = Callable[[], float]


class _TooMuch(Exception):
    """The unfinished requests of all connections are too large together."""


class _Budget:
    """The bytes that all connections together may hold."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int) -> None:
        """Takes a share. Raises _TooMuch if the rest is too small."""
        if size > self.left:
            raise _TooMuch
        self.left -= size


@dataclass(frozen=True)
class _Limits:
    """What the connections of a server share."""

    heads: _Budget
    bodies: _Budget
    # One connection at a time produces a piece of its response.
    turn: asyncio.Lock


class Server:
    """Serves connections until it is stopped.

    `respond` answers each request in one synchronous step and must not raise. All responses
    together produce one piece at a time, so that no client waits for longer than one piece takes.
    While more than `max_in_flight` requests are being read, or if their bytes are too many,
    `too_many_requests` answers instead of `respond`. `refuse` decides before a body is read that
    has not arrived with its head. So a client without rights makes the server hold nothing.
    """

    def __init__(
        self,
        respond: Respond,
        too_many_requests: Respond,
        max_in_flight: int,
        refuse: Refuse = lambda _: None,
    ) -> None:
        self._respond, self._too_many_requests = respond, too_many_requests
        self._refuse = refuse
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._limits = _Limits(_Budget(ALL_HEADS), _Budget(ALL_BODIES), asyncio.Lock())
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
            connection = _Connection(reader, writer, self._limits)
            try:
                await self._converse(connection)
            finally:
                connection.share.release()
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
                head = await connection.read_head()
                if head is None:
                    return
                self._in_flight += 1
                try:
                    response = await self._response(connection, head)
                finally:
                    self._in_flight -= 1
            except h11.RemoteProtocolError as error:
                connection.refuse(error.error_status_hint, f"400 Bad Request: {error}")
                return
            except _TooMuch:
                connection.refuse(429, "429 Too Many Requests: try again in a second")
                return

            connection.share.release()

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
                await connection.discard_rest()
                return

    async def _response(self, connection: _Connection, head: h11.Request) -> HttpResponse:
        # The limit counts when the request begins.
        too_many = self._in_flight > self._max_in_flight
        request = _request(head)
        if request is None:
            return _plain(400, "the request has too many parameters")

        body = connection.received_body()
        if body is None:
            refusal = self._too_many_requests(request) if too_many else self._refuse(request)
            if refusal:
                return _closing(refusal)
            try:
                body = await connection.read_body()
            except _TooMuch:
                return _closing(self._too_many_requests(request))

        if len(body) > MAX_BODY:
            return _closing(_plain(413, "the request is too large"))
        request = dataclasses.replace(request, body=body)
        return self._too_many_requests(request) if too_many else self._respond(request)


def _plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, text.encode(), "text/plain; charset=utf-8")


def _closing(response: HttpResponse) -> HttpResponse:
    """Returns the response to a request whose body is not read, so the connection must end."""
    return dataclasses.replace(response, headers=(*response.headers, ("Connection", "close")))


def _request(head: h11.Request) -> HttpRequest | None:
    """Returns the request without its body; None if it has too many parameters."""
    path, _, query = head.target.decode("latin-1").partition("?")
    values: dict[str, list[str]] = {}
    for raw_name, raw_value in head.headers:
        values.setdefault(raw_name.decode(), []).append(raw_value.decode("latin-1"))
    # The values of repeated headers are joined.
    headers = {name: ",".join(repeated) for name, repeated in values.items()}

    if query.count("&") >= MAX_PARAMETERS:
        return None
    parameters = parse_qs(query, keep_blank_values=True) if query else {}
    return HttpRequest(head.method.decode(), path, parameters, headers)


class _Share:
    """The bytes of the budgets that one connection's unfinished request has."""

    def __init__(self, limits: _Limits, now: Clock) -> None:
        self._limits, self._now = limits, now
        self._budget = limits.heads
        self._size = self._taken = 0
        # The end of the time for the request. None before its first byte.
        self.deadline: float | None = None

    def take(self, size: int) -> None:
        """Counts bytes that have arrived. Raises _TooMuch if all requests are too large together."""
        if self.deadline is None:
            self.deadline = self._now() + REQUEST_TIME
        self._size += size
        beyond = max(self._size - SMALL, 0) - self._taken
        self._budget.take(beyond)
        self._taken += beyond

    def admit(self, size: int) -> None:
        """Counts this part, and all that arrives from now on, as the body of an admitted request.

        Raises _TooMuch as `take` does.
        """
        deadline = self.deadline
        self.release()
        self._budget, self.deadline = self._limits.bodies, deadline
        self.take(size)

    def release(self) -> None:
        """Gives everything back, because the request is over."""
        self._budget.left += self._taken
        self._budget = self._limits.heads
        self._size = self._taken = 0
        self.deadline = None


class _Connection:
    """One client's connection: h11's state machine, with the reading and writing of bytes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: _Limits
    ) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._reader, self._writer, self._turn = reader, writer, limits.turn
        self._body = bytearray()
        self.share = _Share(limits, asyncio.get_running_loop().time)

    async def read_head(self) -> h11.Request | None:
        """Returns the head of the next request, or None at the end of the connection."""
        self._body = bytearray()
        while (event := self._http.next_event()) is h11.NEED_DATA:
            await self._receive()
        return event if isinstance(event, h11.Request) else None

    def received_body(self) -> bytes | None:
        """Returns the body if all of it has arrived, or more than is allowed; otherwise None."""
        return None if self._parse_body() is not h11.EndOfMessage else bytes(self._body)

    async def read_body(self) -> bytes:
        """Reads the rest of an admitted body. Returns the body, or as much of it as is too much."""
        if self._http.they_are_waiting_for_100_continue:
            proceed = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._http.send(proceed) or b"")
        self.share.admit(len(self._body))
        while (state := self._parse_body()) is not h11.EndOfMessage:
            if state is h11.NEED_DATA:
                await self._receive()
            else:
                await asyncio.sleep(0)
        return bytes(self._body)

    def _parse_body(self) -> type:
        """Takes some of the body that has arrived.

        Returns EndOfMessage if the body is complete or too large, NEED_DATA if more has to arrive,
        and Data if there is more to take.
        """
        for _ in range(CHUNKS_AT_A_TIME):
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return h11.NEED_DATA
            if not isinstance(event, h11.Data):
                return h11.EndOfMessage
            self._body += event.data
            if len(self._body) > MAX_BODY:
                return h11.EndOfMessage
        return h11.Data

    async def _receive(self) -> None:
        """Waits for more bytes. The time of a request begins with its first byte."""
        if self.share.deadline is None:
            data = await self._reader.read(READ_SIZE)
        else:
            async with asyncio.timeout_at(self.share.deadline):
                data = await self._reader.read(READ_SIZE)
        self.share.take(len(data))
        self._http.receive_data(data)

    async def discard_rest(self) -> None:
        """Lets the client finish sending a refused request, because it would miss the response."""
        self._body = bytearray()
        if self._http.their_state is not h11.SEND_BODY:
            return
        await self.drain()
        # TLS cannot end one direction alone.
        if self._writer.can_write_eof():
            self._writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_TIME):
                while await self._reader.read(READ_SIZE):
                    pass

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

    def refuse(self, status: int, text: str) -> None:
        """Answers a request whose head could not be read, if that is still possible."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.write(_plain(status, text))

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
