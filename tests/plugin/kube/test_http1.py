"""Requests and responses as bytes, beside what h11 makes of the same bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

import h11
import pytest

from plugin.kube import http1

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
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * http1.LARGEST_HEAD,
    "a chunk's head without end": head("Transfer-Encoding: chunked")
    + b"1;"
    + b"a" * http1.LARGEST_HEAD,
}


@pytest.mark.parametrize("data", RESPONSES.values(), ids=RESPONSES)
def test_a_response_is_read_as_others_read_it(data: bytes) -> None:
    expected = heard_by_h11(data)

    assert expected[0] != "refused"
    assert heard(data) == expected
    assert heard(*(bytes([byte]) for byte in data))[:-1] == expected[:-1], "in single bytes"


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    assert heard(data) == ["refused"] == heard_by_h11(data)
    assert heard(*(bytes([byte]) for byte in data)) == ["refused"], "in single bytes"


def test_what_was_said_in_two_ways_ends_the_connection() -> None:
    """Somebody between us may go by the other one. h11 uses such a connection again."""
    data = head("Content-Length: 5", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n"

    *response, may_repeat = heard(data)

    assert response == heard_by_h11(data)[:-1]
    assert not may_repeat


def test_another_protocol_is_refused() -> None:
    assert heard(head("Upgrade: h2c", status="101 Switching Protocols")) == ["refused"]


def test_a_connection_has_one_response_after_the_other() -> None:
    responses = http1.Responses()
    for body in (b"{}", b"[]"):
        responses.expect()
        assert not responses.has_begun
        responses.receive(head("Content-Length: 2"))
        assert responses.has_begun
        response = responses.next()
        assert isinstance(response, http1.Response)
        assert response.headers == [(b"content-length", b"2")]
        assert responses.next() is http1.Sign.NEED_DATA
        responses.receive(body)
        assert not responses.may_repeat
        assert (responses.next(), responses.next()) == (body, http1.Sign.END)
        assert responses.may_repeat

    responses.receive(b"")
    assert not responses.may_repeat


PIECES = [b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b";", b",", b"0", b"1", b"9", b"a"]
PIECES += [b"\0", b"\x0b", b"\xff", b"HTTP/1.1 200 OK", b"Content-Length: 2", b"chunked", b"close"]


def mutated(dice: random.Random) -> bytes:
    data = dice.choice([*RESPONSES.values(), *REFUSED.values()])[:400]
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(data))
        after = at + dice.choice([0, 0, 1, 2, 5])
        data = data[:at] + dice.choice([b"", *PIECES]) + data[after:]
    return data


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_read_that_others_read_in_another_way(seed: int) -> None:
    """Odd bytes are read as h11 reads them, or refused."""
    dice = random.Random(seed)
    read = 0
    for _ in range(400):
        data = mutated(dice)
        ours, theirs = heard(data), heard_by_h11(data)
        if ours == ["refused"]:
            assert theirs == ["refused"] or is_refused_by_us_alone(data), data
            continue
        read += 1
        assert ours[:-1] == theirs[:-1], data
        assert theirs[-1] or not ours[-1], "a connection that h11 would not use again"

        cut = sorted(dice.randint(0, len(data)) for _ in range(3))
        pieces = [data[: cut[0]], data[cut[0] : cut[1]], data[cut[1] : cut[2]], data[cut[2] :]]
        assert heard(*filter(None, pieces))[:-1] == heard(data)[:-1], (data, cut)
    assert read > 30


def is_refused_by_us_alone(data: bytes) -> bool:
    """A change of protocols, or control characters where a chunk's size is explained."""
    return b" 101 " in data or re.search(rb";[^\n]*[\0\r\x0b\x0c][^\n]", data) is not None


def test_a_request_is_a_head_and_no_more() -> None:
    asked = http1.request("PATCH", "/apis/x?a=b", [("Host", "h:1"), ("Accept", "application/json")])

    assert asked == b"PATCH /apis/x?a=b HTTP/1.1\r\nHost: h:1\r\nAccept: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "target", "header"),
    [
        ("GET /", "/", ("Host", "h")),
        ("", "/", ("Host", "h")),
        ("GET", "/a b", ("Host", "h")),
        ("GET", "/\r\nX: y", ("Host", "h")),
        ("GET", "", ("Host", "h")),
        ("GET", "/ü", ("Host", "h")),
        ("GET", "/", ("Authorization", "Bearer a\r\nX: y")),
        ("GET", "/", ("Authorization", "Bearer a\nX: y")),
        ("GET", "/", ("Authorization", "Bearer a\0")),
        ("GET", "/", ("Authorization", "Bearer \N{SNOWMAN}")),
        ("GET", "/", ("X Y", "z")),
        ("GET", "/", ("", "z")),
    ],
)
def test_nothing_can_be_put_into_a_request(
    method: str, target: str, header: tuple[str, str]
) -> None:
    with pytest.raises(ValueError, match="request|sent"):
        http1.request(method, target, [header])
