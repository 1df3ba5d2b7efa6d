"""WebSockets (RFC 6455), as far as a server of streams needs them.

Supports the answer to a handshake, whole messages, answers to pings, and an orderly close, over a
connection that began as HTTP. Five kinds of frames without extensions need less code than a library.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_KINDS = (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG)
_NORMAL, _PROTOCOL_ERROR, _TOO_LARGE = 1000, 1002, 1009
_LARGEST = 4 << 20  # bytes of a message
_LARGEST_CONTROL = 125
_READ_SIZE = 1 << 16


def accept(key: str) -> str:
    """Returns the server's answer to the key of a handshake."""
    digest = hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


class _Wrong(Exception):
    """The client broke the protocol. The server closes the connection with this code."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class WebSocket:
    """The server's side of a connection. One task may receive while others send."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: bytes = b""
    ) -> None:
        """Takes the connection. `received` are bytes that came right after the handshake."""
        self._reader, self._writer = reader, writer
        self._buffer = bytearray(received)
        self._closed = False

    async def receive(self) -> bytes | None:
        """Returns the next message of either type; None if there are no more, for whatever reason."""
        message = bytearray()
        has_begun = False
        try:
            while True:
                is_last, kind, payload = await self._frame(_LARGEST - len(message), has_begun)
                if kind in (_CONTINUATION, _TEXT, _BINARY):
                    has_begun = True
                    message += payload
                    if is_last:
                        return bytes(message)
                elif kind == _PING:
                    await self._write(_PONG, payload)
                elif kind == _CLOSE:
                    await self._close(payload)
                    return None
        except _Wrong as wrong:
            await self._close(wrong.code.to_bytes(2, "big"))
        except (asyncio.IncompleteReadError, OSError):
            self._closed = True
        return None

    async def send(self, data: bytes) -> None:
        """Sends one message. Raises OSError if the client is gone."""
        if not self._closed:
            await self._write(_BINARY, data)

    async def close(self) -> None:
        """Sends a close frame. Later messages are dropped."""
        await self._close(_NORMAL.to_bytes(2, "big"))

    async def _close(self, payload: bytes) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                await self._write(_CLOSE, payload)

    async def _frame(self, most: int, has_begun: bool) -> tuple[bool, int, bytes]:
        """Reads a frame. Returns whether it is the last one of its message, its kind, and its payload.

        With `has_begun`, a message has begun and must be completed before another one. Raises _Wrong
        if the frame breaks the protocol.
        """
        first, second = await self._read_exactly(2)
        is_last, kind = bool(first & 0x80), first & 0x0F
        length = second & 0x7F
        if length == 126:
            length = int.from_bytes(await self._read_exactly(2), "big")
        elif length == 127:
            length = int.from_bytes(await self._read_exactly(8), "big")
        if length > most:
            raise _Wrong(_TOO_LARGE)

        # Clients must mask. The other bits belong to extensions, which were not negotiated.
        if first & 0x70 or not second & 0x80 or kind not in _KINDS:
            raise _Wrong(_PROTOCOL_ERROR)
        if kind < _CLOSE and has_begun != (kind == _CONTINUATION):
            raise _Wrong(_PROTOCOL_ERROR)

        # Control frames must be small and must not be split.
        if kind >= _CLOSE and (length > _LARGEST_CONTROL or not is_last):
            raise _Wrong(_PROTOCOL_ERROR)

        mask = await self._read_exactly(4)
        payload = await self._read_exactly(length)
        return is_last, kind, _unmask(payload, mask)

    async def _read_exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = await self._reader.read(_READ_SIZE)
            if not data:
                raise asyncio.IncompleteReadError(bytes(self._buffer), count)
            self._buffer += data
        read = bytes(self._buffer[:count])
        del self._buffer[:count]
        return read

    async def _write(self, kind: int, payload: bytes) -> None:
        length = len(payload)
        if length < 126:
            head = bytes([0x80 | kind, length])
        elif length < 1 << 16:
            head = bytes([0x80 | kind, 126]) + length.to_bytes(2, "big")
        else:
            head = bytes([0x80 | kind, 127]) + length.to_bytes(8, "big")
        self._writer.write(head + payload)
        await self._writer.drain()


def _unmask(payload: bytes, mask: bytes) -> bytes:
    """Removes the mask by one operation on large numbers, a hundred times faster than bytewise."""
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return number.to_bytes(len(payload), "big")
