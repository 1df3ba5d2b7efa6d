"""What comes over a connection that stays: an API server's answers in pieces, and what a client sends
through a WebSocket to a command or to a pod's port.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import zlib
from collections.abc import Callable
from functools import cache

from claimd.common import websocket
from claimd.kubernetes.kube import http1
from claimd.sim.apiserver.handlers import pod_port_forward, pod_streams
from claimd.sim.apiserver.wire import spdy
from tests.plugin.common import test_websocket
from tests.plugin.sim.apiserver.wire import test_spdy
from tests.support import http_answers

from . import target

_PATIENCE = 0.2  # seconds for a session that waits for somebody to take what came


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
    """At places that the data chooses: the same input does the same again."""
    dice = random.Random(data)
    places = sorted(dice.randint(0, len(data)) for _ in range(cuts))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


class _Writer:
    """Of a socket; keeps what would be sent."""

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
    """As much of a command's streams as a client reaches; keeps what it is told."""

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
    """What a command was told, and what the client was sent."""
    command, writer = _Command(), _Writer()
    socket = websocket.WebSocket(target.said(data), writer, received)  # type: ignore[arg-type]
    target.finished(pod_streams._receive(socket, command))  # type: ignore[arg-type]
    return command.told, bytes(writer.sent)


def _kinds(sent: bytes) -> list[int]:
    """Of the frames that a server sent, which are small ones here."""
    kinds = []
    while sent:
        assert sent[0] & 0xF0 == 0x80
        assert sent[1] <= 125
        kinds.append(sent[0] & 0x0F)
        sent = sent[2 + sent[1] :]
    return kinds


def _some_frames() -> list[bytes]:
    """Without a mask that hides what is in them."""
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


class _Messages:
    """A WebSocket whose client has sent all that it will; others go on between its messages."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages

    async def receive(self) -> bytes | None:
        for _ in range(4):
            await asyncio.sleep(0)
        return self._messages.pop(0) if self._messages else None

    async def send(self, data: bytes) -> None:
        pass

    async def close(self) -> None:
        pass


class _Watched(pod_port_forward._Forwarding):
    """What a connection ends with is seen, and not left to its task."""

    wrong: BaseException | None = None

    async def _forward(self, data: spdy.Stream, errors: spdy.Stream) -> None:
        try:
            await super()._forward(data, errors)
        except Exception as error:
            self.wrong = error
            raise


async def _connect(port: int) -> pod_port_forward.Connection:
    """As the system does it for a pod on which somebody listens at ports that are odd numbers."""
    if not 0 <= port <= 0xFFFF:
        raise OverflowError("connect(): port must be 0-65535.")
    if port % 2 == 0:
        raise ConnectionRefusedError("nobody listens")
    return target.said(b"answer"), _Writer()  # type: ignore[return-value]


def _forwarded(data: bytes) -> None:
    async def attend() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await forwarding.attend(_Messages(_cut(data, 2)))  # type: ignore[arg-type]

    forwarding = _Watched(_connect, "p")
    _running_loop().run_until_complete(attend())
    if forwarding.wrong is not None:
        raise forwarding.wrong


@cache
def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _sessions() -> list[bytes]:
    examples = []
    for port in ("7", "8", "70000", "x"):
        client = test_spdy.Client()
        errors = client.open(1, streamtype="error", port=port, requestid="0", flags=1)
        opened = errors + client.open(3, streamtype="data", port=port, requestid="0")
        examples.append(opened + test_spdy.data(3, b"hello") + test_spdy.data(3, b"", flags=1))
    examples.append(
        examples[0] + test_spdy.control(6, b"\0\0\0\1") + test_spdy.control(3, bytes(8))
    )
    examples.append(
        opened + test_spdy.control(3, b"\0\0\0\3\0\0\0\5") + test_spdy.control(7, bytes(8))
    )

    # Not compressed, so that what they say can be changed.
    client = test_spdy.Client()
    client._deflate = zlib.compressobj(level=0, zdict=spdy.DICTIONARY)
    errors = client.open(1, streamtype="error", port="7", requestid="0")
    return [*examples, errors + client.open(3, streamtype="data", port="7", requestid="0")]


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
    "port-forward": target.Target(
        read=_forwarded,
        parts=(spdy.Session, spdy.Stream, spdy._headers, pod_port_forward),
        examples=_sessions,
        words=(b"\x80\x03\x00\x01", b"\x80\x03\x00\x03", b"\x80\x03\x00\x06", b"\x00\x00\x00\x01"),
        longest=400,
    ),
}
