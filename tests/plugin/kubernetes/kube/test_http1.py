"""Tests of the HTTP/1.1 parser, compared with h11 on the same bytes."""

from __future__ import annotations

import random

import pytest

from claimd.kubernetes.kube import http1
from tests.support import http_answers as answers


@pytest.mark.parametrize("data", answers.RESPONSES.values(), ids=answers.RESPONSES)
def test_a_response_is_read_as_others_read_it(data: bytes) -> None:
    expected = answers.heard_by_h11(data)

    assert expected[0] != "refused"
    assert answers.heard(data) == expected
    assert answers.heard(*(bytes([byte]) for byte in data))[:-1] == expected[:-1], "in single bytes"


@pytest.mark.parametrize("data", answers.REFUSED.values(), ids=answers.REFUSED)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    assert answers.heard(data) == ["refused"] == answers.heard_by_h11(data)
    assert answers.heard(*(bytes([byte]) for byte in data)) == ["refused"], "in single bytes"


def test_what_was_said_in_two_ways_ends_the_connection() -> None:
    """A proxy may have followed the other header. h11 would use such a connection again."""
    data = answers.head("Content-Length: 5", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n"

    *response, may_repeat = answers.heard(data)

    assert response == answers.heard_by_h11(data)[:-1]
    assert not may_repeat


def test_another_protocol_is_refused() -> None:
    assert answers.heard(answers.head("Upgrade: h2c", status="101 Switching Protocols")) == [
        "refused"
    ]


def test_a_connection_has_one_response_after_the_other() -> None:
    responses = http1.Responses()
    for body in (b"{}", b"[]"):
        responses.expect()
        assert not responses.has_begun
        responses.receive(answers.head("Content-Length: 2"))
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


def mutate(dice: random.Random) -> bytes:
    data = dice.choice([*answers.RESPONSES.values(), *answers.REFUSED.values()])[:400]
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(data))
        after = at + dice.choice([0, 0, 1, 2, 5])
        data = data[:at] + dice.choice([b"", *PIECES]) + data[after:]
    return data


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_read_that_others_read_in_another_way(seed: int) -> None:
    """Odd bytes are either read as h11 reads them, or refused."""
    dice = random.Random(seed)
    read = 0
    for _ in range(400):
        data = mutate(dice)
        ours, theirs = answers.heard(data), answers.heard_by_h11(data)
        if ours == ["refused"]:
            assert theirs == ["refused"] or answers.is_refused_by_us_alone(data), data
            continue
        read += 1
        assert ours[:-1] == theirs[:-1], data
        assert theirs[-1] or not ours[-1], "a connection that h11 would not use again"

        cut = sorted(dice.randint(0, len(data)) for _ in range(3))
        pieces = [data[: cut[0]], data[cut[0] : cut[1]], data[cut[1] : cut[2]], data[cut[2] :]]
        assert answers.heard(*filter(None, pieces))[:-1] == answers.heard(data)[:-1], (data, cut)
    assert read > 30


def test_a_request_is_a_head_and_no_more() -> None:
    head = http1.request("PATCH", "/apis/x?a=b", [("Host", "h:1"), ("Accept", "application/json")])

    assert head == b"PATCH /apis/x?a=b HTTP/1.1\r\nHost: h:1\r\nAccept: application/json\r\n\r\n"


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
