"""HTTP/1.1 as a client speaks it: a request into bytes, and its response out of bytes, without I/O.

Strict, so that two sides never differ about where a response ends: what may be read in two ways is
refused. No proxying, no upgrade, no compression. What a response means does not belong here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

# Bytes of a head, of the line before a chunk, or of what follows the last chunk.
LARGEST_HEAD = 16 << 10

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
# Of a header's value: neither a line's end nor what some take for one.
_TEXT = rb"[^\x00\n\r\x0b\x0c]*"
_FIELDS = rb"(?:\r?\n" + _TOKEN + rb":" + _TEXT + rb")*"
_HEAD = re.compile(
    rb"HTTP/(?P<version>[0-9]\.[0-9]) (?P<status>[1-9][0-9]{2})(?: " + _TEXT + rb")?"
    rb"(?P<fields>" + _FIELDS + rb")"
)
_HEAD_END = re.compile(rb"\n\r?\n")
_LINE_END = re.compile(rb"\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")  # an old way to go on in the next line
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;" + _TEXT + rb")?[ \t]*\r\n")
_TRAILER = re.compile(_FIELDS)
_FRAMING = re.compile(rb"\n(?:content-length|transfer-encoding):", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")

_METHOD = re.compile(_TOKEN.decode())
_TARGET = re.compile(r"[!-~]+")
_VALUE = re.compile(r"[ -~\x80-\xff]*")


class ProtocolError(Exception):
    """What came is no response of HTTP/1.1, or was broken off."""


class Response(NamedTuple):
    """The head of a response, with the names of its headers in small letters."""

    status: int
    headers: list[tuple[bytes, bytes]]


class Sign(Enum):
    """What comes out of a connection beside heads and pieces of bodies."""

    NEED_DATA = "what has arrived is not enough"
    END = "the response is whole"


class _Part(Enum):
    """What of a response comes next."""

    HEAD = 1
    COUNTED = 2  # a body of known length
    UNTIL_CLOSE = 3  # a body of any length
    CHUNK_HEAD = 4
    CHUNK = 5
    CHUNK_END = 6
    TRAILER = 7
    NOTHING = 8


def request(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a request; its body follows as it is, and Content-Length says so.

    ValueError for what would be more than one head: none of it may hold the end of a line.
    """
    if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target)):
        raise ValueError(f"no method and target of a request: {method!r} {target!r}")
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers:
        if not (_METHOD.fullmatch(name) and _VALUE.fullmatch(value)):
            # The value may be a token.
            raise ValueError(f"the header {name!r} cannot be sent: it holds a control character")
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")


class Responses:
    """The responses of one connection, one after the other.

    `expect` comes before each. Then `receive` takes what arrives, and `next` says what it is: the
    head, also each interim one (1xx), then pieces of the body, then Sign.END.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_closed = False  # by the other side
        self._part = _Part.NOTHING
        self._left = 0  # bytes of the body, or of the chunk
        self._stays = True  # the connection, as far as the other side says

    def expect(self) -> None:
        """A request was sent, of a kind whose response may have a body: HEAD has none."""
        assert self._part is _Part.NOTHING, "one response at a time"
        self._part = _Part.HEAD

    def receive(self, data: bytes) -> None:
        """Empty if the other side has closed the connection."""
        if data:
            self._buffer += data
        else:
            self._is_closed = True

    @property
    def has_begun(self) -> bool:
        """Whether anything of the response under way has arrived."""
        return self._part is not _Part.HEAD or bool(self._buffer)

    @property
    def may_repeat(self) -> bool:
        """Whether another request may follow: all is read, and the connection stays."""
        is_done = self._part is _Part.NOTHING and not self._buffer
        return is_done and self._stays and not self._is_closed

    def next(self) -> Response | bytes | Sign:
        """What comes next. ProtocolError if it is nothing that may come."""
        match self._part:
            case _Part.HEAD:
                return self._head()
            case _Part.COUNTED | _Part.CHUNK:
                return self._counted()
            case _Part.UNTIL_CLOSE:
                return self._until_close()
            case _Part.NOTHING:
                return Sign.END
        return self._between_chunks()

    # ---------------------------------------------------------------- the head

    def _head(self) -> Response | Sign:
        end = self._find(_HEAD_END)
        if end is None:
            return Sign.NEED_DATA
        head = self._take(end[1])[: end[0] - end[1]].removesuffix(b"\r")
        if b"\n " in head or b"\n\t" in head:
            line, end_of_line, fields = head.partition(b"\n")
            head = line + end_of_line + _FOLD.sub(b" ", fields)

        match = _HEAD.fullmatch(head)
        if match is None:
            raise ProtocolError(f"no head of a response: {head[:80]!r}")
        headers = []
        for line in match["fields"].split(b"\n")[1:]:
            name, _, value = line.partition(b":")
            headers.append((name.lower(), value.strip(b" \t\r")))

        response = Response(int(match["status"]), headers)
        if response.status == 101:
            raise ProtocolError("the other side changes the protocol, which was not asked for")
        if response.status >= 200:
            self._begin_body(response, match["version"])
        return response

    def _begin_body(self, response: Response, version: bytes) -> None:
        """Where the body ends, by what the head says of it."""
        lengths: set[bytes] = set()
        codings: list[bytes] = []
        options: list[bytes] = []
        for name, value in response.headers:
            if name == b"content-length":
                lengths |= {length.strip(b" \t") for length in value.split(b",")}
            elif name == b"transfer-encoding":
                codings.append(value.lower())
            elif name == b"connection":
                options += [option.strip(b" \t") for option in value.lower().split(b",")]

        if codings not in ([], [b"chunked"]):
            raise ProtocolError(f"a transfer coding that was not asked for: {codings}")
        if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise ProtocolError(f"a Content-Length that is no one number: {sorted(lengths)}")

        # Both is a trap, or a mistake of somebody between us: what follows is nobody's response.
        self._stays = b"close" not in options and version >= b"1.1" and not (codings and lengths)
        if response.status in (204, 304):
            self._part = _Part.NOTHING
        elif codings:
            self._part = _Part.CHUNK_HEAD
        elif lengths:
            self._left = int(lengths.pop())
            self._part = _Part.COUNTED if self._left else _Part.NOTHING
        else:
            self._stays = False
            self._part = _Part.UNTIL_CLOSE

    # ---------------------------------------------------------------- the body

    def _counted(self) -> bytes | Sign:
        if not self._buffer:
            return self._wait()
        piece = self._take(min(self._left, len(self._buffer)))
        self._left -= len(piece)
        if not self._left:
            is_chunk = self._part is _Part.CHUNK
            self._part = _Part.CHUNK_END if is_chunk else _Part.NOTHING
        return piece

    def _until_close(self) -> bytes | Sign:
        if self._buffer:
            return self._take(len(self._buffer))
        if not self._is_closed:
            return Sign.NEED_DATA
        self._part = _Part.NOTHING
        return Sign.END

    def _between_chunks(self) -> bytes | Sign:
        """Up to the next piece of the body, or the end."""
        if self._part is _Part.CHUNK_END:
            if not self._buffer.startswith(b"\r\n"):
                if not b"\r\n".startswith(self._buffer):
                    raise ProtocolError("a chunk is longer than was said before it")
                return self._wait()
            self._take(2)
            self._part = _Part.CHUNK_HEAD

        if self._part is _Part.CHUNK_HEAD:
            end = self._find(_LINE_END)
            if end is None:
                return Sign.NEED_DATA
            line = self._take(end[1])
            match = _CHUNK.fullmatch(line)
            if match is None:
                raise ProtocolError(f"no head of a chunk: {line[:80]!r}")
            self._left = int(match[1], 16)
            if self._left:
                self._part = _Part.CHUNK
                return self._counted()
            self._part = _Part.TRAILER
            # So that an empty trailer ends as one with lines does: with an empty line.
            self._buffer[:0] = b"\n"

        end = self._find(_HEAD_END)
        if end is None:
            return Sign.NEED_DATA
        trailer = self._take(end[1])[: end[0] - end[1]].removesuffix(b"\r")
        if not _TRAILER.fullmatch(_FOLD.sub(b" ", trailer)):
            raise ProtocolError(f"no trailer of a response: {trailer[:80]!r}")
        if _FRAMING.search(trailer):
            raise ProtocolError(f"a trailer that says where a body ends: {trailer[:80]!r}")
        self._part = _Part.NOTHING
        return Sign.END

    # ---------------------------------------------------------------- the bytes

    def _find(self, pattern: re.Pattern[bytes]) -> tuple[int, int] | None:
        """Where it begins and ends; None if it may still come."""
        match = pattern.search(self._buffer, 0, LARGEST_HEAD)
        if match is not None:
            return match.span()
        if len(self._buffer) >= LARGEST_HEAD:
            raise ProtocolError(f"a head of more than {LARGEST_HEAD:,} bytes")
        self._wait()
        return None

    def _wait(self) -> Sign:
        """ProtocolError if what is missing cannot come any more."""
        if self._is_closed:
            raise ProtocolError("the connection was closed in the middle of a response")
        return Sign.NEED_DATA

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
