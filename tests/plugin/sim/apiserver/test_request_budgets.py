"""Tests of requests that are never finished, or are larger than a server can hold: what each costs."""

import asyncio
import contextlib

import pytest

from claimd.common import http_server
from claimd.common.http_server import HttpResponse, Server

HALF = b"x" * 600_000
MAPS = "/api/v1/namespaces/default/configmaps"


def head(path, *headers, method="POST", size=3 << 20):
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Content-Length: {size}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture
async def clients():
    """Returns a function that opens a connection. All of them are closed after the test."""
    opened = []

    async def open_one(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return reader, writer

    yield open_one
    for writer in opened:
        writer.transport.abort()


async def status_of(reader):
    """Returns the status of the response, and the rest of its head in lower case."""
    async with asyncio.timeout(30):
        first, _, rest = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")
        return int(first.split()[1]), rest.lower()


async def ended(reader):
    """Waits until the server has ended the connection."""
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(1 << 16):
                pass


def port_of(api):
    return int(api.address.rpartition(":")[2])


@pytest.fixture
async def small_server():
    """Starts servers that answer each request with its size, and stops them."""
    started = []

    async def start(**options):
        answered = []

        def respond(request):
            answered.append(request.path)
            return HttpResponse(200, str(len(request.body)).encode())

        server = Server(respond, lambda _: HttpResponse(429), 100, **options)
        started.append(server)
        return await server.start("127.0.0.1", 0), answered

    yield start
    for server in started:
        await server.stop()


# ---------------------------------------------------------------- clients without rights


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 403),
        (("Authorization: Bearer wrong",), 401),
        (("Authorization: Bearer wrong", "Expect: 100-continue"), 401),
    ],
)
async def test_half_a_body_of_a_stranger_is_refused_at_once(api, clients, words, status):
    reader, writer = await clients(port_of(api))
    writer.write(head(MAPS, *words) + (b"" if "Expect: 100-continue" in words else HALF))
    answered, headers = await status_of(reader)
    assert (answered, "connection: close" in headers) == (status, True)
    writer.write_eof()
    await ended(reader)


async def test_a_token_in_the_path_is_authenticated_before_the_body_too(api, clients):
    reader, writer = await clients(port_of(api))
    writer.write(head(f"/as/wrong{MAPS}") + HALF)
    assert (await status_of(reader))[0] == 401


async def test_an_account_without_the_right_is_refused_before_the_body(api, clients):
    token = api.token_of("somebody")
    reader, writer = await clients(port_of(api))
    writer.write(head(MAPS, f"Authorization: Bearer {token}") + HALF)
    assert (await status_of(reader))[0] == 403


async def test_a_refused_client_that_goes_on_sending_gets_its_answer(api, clients):
    """Checks that the rest of the body is read, because a reset would take the answer away."""
    reader, writer = await clients(port_of(api))
    writer.write(head(MAPS) + HALF)
    rest = (3 << 20) - len(HALF)
    for _ in range(rest // 100_000):
        writer.write(b"x" * 100_000)
        await writer.drain()
    assert (await status_of(reader))[0] == 403


async def test_who_may_write_sends_a_body_in_parts(api, clients):
    reader, writer = await clients(port_of(api))
    body = b'{"metadata":{"name":"a"},"data":{"a":"%s"}}' % HALF
    writer.write(head(f"/as/{api.token}{MAPS}", size=len(body)) + body[:300_000])
    await writer.drain()
    writer.write(body[300_000:])
    assert (await status_of(reader))[0] == 201


async def test_a_body_of_chunks_is_not_read_before_the_refusal(small_server, clients):
    """Checks that a stranger's many small chunks, all of which have arrived, cost no time."""
    port, answered = await small_server(refuse=lambda _: HttpResponse(401))
    lines = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await clients(port)
    writer.write(lines.encode() + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n")
    assert (await status_of(reader))[0] == 401
    assert not answered


async def test_a_neighbour_has_its_turn_between_the_chunks_of_a_body(small_server, clients):
    port, answered = await small_server()
    lines = "POST /large HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    (first, large), (second, small) = await clients(port), await clients(port)
    large.write(lines.encode() + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
    small.write(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
    assert [(await status_of(reader))[0] for reader in (second, first)] == [200, 200]
    assert answered == ["/small", "/large"]


# ---------------------------------------------------------------- budgets of all connections


async def test_unfinished_heads_have_a_budget(small_server, clients, monkeypatch):
    monkeypatch.setattr(http_server, "ALL_HEADS", 1 << 20)
    port, _ = await small_server()
    flood = [await clients(port) for _ in range(12)]
    for _, writer in flood:
        writer.write(b"GET /" + b"a" * 200_000)

    # Of twelve there is room for seven: each takes what goes beyond 64 KiB.
    waiting = {asyncio.create_task(status_of(reader)) for reader, _ in flood}
    refused = set()
    while len(refused) < 5:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused |= done
    assert {task.result()[0] for task in refused} == {429}
    assert len(waiting) == 7
    for task in waiting:
        task.cancel()

    # A small request needs no share. When the flood is over, a large one is served as well.
    reader, writer = await clients(port)
    writer.write(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await status_of(reader))[0] == 200
    for reader, writer in flood:
        writer.close()
        await ended(reader)
    reader, writer = await clients(port)
    writer.write(b"GET /" + b"a" * 900_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await status_of(reader))[0] == 200


async def test_unfinished_bodies_have_a_budget(small_server, clients, monkeypatch):
    monkeypatch.setattr(http_server, "ALL_BODIES", 2 << 20)
    port, _ = await small_server()
    flood = [await clients(port) for _ in range(6)]
    for _, writer in flood:
        writer.write(head("/a") + HALF)

    # Of six there is room for three.
    waiting = {asyncio.create_task(status_of(reader)) for reader, _ in flood}
    refused = set()
    while len(refused) < 3:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused |= done
    assert {task.result()[0] for task in refused} == {429}
    for task in waiting:
        task.cancel()

    reader, writer = await clients(port)
    writer.write(head("/small", size=5) + b"hello")
    assert (await status_of(reader))[0] == 200
    for reader, writer in flood:
        writer.close()
        await ended(reader)

    # Each finished request gives its share back, also on the same connection.
    reader, writer = await clients(port)
    for _ in range(3):
        writer.write(head("/large", size=1_500_000) + b"x" * 1_500_000)
        assert (await status_of(reader))[0] == 200
        assert await reader.readexactly(7) == b"1500000"


async def test_a_request_has_a_time(small_server, clients, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_TIME", 0.05)
    port, _ = await small_server()
    idle_reader, idle_writer = await clients(port)
    idle_writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await status_of(idle_reader))[0] == 200
    for begun in (b"GET /", head("/a") + b"x"):
        reader, writer = await clients(port)
        writer.write(begun)
        await ended(reader)

    # A connection without a request may wait for as long as it likes.
    idle_writer.write(b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n")
    assert await idle_reader.readexactly(1) == b"0"
    assert (await status_of(idle_reader))[0] == 200


# ---------------------------------------------------------------- many small things


async def test_parameters_have_a_limit(small_server, clients):
    port, answered = await small_server()
    for count, status in ((http_server.MAX_PARAMETERS, 200), (http_server.MAX_PARAMETERS + 1, 400)):
        reader, writer = await clients(port)
        query = "&".join(f"a{number}=b" for number in range(count))
        writer.write(f"GET /{count}?{query} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert (await status_of(reader))[0] == status
    assert answered == [f"/{http_server.MAX_PARAMETERS}"]
