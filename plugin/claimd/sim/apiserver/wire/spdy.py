"""SPDY/3.1, as far as kubectl speaks it through a WebSocket: streams that the client opens, each
with headers, data both ways and an end for each way.

What streams mean is not known here. There is no flow control: clients of Kubernetes have none.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from claimd.common.websocket import WebSocket

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_VERSION = 0x8003  # with the bit of a control frame
_FIN = 1  # flag of a frame: the last one of its sender on this stream
_LARGEST = 4 << 20  # bytes of a frame
_MOST_HEADERS = 1 << 16  # bytes of a stream's headers
_AHEAD = 64  # frames of a stream that are read before somebody takes them

# What header blocks are compressed with: names with their lengths, then words of all kinds.
_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_WORDS = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _with_length(text: str) -> bytes:
    return len(text).to_bytes(4, "big") + text.encode()


DICTIONARY = (
    b"".join(_with_length(name.replace("_", " ")) for name in _NAMES.split()) + _WORDS.encode()
)


class Stream:
    """One of a session, with the headers that it was opened with."""

    def __init__(self, session: Session, number: int, headers: dict[str, str]) -> None:
        self.headers = headers
        self._session, self._number = session, number
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._closed = self._has_ended = False

    async def read(self) -> bytes | None:
        """What came next; None, once, when there is no more."""
        return await self._received.get()

    async def write(self, data: bytes) -> None:
        """OSError if the client is gone. Nothing is sent after the end."""
        if not self._closed:
            await self._session.send_data(self._number, data)

    async def close(self) -> None:
        """No more is sent. May be repeated."""
        if not self._closed:
            self._closed = True
            await self._session.send_data(self._number, b"", flags=_FIN)

    @property
    def is_over(self) -> bool:
        """Whether both have said their last."""
        return self._closed and self._has_ended

    async def receive(self, data: bytes, *, is_last: bool) -> None:
        """Of the session: waits while too much has not been taken yet."""
        if data:
            await self._received.put(data)
        if is_last and not self._has_ended:
            self._has_ended = True
            await self._received.put(None)

    def abort(self) -> None:
        """Of the session: nothing comes any more, and nothing can be sent."""
        self._closed = self._has_ended = True
        while self._received.full():
            self._received.get_nowait()
        self._received.put_nowait(None)


class Session:
    """The server's side of a connection, from its first frame to its end."""

    def __init__(self, socket: WebSocket, opened: Callable[[Stream], None]) -> None:
        """`opened` is called with each stream that the client opens."""
        self._socket, self._opened = socket, opened
        self._buffer = bytearray()
        self._streams: dict[int, Stream] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def run(self) -> None:
        """Until the client hangs up, or sends what is no SPDY."""
        try:
            while await self._frame():
                pass
        except (EOFError, zlib.error, ValueError):
            return
        finally:
            for stream in self._streams.values():
                stream.abort()

    async def send_data(self, number: int, data: bytes, *, flags: int = 0) -> None:
        head = number.to_bytes(4, "big") + bytes([flags]) + len(data).to_bytes(3, "big")
        await self._socket.send(head + data)

    async def _frame(self) -> bool:
        """Reads one; False when it was the last."""
        head = await self._read(8)
        length = int.from_bytes(head[5:], "big")
        if length > _LARGEST:
            raise ValueError("a frame is too large")
        payload, is_last = await self._read(length), bool(head[4] & _FIN)

        first = int.from_bytes(head[:4], "big")
        if not head[0] & 0x80:
            stream = self._streams.get(first)
            if stream is not None:
                await stream.receive(payload, is_last=is_last)
            return True

        kind = first & 0xFFFF
        if kind == _SYN_STREAM:
            await self._open(payload, is_last=is_last)
        elif kind == _RST_STREAM:
            stream = self._streams.pop(int.from_bytes(payload[:4], "big"), None)
            if stream is not None:
                stream.abort()
        elif kind == _PING:
            await self._send_control(_PING, payload)
        return kind != _GOAWAY

    async def _open(self, payload: bytes, *, is_last: bool) -> None:
        for over in [number for number, each in self._streams.items() if each.is_over]:
            del self._streams[over]
        number = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        headers = _headers(self._inflate.decompress(payload[10:], _MOST_HEADERS))
        if self._inflate.unconsumed_tail:
            raise ValueError("the headers are too large")
        stream = self._streams[number] = Stream(self, number, headers)
        no_headers = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._send_control(_SYN_REPLY, number.to_bytes(4, "big") + no_headers)
        if is_last:
            await stream.receive(b"", is_last=True)
        self._opened(stream)

    async def _send_control(self, kind: int, payload: bytes) -> None:
        head = _VERSION.to_bytes(2, "big") + kind.to_bytes(2, "big")
        await self._socket.send(head + len(payload).to_bytes(4, "big") + payload)

    async def _read(self, count: int) -> bytes:
        """Frames do not keep to the messages that they come in."""
        while len(self._buffer) < count:
            message = await self._socket.receive()
            if message is None:
                raise EOFError
            self._buffer += message
        read = bytes(self._buffer[:count])
        del self._buffer[:count]
        return read


def _headers(block: bytes) -> dict[str, str]:
    """ValueError for what is none."""
    texts, at = [], 4
    count = int.from_bytes(block[:4], "big")
    while at < len(block):
        length = int.from_bytes(block[at : at + 4], "big")
        texts.append(block[at + 4 : at + 4 + length].decode())
        at += 4 + length
    if len(texts) != 2 * count or at != len(block):
        raise ValueError("the headers have another length than they say")
    return dict(zip(texts[::2], texts[1::2], strict=True))
