"""A disk that a test serves to a virtual machine, and the log of what the machine did with it.

`Blocks` are the contents of a disk. `ServedDisk` serves them by NBD, the protocol for network block
devices, which QEMU speaks. The disk says that it has a cache, so a write is durable only after the
next flush. It can be told to fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import msgspec

BLOCK = 4096
_ZEROS = bytes(BLOCK)


class Write(msgspec.Struct, frozen=True, tag="write", array_like=True):
    offset: int
    data: bytes


class Flush(msgspec.Struct, frozen=True, tag="flush", array_like=True):
    """Makes all writes before it durable."""


class Fact(msgspec.Struct, frozen=True, tag="fact", array_like=True):
    """The kubelet's state of a claim has changed."""

    claim: str
    state: str


Event = Write | Flush | Fact


class Blocks:
    """The contents of a disk. Blocks of zeros take no room, neither in memory nor in a file."""

    def __init__(self, size: int, blocks: dict[int, bytes] | None = None) -> None:
        self.size = size
        self.contents = blocks or {}  # by number

    @classmethod
    def load(cls, path: Path) -> Self:
        loaded = cls(path.stat().st_size)
        with path.open("rb") as file:
            at = 0
            while at < loaded.size:
                # Holes of the file are skipped.
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
                except OSError:
                    break
                file.seek(at)
                loaded.write(at, file.read(BLOCK))
                at += BLOCK
        return loaded

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(self.size)
            for number, block in self.contents.items():
                file.seek(number * BLOCK)
                file.write(block)

    def copy(self) -> Self:
        return type(self)(self.size, dict(self.contents))

    def read(self, offset: int, length: int) -> bytes:
        first, last = offset // BLOCK, (offset + length - 1) // BLOCK
        whole = b"".join(self.contents.get(number, _ZEROS) for number in range(first, last + 1))
        return whole[offset - first * BLOCK :][:length]

    def write(self, offset: int, data: bytes) -> None:
        for at, piece in pieces(offset, data):
            number, within = divmod(at, BLOCK)
            block = piece
            if len(piece) < BLOCK:
                old = self.contents.get(number, _ZEROS)
                block = old[:within] + piece + old[within + len(piece) :]
            if block == _ZEROS:
                self.contents.pop(number, None)
            else:
                self.contents[number] = block


def pieces(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    """Cuts a write where blocks begin; returns the offset and the data of each piece."""
    end = offset + len(data)
    starts = [offset, *range(offset // BLOCK * BLOCK + BLOCK, end, BLOCK)]
    ends = [*starts[1:], end]
    return [
        (start, data[start - offset : stop - offset])
        for start, stop in zip(starts, ends, strict=True)
    ]


# The protocol is described in doc/proto.md of the NBD project.
_OPTION_MAGIC = b"IHAVEOPT"
_OPTION_REPLY = 0x3E889045565A9
_REPLY = 0x67446698
_GO, _ABORT = 7, 2
_ACK, _INFO, _UNSUPPORTED = 1, 3, 0x80000001
_INFO_EXPORT = 0
_HAS_FLAGS, _SEND_FLUSH = 1, 4
_READ, _WRITE, _DISCONNECT, _FLUSH = 0, 1, 2, 3
_FIXED_NEWSTYLE = 1


class ServedDisk:
    """Serves blocks at a socket. `events` has each write and flush that succeeded, in their order.

    While `error` is an errno, writes and flushes fail with it.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.events: list[Event] = []
        self.error = 0
        self.failed = 0  # writes and flushes
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._connected, socket)
        try:
            yield
        finally:
            # Each connection ends when its machine closes it.
            server.close()
            await asyncio.gather(*self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if await self._negotiate(reader, writer):
                await self._serve(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def _negotiate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Returns True when the client begins to use the disk."""
        writer.write(b"NBDMAGIC" + _OPTION_MAGIC + struct.pack(">H", _FIXED_NEWSTYLE))
        await reader.readexactly(4)

        while True:
            option, length = struct.unpack(">8xII", await reader.readexactly(16))
            await reader.readexactly(length)
            head = struct.pack(">QI", _OPTION_REPLY, option)
            if option == _GO:
                export = struct.pack(
                    ">HQH", _INFO_EXPORT, self.blocks.size, _HAS_FLAGS | _SEND_FLUSH
                )
                writer.write(head + struct.pack(">II", _INFO, len(export)) + export)
                writer.write(head + struct.pack(">II", _ACK, 0))
                return True
            if option == _ABORT:
                writer.write(head + struct.pack(">II", _ACK, 0))
                return False
            writer.write(head + struct.pack(">II", _UNSUPPORTED, 0))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(28)
            _, _, command, cookie, offset, length = struct.unpack(">IHHQQI", head)
            if command == _DISCONNECT:
                return
            error, data = 0, b""
            if command == _READ:
                data = self.blocks.read(offset, length)
            elif command == _WRITE:
                error = self._change(Write(offset, await reader.readexactly(length)))
            else:
                assert command == _FLUSH, f"NBD command {command} was not offered"
                error = self._change(Flush())
            writer.write(struct.pack(">IIQ", _REPLY, error, cookie) + data)
            await writer.drain()

    def _change(self, event: Write | Flush) -> int:
        """Returns the errno for the machine."""
        if self.error:
            self.failed += 1
            return self.error
        if isinstance(event, Write):
            self.blocks.write(event.offset, event.data)
        self.events.append(event)
        return 0
