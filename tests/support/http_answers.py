"""An API server's answers as bytes, good ones and bad ones, and what comes of them: by our own reader,
and by h11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import h11

from claimd.kubernetes.kube import http1

BODY = b'{"kind":"ResourceClaim"}'


def shown(status: int, headers: Iterable[tuple[bytes, bytes]]) -> Any:
    """Without what says where the body ends, which the body shows."""
    framing = (b"content-length", b"transfer-encoding")
    return status, [header for header in headers if header[0] not in framing]


def heard(*pieces: bytes) -> list[Any]:
    """What comes of one response that arrives in pieces and is broken off then, or why nothing."""
    responses = http1.Responses()
    responses.expect()
    out: list[Any] = []
    waiting = [*pieces, b""]
    try:
        while (event := responses.next()) is not http1.Sign.END:
            if event is http1.Sign.NEED_DATA:
                responses.receive(waiting.pop(0))
            elif isinstance(event, http1.Response):
                out.append(shown(event.status, event.headers))
            elif isinstance(out[-1], bytes):
                out[-1] += event
            else:
                out.append(event)
    except http1.ProtocolError:
        return ["refused"]
    for piece in waiting:
        if piece:
            responses.receive(piece)
    return [*out, responses.may_repeat]


def heard_by_h11(*pieces: bytes) -> list[Any]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    connection.send(h11.EndOfMessage())
    out: list[Any] = []
    waiting = [*pieces, b""]
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(waiting.pop(0))
            elif isinstance(event, h11.Data):
                if out and isinstance(out[-1], bytes):
                    out[-1] += bytes(event.data)
                else:
                    out.append(bytes(event.data))
            elif isinstance(event, h11.Response | h11.InformationalResponse):
                out.append(shown(event.status_code, event.headers))
            else:
                return ["refused"]
    except h11.RemoteProtocolError:
        return ["refused"]
    for piece in waiting:
        if piece:
            connection.receive_data(piece)
    is_done = connection.their_state is h11.DONE and not connection.trailing_data[0]
    return [*out, is_done]


def head(*lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    return "\r\n".join([f"HTTP/{version} {status}", *lines, "", ""]).encode("latin-1")


COUNTED = head("Content-Type: application/json", f"content-length: {len(BODY)}") + BODY
CHUNKED = head("Transfer-Encoding: chunked") + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n"

# Each is read as h11 reads it.
RESPONSES = {
    "of known length": COUNTED,
    "in chunks": CHUNKED,
    "chunks with a trailer": head("TRANSFER-encoding: Chunked")
    + b"00A\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
    "empty": head("Content-Length: 0"),
    "until the end": head("Connection: close") + BODY,
    "of an old server": head(f"Content-Length: {len(BODY)}", version="1.0") + BODY,
    "and closed then": head("Connection: Keep-Alive , CLOSE", "Content-Length: 2") + b"{}",
    "nothing": head(status="204 No Content"),
    "unchanged": head("Content-Length: 10", status="304 Not Modified"),
    "without a reason": head("Content-Length: 2", status="409") + b"{}",
    "interim": head(status="103 Early Hints") + head(status="100 Continue") + COUNTED,
    "the same length twice": head("Content-Length: 2, 2", "Content-Length: 2") + b"{}",
    "bare line feeds": COUNTED.replace(b"\r\n", b"\n"),
    "a header in two lines": head("Warning: a", "  b", "Content-Length: 2") + b"{}",
    "odd characters": head("Warning: \xe4\x01\t \x7f", "Content-Length: 2") + b"{}",
    "too much": COUNTED + b"HTTP/1.1 200 OK\r\n",
    "more than was promised": head("Content-Length: 2") + b"{}x",
}
REFUSED = {
    "nothing at all": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "an empty line": b"\r\n" + COUNTED,
    "a broken head": COUNTED[:30],
    "a broken body": COUNTED[:-1],
    "a broken chunk": CHUNKED[:-12],
    "no last chunk": CHUNKED[:-5],
    "a status of four digits": head("Content-Length: 0", status="2000 OK"),
    "a header without a name": head(": x", "Content-Length: 0"),
    "a first header that goes on": head("\tX: y", "Content-Length: 0"),
    "a space before the colon": head("Content-Length : 0"),
    "a zero byte": head("X: a\0b", "Content-Length: 0"),
    "a carriage return in a value": head("X: a\rb", "Content-Length: 0"),
    "two lengths": head("Content-Length: 2", "Content-Length: 3") + b"{}",
    "two lengths in one": head("Content-Length: 2,3") + b"{}",
    "a negative length": head("Content-Length: -1") + b"{}",
    "a length with a sign": head("Content-Length: +2") + b"{}",
    "a length in digits of another script": head("Content-Length: \xb2") + b"{}",
    "an unknown coding": head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "a coding twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a chunk of no number": head("Transfer-Encoding: chunked") + b"x\r\n\r\n",
    "a chunk of a signed number": head("Transfer-Encoding: chunked") + b"-5\r\nhello\r\n",
    "a chunk that is too long": head("Transfer-Encoding: chunked") + b"2\r\nabc\r\n0\r\n\r\n",
    "a chunk's end without a line": head("Transfer-Encoding: chunked") + b"2\r\nab0\r\n\r\n",
    "a bare line feed after a chunk's size": head("Transfer-Encoding: chunked")
    + b"2\nab\r\n0\r\n\r\n",
    "a trailer that is none": head("Transfer-Encoding: chunked") + b"0\r\nnonsense\r\n\r\n",
    "a trailer that says where the body ends": head("Transfer-Encoding: chunked")
    + b"0\r\nX: y\r\nContent-Length:\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * http1.LARGEST_HEAD,
    "a chunk's head without end": head("Transfer-Encoding: chunked")
    + b"1;"
    + b"a" * http1.LARGEST_HEAD,
}


def is_refused_by_us_alone(data: bytes) -> bool:
    """A change of protocols, control characters where a chunk's size is explained, or a trailer that
    says where a body ends.
    """
    in_trailer = re.search(rb"\n0+\r\n(?s:.*)(?i:content-length|transfer-encoding):", data)
    in_chunk = re.search(rb";[^\n]*[\0\r\x0b\x0c][^\n]", data)
    return b" 101 " in data or in_trailer is not None or in_chunk is not None
