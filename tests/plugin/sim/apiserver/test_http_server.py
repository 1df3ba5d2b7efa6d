"""Tests of the bytes on a connection, with a plain socket."""

import asyncio
import contextlib
import email.utils
import http.client
import json
import socket
import time

import pytest

from claimd.common import http_server
from claimd.common.http_server import HttpResponse, Server
from claimd.sim.apiserver.server import Options, serve

PIECES = 50


@pytest.fixture
async def connection(api):
    host, port = api.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield reader, writer
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def answer(reader, body=True):
    """Returns the status, headers and body of a response."""
    async with asyncio.timeout(30):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        size = int(headers.get("content-length", 0)) if body else 0
        return int(head[0].split()[1]), headers, await reader.readexactly(size)


async def test_a_connection_is_kept_and_requests_may_wait_in_it(connection, api):
    reader, writer = connection
    request = f"GET /as/{api.token}/version HTTP/1.1\r\nHost: a\r\n\r\n"
    writer.write((request * 3).encode())
    for _ in range(3):
        status, _, body = await answer(reader)
        assert (status, json.loads(body)["major"]) == (200, "1")
    writer.write(request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").encode())
    assert (await answer(reader))[0] == 200
    assert await reader.read() == b""


async def test_bodies_in_pieces_and_bodies_that_wait_to_be_asked_for(connection, api, builders):
    reader, writer = connection
    place = f"POST /as/{api.token}/apis/resource.k8s.io/v1/namespaces/default/resourceclaims HTTP/1.1\r\nHost: a\r\n"
    body = json.dumps(builders["claim"]()).encode()
    writer.write(f"{place}Transfer-Encoding: chunked\r\n\r\n".encode())
    for part in (body[:10], body[10:], b""):
        writer.write(b"%x\r\n%b\r\n" % (len(part), part))
    assert (await answer(reader))[0] == 201
    other = json.dumps(builders["claim"]("d")).encode()
    writer.write(f"{place}Content-Length: {len(other)}\r\nExpect: 100-continue\r\n\r\n".encode())
    assert (await answer(reader))[0] == 100
    writer.write(other)
    assert (await answer(reader))[0] == 201


async def test_every_answer_has_its_time(connection, api):
    """Checks the Date header, which clients use to find out that their clock is wrong."""
    reader, writer = connection
    for path in ("version", "api/v1/nodes?watch=true"):
        before = int(time.time())
        writer.write(f"GET /as/{api.token}/{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        _, headers, _ = await answer(reader)
        told = email.utils.parsedate_to_datetime(headers["date"]).timestamp()
        assert before <= told <= time.time()


async def test_head(connection, api):
    reader, writer = connection
    writer.write(f"HEAD /as/{api.token}/version HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    status, headers, _ = await answer(reader, body=False)
    assert (status, int(headers["content-length"]) > 100) == (200, True)
    writer.write(f"GET /as/{api.token}/version HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert (await answer(reader))[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /version HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /" + b"a" * 1_500_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (
            b"POST /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n"
            b"Content-Length: 4000000\r\n\r\n" + b"a" * 4_000_000,
            413,
        ),
        (b"POST /version HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
async def test_what_is_no_request_ends_the_connection(connection, api, sent, status):
    reader, writer = connection
    writer.write(sent.replace(b"TOKEN", api.token.encode()))
    with contextlib.suppress(ConnectionError):
        assert (await answer(reader))[0] == status
        assert await reader.read() == b""


@pytest.mark.slow
async def test_a_watch_ends_for_who_does_not_read(builders, until, connect):
    """Checks that the queue of a watch is not longer than the window of changes."""
    async with serve(Options(window=50)) as api, connect(api) as ask:
        host, port = api.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        maps = "/api/v1/namespaces/default/configmaps"
        writer.write(f"GET /as/{api.token}{maps}?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await until(lambda: api.registry.store.watching == 1)
        for number in range(200):
            await ask(
                "POST", maps, {"metadata": {"name": f"m{number}"}, "data": {"a": "b" * 100_000}}
            )
        while await reader.read(1 << 20):
            pass
        assert api.registry.store.watching == 0
        writer.close()


async def test_a_watch_ends_when_who_asked_hangs_up(connection, api, until):
    reader, writer = connection
    writer.write(f"GET /as/{api.token}/api/v1/pods?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    await answer(reader)
    await until(lambda: api.registry.store.watching == 1)
    writer.close()
    await until(lambda: api.registry.store.watching == 0)


async def test_a_stream_says_that_it_closes_the_connection(connection, api):
    """Checks the header. Without it, clients would send their next request on this connection."""
    reader, writer = connection
    path = f"/as/{api.token}/api/v1/pods?watch=1&timeoutSeconds=1"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    status, headers, _ = await answer(reader, body=False)
    assert (status, headers["connection"]) == (200, "close")
    assert await reader.read() == b"0\r\n\r\n"


async def test_a_client_that_keeps_its_connection_after_a_watch(api):
    """Uses a connection again after a watch, as urllib3 does for the official Python client."""

    def ask():
        connection = http.client.HTTPConnection(api.address.removeprefix("http://"), timeout=60)
        for _ in range(3):
            connection.request("GET", f"/as/{api.token}/api/v1/pods?watch=1&timeoutSeconds=1")
            assert connection.getresponse().read() == b""
            connection.request("GET", f"/as/{api.token}/version")
            assert connection.getresponse().status == 200
            connection.close()

    await asyncio.to_thread(ask)


@pytest.mark.parametrize("turns", range(6))
async def test_nobody_who_comes_while_it_stops_waits_for_an_answer(turns):
    """Checks that a stopping server closes all connections, even those in the kernel's queue."""
    with contextlib.ExitStack() as stack:
        async with serve(Options()) as api:
            host, port = api.address.removeprefix("http://").split(":")
            clients = [
                stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(20)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
        for client in clients:
            client.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""


# ---------------------------------------------------------------- responses in pieces


@pytest.fixture
async def pieces_server():
    """Answers /list in pieces and all other paths at once, and records the order of the pieces."""
    order = []

    def pieces(name):
        for number in range(PIECES):
            order.append(name)
            if (name, number) == ("broken", 3):
                raise ValueError("this piece cannot be made")
            yield b"x" * 1000

    def respond(request):
        name = request.param("name")
        if request.path == "/list":
            return HttpResponse(200, pieces=pieces(name))
        order.append(name)
        return HttpResponse(200, b"small")

    server = Server(respond, respond, max_in_flight=100)
    port = await server.start("127.0.0.1", 0)

    async def ask(path, version="1.1"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(30):
            body = await reader.read()
        writer.close()
        return body

    yield ask, order
    await server.stop()


async def test_a_neighbour_of_a_long_list_is_answered_in_between(pieces_server):
    ask, order = pieces_server
    lists = [asyncio.create_task(ask(f"/list?name=list{number}")) for number in range(20)]
    while "list19" not in order:
        await asyncio.sleep(0)
    assert b"small" in await ask("/small?name=neighbour")
    answers = await asyncio.gather(*lists)
    assert all(answer.endswith(b"\r\n0\r\n\r\n") for answer in answers)
    assert all(answer.count(b"x" * 1000) == PIECES for answer in answers)

    # Only few of a thousand pieces are made before the other request is answered, and no list comes
    # first.
    assert order.index("neighbour") < len(order) / 2
    first_to_end = min(len(order) - order[::-1].index(f"list{number}") for number in range(20))
    assert first_to_end > len(order) - 40


async def test_a_piece_that_cannot_be_made_ends_the_response_and_no_other(pieces_server, caplog):
    ask, _ = pieces_server
    broken, whole = await asyncio.gather(ask("/list?name=broken"), ask("/list?name=other"))
    assert (broken.count(b"x" * 1000), whole.count(b"x" * 1000)) == (3, PIECES)
    assert not broken.endswith(b"0\r\n\r\n"), "its client sees that something is missing"
    assert "this piece cannot be made" in caplog.text


async def test_pieces_for_a_client_of_an_older_http(pieces_server):
    """Checks that a client without chunks can read until the end of the connection."""
    ask, _ = pieces_server
    reply = await ask("/list?name=old", version="1.0")
    _, _, body = reply.partition(b"\r\n\r\n")
    assert body == b"x" * 1000 * PIECES


def test_a_connection_gives_back_what_it_has_taken_and_no_more():
    size = 1 << 20
    limits = http_server._Limits(
        http_server._Budget(size), http_server._Budget(size), asyncio.Lock()
    )
    share = http_server._Share(limits, lambda: 0.0)
    for _ in range(3):
        share.take(http_server.SMALL + 100)
        assert limits.heads.left == size - 100
        share.release()
        assert limits.heads.left == size
