"""The contents of a disk, and the server that QEMU's NBD client uses."""

import asyncio
import errno
import struct

from tests.machine.disk import BLOCK, Blocks, Flush, ServedDisk, Write

NEW = b"n" * BLOCK


def test_a_write_may_begin_and_end_within_a_block():
    blocks = Blocks(8 * BLOCK)
    blocks.write(BLOCK - 2, b"ab" + NEW + b"c")
    assert blocks.read(BLOCK - 3, 3) == b"\0ab"
    assert blocks.read(2 * BLOCK - 1, 3) == b"nc\0"
    blocks.write(BLOCK - 2, bytes(BLOCK + 3))
    assert blocks.contents == {}


def test_a_file_of_a_disk_has_holes_where_the_disk_has_zeros(tmp_path):
    blocks = Blocks(1024 * BLOCK)
    blocks.write(700 * BLOCK, NEW)
    blocks.save(tmp_path / "disk")
    assert (tmp_path / "disk").stat().st_blocks * 512 < 10 * BLOCK
    assert Blocks.load(tmp_path / "disk").contents == blocks.contents


class Client:
    """A client of the network block device."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    async def begin(self):
        """Returns the size of the disk and its flags."""
        assert (await self._reader.readexactly(18))[:16] == b"NBDMAGICIHAVEOPT"
        self._writer.write(struct.pack(">I", 1))
        refused = await self._ask(8)
        assert refused == (1 << 31) + 1
        assert await self._ask(7) == 3
        _, size, flags = struct.unpack(">HQH", await self._reader.readexactly(12))
        assert (await self._reply())[0] == 1
        return size, flags

    async def _ask(self, option):
        self._writer.write(b"IHAVEOPT" + struct.pack(">II", option, 4) + b"data")
        return (await self._reply())[0]

    async def _reply(self):
        magic, _, kind, length = struct.unpack(">QIII", await self._reader.readexactly(20))
        assert magic == 0x3E889045565A9
        return kind, length

    async def command(self, number, offset=0, length=0, data=b""):
        """Returns the errno of the answer."""
        head = struct.pack(">IHHQQI", 0x25609513, 0, number, 77, offset, length)
        self._writer.write(head + data)
        magic, error, cookie = struct.unpack(">IIQ", await self._reader.readexactly(16))
        assert (magic, cookie) == (0x67446698, 77)
        return error

    async def read(self, offset, length):
        assert await self.command(0, offset, length) == 0
        return await self._reader.readexactly(length)


async def test_a_served_disk_logs_what_succeeds(tmp_path):
    disk = ServedDisk(Blocks(8 * BLOCK))
    async with disk.serving(tmp_path / "nbd"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "nbd")
        client = Client(reader, writer)
        size, flags = await client.begin()
        assert (size, flags) == (8 * BLOCK, 0b101)  # it can flush

        assert await client.command(1, BLOCK, BLOCK, NEW) == 0
        disk.error = errno.EIO
        assert await client.command(1, 0, BLOCK, NEW) == errno.EIO
        assert await client.command(3) == errno.EIO
        disk.error = 0
        assert await client.command(3) == 0

        assert await client.read(0, 2 * BLOCK) == bytes(BLOCK) + NEW
        writer.close()
        await writer.wait_closed()
    assert disk.events == [Write(BLOCK, NEW), Flush()]
    assert disk.failed == 2
