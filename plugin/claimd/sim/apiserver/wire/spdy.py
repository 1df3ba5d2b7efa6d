"""The server side of SPDY/3.1, as far as kubectl uses it through a WebSocket.

The client opens streams. Each has headers, data in both directions, and an end of each direction.
This module knows nothing about the meaning of streams. It has no flow control, because Kubernetes'
clients have none.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from claimd.common.websocket import WebSocket

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
# The version, with the bit of a control frame.
_VERSION = 0x8003
# The flag of a sender's last frame on a stream.
_FIN = 1
# The most bytes of a frame.
_LARGEST = 4 << 20
# The most bytes of a stream's headers.
_MOST_HEADERS = 1 << 16
# The most frames of a stream that wait for their reader.
_AHEAD = 64

# The compression dictionary of headers: names with their lengths, then other words.
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
    """A stream of a session, with the headers that the client opened it with."""

    def __init__(self, session: Session, number: int, headers: dict[str, str]) -> None:
        self.headers = headers
        self._session, self._number = session, number
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._closed = self._has_ended = False

    async def read(self) -> bytes | None:
        """Returns the next data. Returns None once, at the end."""
        return await self._received.get()

    async def write(self, data: bytes) -> None:
        """Sends data. Raises OSError if the client is gone. Does nothing after `close`."""
        if not self._closed:
            await self._session.send_data(self._number, data)

    async def close(self) -> None:
        """Ends the server's direction. May be repeated."""
        if not self._closed:
            self._closed = True
            await self._session.send_data(self._number, b"", flags=_FIN)

    @property
    def is_over(self) -> bool:
        """True once both directions have ended."""
        return self._closed and self._has_ended

    async def receive(self, data: bytes, *, is_last: bool) -> None:
        """Queues data for the reader.

        Waits while the queue is full. Only the session calls this.
        """
        if data:
            await self._received.put(data)
        if is_last and not self._has_ended:
            self._has_ended = True
            await self._received.put(None)

    def abort(self) -> None:
        """Ends both directions, because the session is over. Only the session calls this."""
        self._closed = self._has_ended = True
        # The reader may wait for this None, so it must fit into the queue.
        while self._received.full():
            self._received.get_nowait()
        self._received.put_nowait(None)


class Session:
    """The server's side of a connection, from its first frame to its end."""

    def __init__(self, socket: WebSocket, opened: Callable[[Stream], None]) -> None:
        """Calls `opened` with each stream that the client opens."""
        self._socket, self._opened = socket, opened
        self._buffer = bytearray()
        self._streams: dict[int, Stream] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def run(self) -> None:
        """Reads frames until the client disconnects or sends bytes that are not SPDY frames."""
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
        """Reads a frame. Returns False if it was the last one."""
        head = await self._read_exactly(8)
        length = int.from_bytes(head[5:], "big")
        if length > _LARGEST:
            raise ValueError("a frame is too large")
        payload, is_last = await self._read_exactly(length), bool(head[4] & _FIN)

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
        # A long session of kubectl opens two streams per connection, so drop those that are over.
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

    async def _read_exactly(self, count: int) -> bytes:
        """Returns this many bytes. A frame may begin and end inside any WebSocket message."""
        while len(self._buffer) < count:
            message = await self._socket.receive()
            if message is None:
                raise EOFError
            self._buffer += message
        read = bytes(self._buffer[:count])
        del self._buffer[:count]
        return read


def _headers(block: bytes) -> dict[str, str]:
    """Parses a block of headers. Raises ValueError if the block is malformed."""
    texts, at = [], 4
    count = int.from_bytes(block[:4], "big")
    while at < len(block):
        length = int.from_bytes(block[at : at + 4], "big")
        texts.append(block[at + 4 : at + 4 + length].decode())
        at += 4 + length
    if len(texts) != 2 * count or at != len(block):
        raise ValueError("the headers have another length than they say")
    return dict(zip(texts[::2], texts[1::2], strict=True))
