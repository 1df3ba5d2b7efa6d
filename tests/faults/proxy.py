"""A hostile API server: a proxy before a sound one that spoils what passes, as it is told to at the
moment.

It reads requests and answers as far as HTTP goes, and counts what it sees. Which trouble is worth a
scenario, and what must hold under it, is decided in `hostile`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Which = Literal["all", "watches", "requests"]


@dataclass(frozen=True, kw_only=True)
class Spoil:
    """What happens to `which` of the requests. An answer of 200 without `status` is the sound
    server's own.
    """

    which: Which = "all"
    delay: float = 0.0  # before the answer
    status: int = 0  # answer with this, and do not ask the sound server
    headers: Mapping[str, str] = field(default_factory=dict)
    # What reaches the client of the answer before silence or, if `closes`, the end of the
    # connection.
    upto: Literal["", "nothing", "head", "half"] = ""
    closes: bool = False
    silent: bool = False  # watches that are open go silent, and stay so
    event: int = 0  # a watch begins with an ERROR event of this code, and ends


@dataclass(kw_only=True)
class Seen:
    at: float
    method: str
    target: str

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.target

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and not self.is_watch and "/resourceslices?" in self.target


class Proxy:
    """On a port of its own, which stays the same for as long as the proxy exists."""

    def __init__(self, upstream: int, tls: ssl.SSLContext | None = None) -> None:
        self.upstream, self.tls, self.port = upstream, tls, 0
        self.spoil = Spoil()
        self.seen: list[Seen] = []
        self.lists_at_once = 0  # the most that there were
        self._lists = 0
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self.tls, limit=4 << 20, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Nobody listens, and every connection is cut."""
        if self._server is not None:
            self._server.close()
            await self.cut()
            await self._server.wait_closed()
            self._server = None

    async def cut(self) -> None:
        tasks = list(self._open.items())
        for writer, task in tasks:
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)

    def busiest(self, since: float, until: float) -> int:
        """The most requests within any second of the time."""
        times = collections.deque[float]()
        most = 0
        for seen in self.seen:
            if since <= seen.at <= until:
                times.append(seen.at)
                while times[0] < seen.at - 1.0:
                    times.popleft()
                most = max(most, len(times))
        return most

    def count(self, since: float, until: float, of: Callable[[Seen], bool] = lambda _: True) -> int:
        return sum(of(seen) for seen in self.seen if since <= seen.at <= until)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = asyncio.ensure_future(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = head + await reader.readexactly(_length(head))
                method, target, _ = head.decode("latin-1").split(" ", 2)
                seen = Seen(at=time.monotonic(), method=method, target=target)
                self.seen.append(seen)
                with self._counted(seen):
                    await self._answer(seen, request, reader, writer)
        except (OSError, EOFError, _Over):
            pass
        finally:
            self._open.pop(writer, None)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    @contextlib.contextmanager
    def _counted(self, seen: Seen) -> Iterator[None]:
        self._lists += seen.is_list
        self.lists_at_once = max(self.lists_at_once, self._lists)
        try:
            yield
        finally:
            self._lists -= seen.is_list

    async def _answer(
        self, seen: Seen, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        spoil = (
            self.spoil
            if self.spoil.which in ("all", "watches" if seen.is_watch else "requests")
            else Spoil()
        )
        if spoil.delay:
            await _unless_gone(reader, spoil.delay)
        if spoil.event:
            event = {
                "type": "ERROR",
                "object": {"kind": "Status", "code": spoil.event, "reason": "Expired"},
            }
            answer = _framed(200, {}, json.dumps(event).encode() + b"\n")
        elif spoil.status:
            status = {
                "kind": "Status",
                "code": spoil.status,
                "reason": "Spoilt",
                "message": "by the hostile proxy",
            }
            answer = _framed(spoil.status, spoil.headers, json.dumps(status).encode())
        elif seen.is_watch:
            return await self._stream(spoil, request, reader, writer)
        else:
            async with self._asked(request) as sound:
                head = await sound.readuntil(b"\r\n\r\n")
                answer = head + await sound.readexactly(_length(head))
        head_ends = answer.index(b"\r\n\r\n") + 4
        ends = {
            "": len(answer),
            "nothing": 0,
            "head": head_ends,
            "half": (head_ends + len(answer)) // 2,
        }
        writer.write(answer[: ends[spoil.upto]])
        await writer.drain()
        if spoil.upto:
            await self._leave(spoil, reader)

    async def _stream(
        self,
        spoil: Spoil,
        request: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Passes a watch on, until somebody ends it."""
        async with self._asked(request) as sound:
            head = await sound.readuntil(b"\r\n\r\n")
            if spoil.upto != "nothing":
                writer.write(head)
            if spoil.upto:
                await self._leave(spoil, reader)
            gone = asyncio.ensure_future(reader.read())
            try:
                while not gone.done():
                    more = asyncio.ensure_future(sound.read(64 << 10))
                    await asyncio.wait({gone, more}, return_when=asyncio.FIRST_COMPLETED)
                    if not more.done() or not more.result():
                        more.cancel()
                        break
                    if self.spoil.silent:
                        await (
                            gone
                        )  # from now on, for ever: what forgot this connection does not remember it
                        break
                    writer.write(more.result())
                    await writer.drain()
            finally:
                gone.cancel()
        raise _Over

    async def _leave(self, spoil: Spoil, reader: asyncio.StreamReader) -> None:
        if not spoil.closes:
            await _unless_gone(reader, None)
        raise _Over

    @contextlib.asynccontextmanager
    async def _asked(self, request: bytes) -> AsyncIterator[asyncio.StreamReader]:
        sound, writer = await asyncio.open_connection("127.0.0.1", self.upstream, limit=4 << 20)
        try:
            writer.write(request)
            await writer.drain()
            yield sound
        finally:
            writer.transport.abort()


class _Over(Exception):
    """This connection has seen enough."""


async def _unless_gone(reader: asyncio.StreamReader, seconds: float | None) -> None:
    """Waits; the client that hangs up meanwhile is gone."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read(1)
    except TimeoutError:
        return
    raise _Over


def _framed(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Spoilt",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
