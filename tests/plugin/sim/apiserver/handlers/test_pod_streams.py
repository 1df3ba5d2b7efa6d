"""Tests of a client's messages to a command, over a WebSocket with real sockets."""

import asyncio
import json
import socket

from claimd.common import websocket
from claimd.sim.apiserver.handlers import pod_streams
from tests.plugin.common.test_websocket import CLOSE, frame

RESIZE = b"\x04"


class Recorded:
    """The part of a command's streams that a resize needs."""

    def __init__(self):
        self.sizes = []

    def resize(self, width, height):
        self.sizes.append((width, height))


async def test_a_size_that_no_terminal_has_is_passed_over():
    sizes = [
        {"Width": 70_000, "Height": 7},
        {"Width": -1, "Height": 7},
        {"Width": "x", "Height": 7},
        {"Width": 31},
        [],
        {"Width": 31, "Height": 7},
    ]
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    for size in sizes:
        theirs.sendall(frame(RESIZE + json.dumps(size).encode()))
    theirs.sendall(frame(RESIZE + b"[" * 100_000))
    theirs.sendall(frame(RESIZE + b"\xff"))
    theirs.sendall(frame((1000).to_bytes(2, "big"), CLOSE))

    streams = Recorded()
    await pod_streams._receive(websocket.WebSocket(reader, writer), streams)
    assert streams.sizes == [(31, 7)]
    theirs.close()
    writer.close()
    await writer.wait_closed()
