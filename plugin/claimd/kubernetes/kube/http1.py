"""The client side of HTTP/1.1: formats requests and parses responses, without I/O.

The parser is strict: it refuses everything that two implementations may read differently, so that
both sides agree where a response ends. It knows no proxies, upgrades or compression. It does not
interpret status codes and headers beyond the framing of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

# The most bytes of a head, of a chunk's size line, or of the trailer after the last chunk.
LARGEST_HEAD = 16 << 10

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
# The value of a header. It holds no line end and no character that some parsers take for one.
_TEXT = rb"[^\x00\n\r\x0b\x0c]*"
_FIELDS = rb"(?:\r?\n" + _TOKEN + rb":" + _TEXT + rb")*"
_HEAD = re.compile(
    rb"HTTP/(?P<version>[0-9]\.[0-9]) (?P<status>[1-9][0-9]{2})(?: " + _TEXT + rb")?"
    rb"(?P<fields>" + _FIELDS + rb")"
)
_HEAD_END = re.compile(rb"\n\r?\n")
_LINE_END = re.compile(rb"\n")
# An obsolete way to continue a header in the next line.
_FOLD = re.compile(rb"\r?\n[ \t]+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;" + _TEXT + rb")?[ \t]*\r\n")
_TRAILER = re.compile(_FIELDS)
_FRAMING = re.compile(rb"\n(?:content-length|transfer-encoding):", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")

_METHOD = re.compile(_TOKEN.decode())
_TARGET = re.compile(r"[!-~]+")
_VALUE = re.compile(r"[ -~\x80-\xff]*")


class ProtocolError(Exception):
    """The bytes are no response of HTTP/1.1, or the connection ended in the middle of one."""


class Response(NamedTuple):
    """The head of a response. The names of its headers are in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]


class Sign(Enum):
    """The results of `Responses.next` that are neither a head nor a piece of a body."""

    NEED_DATA = "what has arrived is not enough"
    END = "the response is whole"


class _Part(Enum):
    """The part of a response that comes next."""

    HEAD = 1
    COUNTED = 2  # a body of known length
    UNTIL_CLOSE = 3  # a body that ends with the connection
    CHUNK_HEAD = 4
    CHUNK = 5
    CHUNK_END = 6
    TRAILER = 7
    NOTHING = 8


def request(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Returns the head of a request as bytes.

    A body follows it unchanged, with its length in Content-Length. ValueError if the method, the
    target or a header holds a line end or another control character, which would start a new line.
    """
    if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target)):
        raise ValueError(f"no method and target of a request: {method!r} {target!r}")
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers:
        if not (_METHOD.fullmatch(name) and _VALUE.fullmatch(value)):
            # The message leaves out the value, which may be a token.
            raise ValueError(f"the header {name!r} cannot be sent: it holds a control character")
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")


class Responses:
    """The parser of the responses of one connection.

    Call `expect` before each response. Then pass the arriving bytes to `receive`, and call `next`
    for the events: the head (interim heads with a status of 1xx come first), then the pieces of the
    body, then Sign.END.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        # The server has closed its side.
        self._is_closed = False
        self._part = _Part.NOTHING
        # Bytes that are missing of the body, or of the current chunk.
        self._left = 0
        # The server keeps the connection open after this response.
        self._stays = True

    def expect(self) -> None:
        """Prepares for the response to a request that was sent. The request must not be a HEAD."""
        assert self._part is _Part.NOTHING, "one response at a time"
        self._part = _Part.HEAD

    def receive(self, data: bytes) -> None:
        """Takes the bytes that have arrived. Empty: the server has closed the connection."""
        if data:
            self._buffer += data
        else:
            self._is_closed = True

    @property
    def has_begun(self) -> bool:
        """True if a part of the current response has arrived."""
        return self._part is not _Part.HEAD or bool(self._buffer)

    @property
    def may_repeat(self) -> bool:
        """True if another request may follow: the response is complete and the connection stays."""
        is_done = self._part is _Part.NOTHING and not self._buffer
        return is_done and self._stays and not self._is_closed

    def next(self) -> Response | bytes | Sign:
        """Returns the next event of the response.

        Sign.NEED_DATA means that more bytes must be received first. Raises ProtocolError if the
        bytes are not a valid response.
        """
        match self._part:
            case _Part.HEAD:
                return self._next_head()
            case _Part.COUNTED | _Part.CHUNK:
                return self._next_counted()
            case _Part.UNTIL_CLOSE:
                return self._next_until_close()
            case _Part.NOTHING:
                return Sign.END
        return self._next_chunk()

    # ---------------------------------------------------------------- the head

    def _next_head(self) -> Response | Sign:
        end = self._find(_HEAD_END)
        if end is None:
            return Sign.NEED_DATA
        # The head ends with an empty line, which is not a part of it.
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
        """Finds out from the head where the body will end, and sets the next part accordingly."""
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

        # A response with both headers is an attack or the mistake of a proxy: the bytes after it
        # may not be the next response. RFC 9112 asks the client to close such a connection.
        self._stays = b"close" not in options and version >= b"1.1" and not (codings and lengths)
        # These two statuses never have a body, whatever their headers say.
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

    def _next_counted(self) -> bytes | Sign:
        if not self._buffer:
            return self._need_data()
        piece = self._take(min(self._left, len(self._buffer)))
        self._left -= len(piece)
        if not self._left:
            is_chunk = self._part is _Part.CHUNK
            self._part = _Part.CHUNK_END if is_chunk else _Part.NOTHING
        return piece

    def _next_until_close(self) -> bytes | Sign:
        if self._buffer:
            return self._take(len(self._buffer))
        if not self._is_closed:
            return Sign.NEED_DATA
        self._part = _Part.NOTHING
        return Sign.END

    def _next_chunk(self) -> bytes | Sign:
        """Reads up to the first piece of the next chunk, or to the end of the body."""
        if self._part is _Part.CHUNK_END:
            if not self._buffer.startswith(b"\r\n"):
                if not b"\r\n".startswith(self._buffer):
                    raise ProtocolError("a chunk is longer than was said before it")
                return self._need_data()
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
                return self._next_counted()

            # The trailer follows the chunk of size 0. A line end before it makes an empty trailer
            # end like one with headers: with an empty line.
            self._part = _Part.TRAILER
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
        """Returns start and end of the pattern's first match; None if more bytes are needed.

        Raises ProtocolError if there is no match within LARGEST_HEAD bytes, or none can come.
        """
        match = pattern.search(self._buffer, 0, LARGEST_HEAD)
        if match is not None:
            return match.span()
        if len(self._buffer) >= LARGEST_HEAD:
            raise ProtocolError(f"a head of more than {LARGEST_HEAD:,} bytes")
        self._need_data()
        return None

    def _need_data(self) -> Sign:
        """Returns NEED_DATA. Raises ProtocolError if the connection is closed."""
        if self._is_closed:
            raise ProtocolError("the connection was closed in the middle of a response")
        return Sign.NEED_DATA

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
