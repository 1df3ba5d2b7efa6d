"""Frames as RFC 6455 has them, from a client that is written out here."""

import asyncio
import os

import pytest

from claimd.common import websocket

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(payload, kind=BINARY, last=True, mask=b"\x01\x02\x03\x04", first=0):
    head = bytes([(0x80 if last else 0) | kind | first])
    length, masked = len(payload), 0x80 if mask else 0
    if length < 126:
        head += bytes([masked | length])
    elif length < 1 << 16:
        head += bytes([masked | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([masked | 127]) + length.to_bytes(8, "big")
    return head + mask + (mask_payload(payload, mask) if mask else payload)


def mask_payload(payload, mask):
    """Returns each byte of the payload XOR the next one of the mask, which repeats."""
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return number.to_bytes(len(payload), "big")


async def read_frame(reader):
    first, second = await reader.readexactly(2)
    length = second
    if second == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    elif second == 127:
        length = int.from_bytes(await reader.readexactly(8), "big")
    assert first & 0x80
    return first & 0x0F, await reader.readexactly(length)


@pytest.fixture
async def pair(tmp_path):
    """The server's WebSocket, and the client's streams."""
    sockets = asyncio.Queue()
    done = asyncio.Event()

    async def accept(reader, writer):
        sockets.put_nowait(websocket.WebSocket(reader, writer, received=frame(b"early")))
        await done.wait()
        writer.close()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(accept, path):
        reader, writer = await asyncio.open_unix_connection(path)
        yield await sockets.get(), reader, writer
        done.set()
        writer.close()


def test_the_answer_to_the_standards_own_key():
    assert websocket.accept("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


async def test_messages_come_whole_and_in_order(pair):
    socket, reader, writer = pair
    writer.write(frame(b"one", TEXT))
    writer.write(frame(b"t", last=False) + frame(b"?", PING) + frame(b"w", 0, last=False))
    writer.write(frame(b"", PONG) + frame(b"o", 0))
    large = os.urandom(70_001)
    writer.write(frame(large) + frame(b"") + frame(b"x" * 200))
    received = [await socket.receive() for _ in range(6)]
    assert received == [b"early", b"one", b"two", large, b"", b"x" * 200]
    assert await read_frame(reader) == (PONG, b"?")


async def test_after_its_close_frame_it_sends_nothing(pair):
    socket, reader, writer = pair
    await socket.close()
    await socket.send(b"late")
    await socket.close()
    assert await read_frame(reader) == (CLOSE, (1000).to_bytes(2, "big"))

    # The pong would come before anything that was sent.
    writer.write(frame(b"?", PING) + frame(b"x"))
    assert [await socket.receive() for _ in range(2)] == [b"early", b"x"]
    assert await read_frame(reader) == (PONG, b"?")


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
async def test_messages_go_out_in_one_frame(pair, size):
    socket, reader, _ = pair
    sending = asyncio.create_task(socket.send(b"a" * size))
    assert await read_frame(reader) == (BINARY, b"a" * size)
    await sending


async def test_an_end_is_answered_once(pair):
    socket, reader, writer = pair
    assert await socket.receive() == b"early"
    writer.write(frame((1001).to_bytes(2, "big"), CLOSE))
    assert await socket.receive() is None
    assert await read_frame(reader) == (CLOSE, (1001).to_bytes(2, "big"))
    await socket.send(b"late")
    await socket.close()
    writer.write_eof()
    assert await socket.receive() is None


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (frame(b"a", mask=b""), 1002),
        (frame(b"a", first=0x40), 1002),
        (frame(b"a", kind=3), 1002),
        (frame(b"a", 0), 1002),
        (frame(b"a", last=False) + frame(b"b"), 1002),
        (frame(b"", PING, last=False), 1002),
        (frame(b"a" * 126, PING), 1002),
        (b"\x82\xff" + (5 << 20).to_bytes(8, "big"), 1009),
        (frame(b"a" * (3 << 20), last=False) + frame(b"a" * (2 << 20), 0), 1009),
    ],
)
async def test_what_is_not_allowed_ends_it(pair, wrong, code):
    socket, reader, writer = pair
    assert await socket.receive() == b"early"
    writer.write(wrong)
    assert await socket.receive() is None
    assert await read_frame(reader) == (CLOSE, code.to_bytes(2, "big"))


async def test_a_client_that_vanishes_in_a_message(pair):
    socket, _, writer = pair
    assert await socket.receive() == b"early"
    writer.write(frame(b"abc")[:5])
    writer.close()
    assert await socket.receive() is None
