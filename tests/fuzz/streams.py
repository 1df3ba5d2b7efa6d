"""What comes over a connection that stays: an API server's answers in pieces, and what a client sends
through a WebSocket to a command.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from claimd.common import websocket
from claimd.kubernetes.kube import http1
from claimd.sim.apiserver.handlers import pod_streams
from tests.plugin.common import test_websocket
from tests.support import http_answers

from . import target


def _answer(data: bytes) -> None:
    """Read as h11 reads it, or refused; and the same in whichever pieces it arrives."""
    ours, theirs = http_answers.heard(data), http_answers.heard_by_h11(data)
    if ours == ["refused"]:
        assert theirs == ["refused"] or http_answers.is_refused_by_us_alone(data)
    else:
        assert ours[:-1] == theirs[:-1]
        assert theirs[-1] or not ours[-1], "a connection that h11 would not use again"

    pieces = filter(None, _cut(data, 3))
    assert http_answers.heard(*pieces)[:-1] == ours[:-1]


def _cut(data: bytes, cuts: int) -> list[bytes]:
    """Cuts the data at places that it chooses itself, so that the same input does the same again."""
    dice = random.Random(data)
    places = sorted(dice.randint(0, len(data)) for _ in range(cuts))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


class _Writer:
    """The writing side of a socket, which keeps what would be sent."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Command:
    """The part of a command's streams that a client reaches. It keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    async def write(self, data: bytes) -> None:
        self.told.append(data)

    def end_input(self) -> None:
        self.told.append(None)

    def resize(self, width: int, height: int) -> None:
        struct.pack("HHHH", height, width, 0, 0)  # as the kernel is told
        self.told.append((width, height))


def _frames(data: bytes) -> None:
    told, sent = _attended(data, b"")
    first, rest = _cut(data, 1)
    assert _attended(rest, first) == (told, sent), "it depends on the pieces"

    assert sum(len(each) for each in told if isinstance(each, bytes)) <= len(data)
    kinds = _kinds(sent)
    assert set(kinds) <= {test_websocket.PONG, test_websocket.CLOSE}
    assert test_websocket.CLOSE not in kinds[:-1], "something was sent after the end"


def _attended(data: bytes, received: bytes) -> tuple[list[object], bytes]:
    """Returns what a command was told, and what the client was sent."""
    command, writer = _Command(), _Writer()
    socket = websocket.WebSocket(target.said(data), writer, received)  # type: ignore[arg-type]
    target.finished(pod_streams._receive(socket, command))  # type: ignore[arg-type]
    return command.told, bytes(writer.sent)


def _kinds(sent: bytes) -> list[int]:
    """Returns the kinds of the frames that a server sent. They are small here."""
    kinds = []
    while sent:
        assert sent[0] & 0xF0 == 0x80
        assert sent[1] <= 125
        kinds.append(sent[0] & 0x0F)
        sent = sent[2 + sent[1] :]
    return kinds


def _some_frames() -> list[bytes]:
    """Returns frames without a mask, which would hide their content."""
    frame: Callable[..., bytes] = test_websocket.frame
    shown = {"mask": bytes(4)}
    resize = b'\x04{"Width": 80, "Height": 25}'
    parts = [
        frame(b"\0some input", **shown),
        frame(resize, test_websocket.TEXT, **shown),
        frame(b"ping", test_websocket.PING, **shown),
        frame(b"", test_websocket.PONG, **shown),
    ]
    begun = frame(b"\0one ", last=False, **shown) + parts[2] + frame(b"two", 0, **shown)
    ended = frame(b"\xff\0", **shown) + frame(b"\x03\xe8", test_websocket.CLOSE, **shown)
    return [
        b"".join(parts),
        begun,
        ended,
        frame(b"\0" + b"a" * 200, **shown),
        frame(b"\0" + b"a" * 70_000),
        frame(b"x" * 126, test_websocket.PING, **shown),
        frame(b"x", test_websocket.PING, last=False, **shown),
        frame(b"x", 0, **shown),
    ]


TARGETS = {
    "http1": target.Target(
        read=_answer,
        parts=(http1.Responses,),
        examples=lambda: [*http_answers.RESPONSES.values(), *http_answers.REFUSED.values()],
        words=(
            *(b"\r", b"\n", b"\r\n\r\n", b" ", b"\t", b";", b",", b"\x0b", b"\x0c", b"0\r\n"),
            *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 ", b"Content-Length: 2\r\n", b" 101 "),
            *(b"Transfer-Encoding: chunked\r\n", b"close", b"Connection: "),
        ),
        longest=400,
    ),
    "websocket": target.Target(
        read=_frames,
        parts=(websocket.WebSocket, websocket._unmask, pod_streams._receive),
        examples=_some_frames,
        words=(b"\x81", b"\x82", b"\x80\x80", b"\x88", b"\x89", b"\xfe", b"\xff", b'"Width":'),
        longest=400,
    ),
}
