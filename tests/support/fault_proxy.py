"""A proxy before an API server that spoils what passes, as a test orders it, and keeps what it saw.

It reads requests and answers as far as HTTP goes, and watches chunk by chunk. Which trouble is worth
a test, and what an API server answers when it is well, is not known here.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

Object = dict[str, Any]
Kind = Literal["answer", "silent", "hangup", "truncate"]

_CHUNKED = b"transfer-encoding: chunked"
_LIMIT = 4 << 20  # bytes of a head, or of one event of a watch


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    target: str  # as it came: path and query, still quoted
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    connection: int  # 1 is the first that was accepted
    at: float  # by the monotonic clock

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    @property
    def is_list(self) -> bool:
        """Returns whether the request lists all slices."""
        is_read = self.method == "GET" and not self.is_watch
        return is_read and self.path.endswith("/resourceslices")

    def has(self, part: str) -> bool:
        """Returns whether the path contains this part, or a parameter has this name, such as
        `watch`.
        """
        return part in self.path or part in self.query


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded(self) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} Status",
            "Content-Type: application/json",
            f"Content-Length: {len(self.body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def failure(code: int, reason: str, message: str, details: Object | None = None) -> Object:
    """Returns a Status, as an API server answers a request that it refuses."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details or {},
        "code": code,
    }


@dataclass(kw_only=True)
class Fault:
    """A fault that matching requests meet: all of them, or the next few."""

    # Which requests: by method, by a part of the path or a parameter's name, by being a watch.
    method: str = ""
    path: str = ""
    only: Literal["", "watches", "others"] = ""
    times: int | None = None  # None: until the fault is taken away

    delay: float = 0.0  # seconds before the answer
    status: int = 0  # answer with this in place of the server's; 0: the server's answer
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # None: a Status
    forwards: bool = True  # False: the server does not hear of the request
    # What reaches the client of the answer before silence or, if `closes`, the connection's end.
    passes: Literal["all", "nothing", "head", "half"] = "all"
    closes: bool = False
    error_event: int = 0  # a watch begins with an ERROR event of this code, and ends

    @property
    def is_silence(self) -> bool:
        """Returns whether clients that meet the fault get no answer and wait until they give up."""
        return self.passes != "all" and not self.closes

    def matches(self, request: Request) -> bool:
        if self.only and request.is_watch != (self.only == "watches"):
            return False
        return self.method in ("", request.method) and request.has(self.path)

    def answer(self) -> Answer | None:
        """Returns the answer that replaces the server's, if there is one."""
        if self.error_event:
            event = {
                "type": "ERROR",
                "object": failure(self.error_event, "Expired", "ordered by a test"),
            }
            return Answer(status=200, body=json.dumps(event).encode() + b"\n")
        if self.status:
            status = failure(self.status, "Ordered", "ordered by a test")
            body = json.dumps(status).encode() if self.body is None else self.body
            return Answer(status=self.status, headers=self.headers, body=body)
        return None if self.forwards else Answer(status=200)


_NONE = Fault()


class _HangUpError(Exception):
    """This connection has seen enough."""


@dataclass(eq=False)
class WatchStream:
    """A watch that is open, as its client sees it."""

    writer: asyncio.StreamWriter
    silent: bool = False  # nothing comes of it any more
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, event: Object) -> None:
        line = json.dumps(event).encode() + b"\n"
        self.writer.write(b"%x\r\n%b\r\n" % (len(line), line))

    def end(self) -> None:
        """Ends the stream without an error."""
        self.writer.write(b"0\r\n\r\n")
        self.ended.set()


class FaultProxy:
    """On a port of its own, which stays the same as long as the proxy exists.

    Public attributes are a test's switches. A subclass may answer in the server's place (`answer`)
    and change what passes (`forwarded`, `passed`).
    """

    def __init__(self, upstream: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """`upstream` is the port of the server on this machine."""
        self.upstream, self.tls, self.port = upstream, tls, 0
        self.requests: list[Request] = []
        self.connections = 0  # accepted so far
        self.faults: list[Fault] = []
        self.gate = asyncio.Event()  # cleared: requests are taken and wait
        self.gate.set()
        self.silent_watches = False  # a watch sends its head, then nothing, ever
        self.watches: set[WatchStream] = set()
        self.lists_at_once = 0  # the most lists of slices that there were
        self._lists = 0
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    # ------------------------------------------------------------------ what a subclass may change

    def answer(self, request: Request) -> Answer | None:
        """Returns an answer that replaces the server's; None: the server answers."""
        return None

    def forwarded(self, request: Request) -> Request:
        """Returns the request as the server gets it."""
        return request

    def passed(self, request: Request, body: bytes) -> bytes:
        """Returns the body of a whole answer as the client gets it."""
        return body

    # ------------------------------------------------------------------ orders

    async def start(self) -> None:
        """Listens; again on the same port after stop()."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self.tls, limit=_LIMIT, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening and cuts every connection: for clients the server is away."""
        if self._server is not None:
            # What the loop is just taking on would be forgotten open by asyncio if the server were
            # closed at once.
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            for _ in range(5):
                await asyncio.sleep(0)
            self._server.close()
            await self.cut()
            await self._server.wait_closed()
            self._server = None

    async def cut(self) -> None:
        """Cuts every open connection, idle or not."""
        connections = list(self._open.items())
        for writer, task in connections:
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*(task for _, task in connections), return_exceptions=True)
        for writer, _ in connections:
            # Its task may have been waiting for the same.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def fail(
        self,
        status: int = 500,
        *,
        times: int = 1,
        method: str = "",
        path: str = "",
        kind: Kind = "answer",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """The next requests that match get this.

        `kind` is an answer with the status, silence, or a connection that closes before (`hangup`)
        or within (`truncate`) the answer. Only of what is truncated the server has heard.
        """
        fault = Fault(method=method, path=path, times=times, forwards=kind == "truncate")
        match kind:
            case "answer":
                fault.status, fault.headers, fault.body = status, headers or {}, body
            case "silent":
                fault.passes = "nothing"
            case "hangup":
                fault.passes, fault.closes = "nothing", True
            case "truncate":
                fault.passes, fault.closes = "half", True
        self.faults.append(fault)

    def end_watches(self, error: Object | None = None) -> None:
        """Ends all open watches without an error, or after an ERROR event if a Status is given."""
        for stream in list(self.watches):
            if error is not None:
                stream.send({"type": "ERROR", "object": error})
            stream.end()

    def silence_watches(self) -> None:
        """Sends nothing more on the watches that are open now, whatever changes."""
        for stream in self.watches:
            stream.silent = True

    def send_event(self, event: Object) -> None:
        """Sends the event to every open watch."""
        for stream in self.watches:
            stream.send(event)

    # ------------------------------------------------------------------ what was seen

    def count(self, method: str = "", path: str = "") -> int:
        """Requests so far with this method and this part in the path or as a parameter's name."""
        return sum(
            method in ("", request.method) and request.has(path) for request in self.requests
        )

    def count_between(
        self, since: float, until: float, of: Callable[[Request], bool] = lambda _: True
    ) -> int:
        return sum(of(request) for request in self.requests if since <= request.at <= until)

    def busiest_second(self, since: float, until: float) -> int:
        """The most requests within any second of the time."""
        times = collections.deque[float]()
        most = 0
        for request in self.requests:
            if since <= request.at <= until:
                times.append(request.at)
                while times[0] < request.at - 1.0:
                    times.popleft()
                most = max(most, len(times))
        return most

    # ------------------------------------------------------------------ connections

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open[writer] = asyncio.ensure_future(self._serve(reader, writer, self.connections))

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        upstream = _Upstream(self.upstream)
        try:
            while True:
                request = await _read_request(reader, number)
                self.requests.append(request)
                with self._counted(request):
                    await self._answer(request, upstream, reader, writer)
        except (OSError, EOFError, _HangUpError):
            pass
        finally:
            upstream.close()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._open.pop(writer, None)

    @contextlib.contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        self._lists += request.is_list
        self.lists_at_once = max(self.lists_at_once, self._lists)
        try:
            yield
        finally:
            self._lists -= request.is_list

    async def _answer(
        self,
        request: Request,
        upstream: _Upstream,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        fault = self._fault(request)
        await self.gate.wait()
        if fault.delay:
            await _unless_gone(reader, fault.delay)

        own = fault.answer() or self.answer(request)
        if own is not None:
            answer = own.encoded()
        elif request.is_watch:
            return await self._stream(fault, self.forwarded(request), upstream, reader, writer)
        else:
            head, body = await upstream.exchange(self.forwarded(request))
            answer = _with_body(head, self.passed(request, body))

        writer.write(answer[: _passed_length(fault, answer)])
        await writer.drain()
        if fault.passes != "all":
            await _leave(fault, reader)

    def _fault(self, request: Request) -> Fault:
        """Returns the first fault that matches, and counts one use of it."""
        for fault in self.faults:
            if fault.matches(request):
                if fault.times is not None:
                    fault.times -= 1
                    if not fault.times:
                        self.faults.remove(fault)
                return fault
        return _NONE

    async def _stream(
        self,
        fault: Fault,
        request: Request,
        upstream: _Upstream,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Passes a watch on, until somebody ends it."""
        head = await upstream.send(request)
        if _CHUNKED not in head.lower():  # it was refused
            body = await upstream.read_body(head)
            writer.write(_with_body(head, body))
            return await writer.drain()

        if fault.passes != "nothing":
            writer.write(head)
        if fault.passes != "all":
            await _leave(fault, reader)

        stream = WatchStream(writer)
        self.watches.add(stream)
        gone = asyncio.ensure_future(reader.read())
        ended = asyncio.ensure_future(stream.ended.wait())
        passing = asyncio.ensure_future(self._pass_chunks(stream, upstream))
        try:
            await asyncio.wait({gone, ended, passing}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done() or passing.done():
                await writer.drain()
        finally:
            self.watches.discard(stream)
            for task in (gone, ended, passing):
                task.cancel()
            await asyncio.gather(gone, ended, passing, return_exceptions=True)
            upstream.close()
        # A client that goes on after a clean end takes another connection.
        raise _HangUpError

    async def _pass_chunks(self, stream: WatchStream, upstream: _Upstream) -> None:
        while True:
            chunk = await upstream.read_chunk()
            if stream.silent or self.silent_watches:
                await asyncio.Event().wait()
            if not chunk:
                return stream.end()
            stream.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await stream.writer.drain()


class _Upstream:
    """The connection to the server: opened when it is first needed, and kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self, request: Request) -> tuple[bytes, bytes]:
        """The head and the body of an answer that is no stream."""
        head = await self.send(request)
        return head, await self.read_body(head)

    async def send(self, request: Request) -> bytes:
        """The head of the answer."""
        if self._reader is None or self._reader.at_eof():
            self.close()
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, limit=_LIMIT
            )
        assert self._writer is not None
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        await self._writer.drain()
        return await self._reader.readuntil(b"\r\n\r\n")

    async def read_body(self, head: bytes) -> bytes:
        assert self._reader is not None
        if _CHUNKED not in head.lower():
            return await self._reader.readexactly(_content_length(head))
        # A large list comes so, too.
        chunks = []
        while chunk := await self.read_chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def read_chunk(self) -> bytes:
        """Reads the next chunk of a stream; returns no bytes at its end."""
        assert self._reader is not None
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        chunk = await self._reader.readexactly(size + 2)
        return chunk[:-2]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def _read_request(reader: asyncio.StreamReader, number: int) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    method, target, _ = first.split(" ")
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(
        method=method,
        target=target,
        headers=headers,
        body=body,
        connection=number,
        at=time.monotonic(),
    )


async def _leave(fault: Fault, reader: asyncio.StreamReader) -> None:
    """Closes the connection, or is silent until the client does."""
    if not fault.closes:
        await _unless_gone(reader, None)
    raise _HangUpError


async def _unless_gone(reader: asyncio.StreamReader, seconds: float | None) -> None:
    """Waits these seconds; a client that hangs up ends the wait."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)
    except TimeoutError:
        return
    raise _HangUpError


def _passed_length(fault: Fault, answer: bytes) -> int:
    head_length = answer.index(b"\r\n\r\n") + 4
    match fault.passes:
        case "nothing":
            return 0
        case "head":
            return head_length
        case "half":
            return (head_length + len(answer)) // 2
    return len(answer)


def _with_body(head: bytes, body: bytes) -> bytes:
    """Returns the answer with another body, whose length may differ."""
    lines = []
    for line in head.rstrip(b"\r\n").split(b"\r\n"):
        name, _, _ = line.partition(b":")
        if name.lower() in (b"content-length", b"transfer-encoding"):
            line = b"Content-Length: %d" % len(body)  # noqa: PLW2901
        lines.append(line)
    return b"\r\n".join([*lines, b"", b""]) + body


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def with_headers(request: Request, **headers: str) -> Request:
    """The request with other headers; names with underscores."""
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    return dataclasses.replace(request, headers={**request.headers, **changed})


def with_body(request: Request, body: bytes) -> Request:
    changed = dataclasses.replace(request, body=body)
    return with_headers(changed, content_length=str(len(body)))
