"""Tests of SPDY streams inside a WebSocket, and of malformed frames."""

import asyncio
import zlib

import pytest

from claimd.sim.apiserver.wire import spdy


class Socket:
    """A WebSocket that returns the given messages and keeps those that are sent."""

    def __init__(self, *messages):
        self.messages, self.sent = list(messages), bytearray()

    async def receive(self):
        return self.messages.pop(0) if self.messages else None

    async def send(self, data):
        self.sent += data


class Client:
    """Encodes frames."""

    def __init__(self):
        self._deflate = zlib.compressobj(zdict=spdy.DICTIONARY)

    def open(self, number, flags=0, **headers):
        block = len(headers).to_bytes(4, "big")
        for text in (part for pair in headers.items() for part in pair):
            block += len(text).to_bytes(4, "big") + text.encode()
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(1, number.to_bytes(4, "big") + bytes(6) + packed, flags)


def control(kind, payload, flags=0):
    head = b"\x80\x03" + kind.to_bytes(2, "big") + bytes([flags])
    return head + len(payload).to_bytes(3, "big") + payload


def data(number, content, flags=0):
    head = number.to_bytes(4, "big") + bytes([flags])
    return head + len(content).to_bytes(3, "big") + content


async def open_streams(*messages):
    streams, socket = [], Socket(*messages)
    async with asyncio.timeout(30):
        await spdy.Session(socket, streams.append).run()
    return streams, socket


async def read_all(stream):
    parts = []
    while (part := await stream.read()) is not None:
        parts.append(part)
    return parts


async def test_streams_have_headers_and_data():
    client = Client()
    frames = [
        client.open(1, streamtype="error", port="80"),
        client.open(3, streamtype="data", port="80"),
        data(3, b"one"),
        data(3, b"two", flags=1),
        control(6, b"\x00\x00\x00\x01"),
    ]
    # A frame may begin and end inside any message.
    whole = b"".join(frames)
    streams, socket = await open_streams(whole[:7], whole[7:50], whole[50:])
    assert [stream.headers for stream in streams] == [
        {"streamtype": "error", "port": "80"},
        {"streamtype": "data", "port": "80"},
    ]
    assert await read_all(streams[1]) == [b"one", b"two"]
    # A client that is gone ends the streams that it has left open.
    assert await read_all(streams[0]) == []
    # Both streams and the ping were answered.
    assert socket.sent.count(b"\x80\x03\x00\x02") == 2
    assert socket.sent.endswith(b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01")


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(b"\x00\x00\x00\x01\x00\xff\xff\xff", id="a frame of 16 MiB"),
        pytest.param(control(1, b"\x00\x00\x00\x01" + bytes(6) + b"no zlib"), id="no headers"),
        pytest.param(Client().open(1, a="b" * 100_000), id="many headers"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="no SPDY"),
        pytest.param(control(7, bytes(8)), id="it goes away"),
    ],
)
async def test_a_client_that_speaks_otherwise_is_not_listened_to(frames):
    after = Client().open(1, streamtype="data")
    streams, _ = await open_streams(frames, after)
    assert streams == []


async def test_a_stream_that_is_reset_has_ended():
    client = Client()
    number = (1).to_bytes(4, "big")
    streams, socket = await open_streams(
        client.open(1, port="80"), control(3, number + bytes(4)), data(1, b"late")
    )
    assert await read_all(streams[0]) == []
    sent = bytes(socket.sent)
    await streams[0].write(b"nobody hears it")
    assert bytes(socket.sent) == sent
