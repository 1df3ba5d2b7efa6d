"""Tests of requests, kept connections and streams of lines, against a real server."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator

import pytest

from claimd.common import metrics
from claimd.kubernetes.kube import client, errors
from tests.plugin.kubernetes.kube.conftest import Connect, server_context
from tests.support import apiserver

NODE = "/api/v1/nodes/n"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture(autouse=True)
def node(api: apiserver.ApiServer) -> None:
    api.put("nodes", {"metadata": {"name": "n", "uid": "u-1"}})


def slice_body(name: str) -> bytes:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": []}
    meta = {"name": name}
    return json.dumps(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": meta,
            "spec": spec,
        }
    ).encode()


async def test_connections_are_kept_and_the_last_is_used_first(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url)
    for _ in range(5):
        assert json.loads(await kube.request("GET", NODE))["metadata"]["uid"] == "u-1"
    assert api.connections == 1
    await asyncio.gather(*(kube.request("GET", NODE) for _ in range(4)))
    assert api.connections == 4
    last = api.requests[-1].connection
    for _ in range(3):
        await kube.request("GET", NODE)
        assert api.requests[-1].connection == last
    assert api.requests[0].headers["user-agent"] == "test"
    assert api.requests[0].headers["host"] == f"127.0.0.1:{api.port}"


async def test_requests_are_counted_by_what_became_of_them(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url)
    before = dict(metrics.API_REQUESTS.values)
    timed = sum(metrics.API_SECONDS.counts.get(("GET",), []))
    seconds = metrics.API_SECONDS.sums.get(("GET",), 0.0)
    await kube.request("GET", NODE)
    api.fail(503)
    for path in (NODE, "/api/v1/nodes/other"):
        with pytest.raises(errors.ApiError):
            await kube.request("GET", path)
    api.gate.clear()
    with pytest.raises(errors.Unreachable):
        await kube.request("GET", NODE, timeout=0.05)
    given_up = asyncio.ensure_future(kube.request("GET", NODE))
    await apiserver.until(lambda: api.count("GET") == 5)
    given_up.cancel()
    await asyncio.wait([given_up])
    outcomes = ("Success", "ServerError", "NotFound", "Unreachable", "Abandoned")
    values = metrics.API_REQUESTS.values
    assert [values["GET", outcome] - before.get(("GET", outcome), 0) for outcome in outcomes] == [
        1
    ] * 5
    assert sum(metrics.API_SECONDS.counts["GET",]) - timed == 5
    assert metrics.API_SECONDS.sums["GET",] - seconds >= 0.05


async def test_many_requests_share_the_connections(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url)
    api.gate.clear()
    requests = [asyncio.ensure_future(kube.request("GET", NODE)) for _ in range(32)]
    await apiserver.until(lambda: api.count("GET") == 8)
    api.gate.set()
    await asyncio.gather(*requests)
    assert (api.connections, api.count("GET")) == (8, 32)


async def test_small_writes_are_not_delayed(api: apiserver.ApiServer, connect: Connect) -> None:
    kube = connect(api.url)
    await kube.request("GET", NODE)
    (connection,) = kube._open
    assert connection.stream.transport.get_extra_info("socket").getsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY
    )


async def test_a_dead_kept_connection_fails_no_request(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url)
    await kube.request("GET", NODE)
    await api.stop()
    await api.start()
    await kube.request(
        "POST", SLICES, body=slice_body("a")
    )  # the end was seen before the request was sent
    assert api.connections == 2


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", NODE, None),
        ("DELETE", f"{SLICES}/s", b"{}"),
        ("PUT", f"{SLICES}/s", slice_body("s")),
    ],
    ids=["get", "delete", "put"],
)
async def test_a_connection_that_is_closed_at_the_moment_of_use(
    api: apiserver.ApiServer, connect: Connect, method: str, path: str, body: bytes | None
) -> None:
    """The server closes a kept connection while our request is on its way.

    The client sends the request again on a new connection.
    """
    api.put("resourceslices", json.loads(slice_body("s")))
    kube = connect(api.url)
    await kube.request("GET", NODE)
    api.fail(kind="hangup", method=method)
    await kube.request(method, path, body=body)
    assert [r.connection for r in api.requests] == [1, 1, 2]


async def test_a_create_is_never_sent_twice(api: apiserver.ApiServer, connect: Connect) -> None:
    kube = connect(api.url)
    await kube.request("GET", NODE)
    api.fail(kind="hangup", method="POST")
    with pytest.raises(errors.Unreachable, match="closed the connection without an answer"):
        await kube.request("POST", SLICES, body=slice_body("a"))
    assert api.count("POST") == 1


async def test_a_fresh_connection_that_is_closed_is_an_error(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url)
    api.fail(kind="hangup", times=5)
    with pytest.raises(errors.Unreachable):
        await kube.request("GET", NODE)
    assert api.count("GET") == 1


async def test_a_broken_answer_is_not_asked_for_again(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url)
    await kube.request("GET", NODE)
    api.fail(kind="truncate")
    with pytest.raises(errors.Unreachable, match="broke off its answer"):
        await kube.request("GET", NODE)
    assert api.count("GET") == 2
    await kube.request("GET", NODE)


async def test_a_cancelled_request_leaves_no_half_used_connection(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url, limit=2)
    api.put("nodes", {"metadata": {"name": "m", "uid": "u-2"}})
    for _ in range(5):
        api.gate.clear()
        before = api.count("GET")
        requests = [asyncio.ensure_future(kube.request("GET", NODE)) for _ in range(3)]
        await apiserver.until(lambda before=before: api.count("GET") == before + 2)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        assert all(request.cancelled() for request in requests)
        assert not kube._open
        api.gate.set()
        answer = await kube.request("GET", "/api/v1/nodes/m")
        assert json.loads(answer)["metadata"]["uid"] == "u-2"


async def test_the_answer_comes_in_time_or_not_at_all(
    api: apiserver.ApiServer, connect: Connect
) -> None:
    kube = connect(api.url, limit=1)
    api.fail(kind="silent", times=2)
    with pytest.raises(
        errors.Unreachable,
        match=rf"GET {NODE}: no answer from http://127.0.0.1:{api.port} within 0.1",
    ):
        await kube.request("GET", NODE, timeout=0.1)
    blocked = asyncio.ensure_future(kube.request("GET", NODE, timeout=5))
    await apiserver.until(lambda: api.count("GET") == 2)
    with pytest.raises(errors.Unreachable):  # the wait for a connection counts
        await kube.request("GET", NODE, timeout=0.1)
    blocked.cancel()
    await asyncio.wait([blocked])
    assert await kube.request("GET", NODE)


async def test_the_connections_of_a_burst_are_closed_later(
    api: apiserver.ApiServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "IDLE", 0.3)
    kube = connect(api.url)
    await asyncio.gather(*(kube.request("GET", NODE) for _ in range(4)))
    assert len(kube._open) == 4
    await apiserver.until(lambda: len(kube._open) == 1)
    await kube.request("GET", NODE)
    assert api.connections == 4


@pytest.mark.parametrize(
    ("status", "kind", "transient"),
    [
        (400, errors.ApiError, False),
        (401, errors.Unauthorized, True),
        (403, errors.Forbidden, False),
        (404, errors.NotFound, False),
        (409, errors.Conflict, False),
        (410, errors.Gone, False),
        (422, errors.Invalid, False),
        (429, errors.TooManyRequests, True),
        (500, errors.ServerError, True),
        (503, errors.ServerError, True),
    ],
)
async def test_answers_become_errors(
    api: apiserver.ApiServer,
    connect: Connect,
    status: int,
    kind: type[errors.ApiError],
    transient: bool,
) -> None:
    kube = connect(api.url)
    api.fail(status, headers={"Retry-After": "7"})
    with pytest.raises(errors.ApiError) as caught:
        await kube.request("GET", NODE)
    assert type(caught.value) is kind
    assert errors.is_transient(caught.value) == transient
    assert (caught.value.status, caught.value.retry_after, caught.value.reason) == (
        status,
        7.0,
        "Ordered",
    )
    assert str(caught.value) == f"GET {NODE}: {status} Ordered: ordered by a test"
    await kube.request("GET", NODE)
    assert api.connections == 1  # an error is an answer: the connection goes on


async def test_an_error_that_is_no_status(api: apiserver.ApiServer, connect: Connect) -> None:
    api.fail(502, body=b"<html>bad gateway \xff")
    with pytest.raises(errors.ServerError, match="502 error: <html>bad gateway"):
        await connect(api.url).request("GET", NODE)


async def test_nobody_listens(api: apiserver.ApiServer, connect: Connect) -> None:
    await api.stop()
    with pytest.raises(
        errors.Unreachable, match=rf"127.0.0.1:{api.port} refused the connection; is the API server"
    ):
        await connect(api.url).request("GET", NODE)


async def test_an_address_that_says_nothing(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server never accepts the connection, as behind a firewall that drops packets."""
    monkeypatch.setattr(client, "CONNECT_TIMEOUT", 0.2)
    with socket.socket() as listener, contextlib.ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # until the kernel queues nobody any more
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(errors.Unreachable, match=r"did not take the connection within 0.2 s"):
            await connect(url).request("GET", NODE)


async def test_a_name_without_an_address(connect: Connect) -> None:
    with pytest.raises(errors.Unreachable, match="has no address"):
        await connect("http://no-such-host.invalid:80").request("GET", NODE)


async def test_a_server_that_does_not_speak_http(connect: Connect) -> None:
    async with raw_server(b"220 mail.test ESMTP\r\n\r\n") as url:
        with pytest.raises(errors.Unreachable, match="does not speak HTTP"):
            await connect(url).request("GET", NODE)


@contextlib.asynccontextmanager
async def raw_server(*pieces: bytes, until: bytes = b"\r\n\r\n") -> AsyncIterator[str]:
    """Answers each request that ends with `until` with the pieces, and leaves the connection open.

    The pieces are sent one by one.
    """
    writers = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(until)
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)  # so that they arrive one by one

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_an_answer_without_end_is_cut_off(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LARGEST", 50_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"
    async with raw_server(head, b"x" * 60_000) as url:
        kube = connect(url)
        with pytest.raises(errors.Malformed, match=rf"GET {NODE}: an answer of more than"):
            await kube.request("GET", NODE)
        assert not kube._open
        await kube.close()


@pytest.mark.parametrize(("size", "is_refused"), [(1000, False), (1001, True)])
@pytest.mark.parametrize("lines", [False, True], ids=["request", "watch"])
async def test_an_answer_has_a_budget(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, lines: bool, size: int, is_refused: bool
) -> None:
    monkeypatch.setattr(client, "LARGEST", 1000 + lines)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {size + lines}\r\n\r\n".encode()
    async with raw_server(head, b"x" * size + b"\n" * lines) as url:
        kube = connect(url)
        if lines:
            answer = anext(kube.lines(SLICES, {"watch": "true"}, idle=5))
        else:
            answer = kube.request("GET", NODE)
        if is_refused:
            with pytest.raises(errors.Malformed, match=r"of more than 1,00\d bytes"):
                await answer
        else:
            assert await answer == b"x" * size
        await kube.close()


@pytest.mark.parametrize("lines", [False, True], ids=["request", "watch"])
async def test_a_server_that_only_promises_an_answer(connect: Connect, lines: bool) -> None:
    """Endless interim responses are an error after a few of them, and only for this request."""
    head = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    async with raw_server(head * 50_000) as url:
        kube = connect(url)
        with pytest.raises(errors.Malformed, match=r"GET \S+: more than 8 interim responses"):
            if lines:
                await anext(kube.lines(SLICES, {"watch": "true"}, idle=5))
            else:
                await kube.request("GET", NODE)
        assert not kube._open


async def test_a_few_interim_responses_are_nothing(connect: Connect) -> None:
    head = b"HTTP/1.1 103 Early Hints\r\n\r\n" * client.MOST_INFORMATIONAL
    async with raw_server(head + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as url:
        assert await connect(url).request("GET", NODE) == b"{}"


async def test_neighbours_have_their_turn_while_an_answer_comes_in_crumbs(connect: Connect) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    crumbs = b"1\r\nx\r\n" * 30_000
    longest, last = 0.0, time.thread_time()

    async def neighbour() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    async with raw_server(head + crumbs + b"0\r\n\r\n") as url:
        kube = connect(url)
        watching = asyncio.ensure_future(neighbour())
        answer = await kube.request("GET", NODE)
        watching.cancel()
    assert answer == b"x" * 30_000
    assert longest < 0.25, "what arrives at once takes a second"


async def test_lines_are_put_together_from_pieces(connect: Connect) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw_server(
        head, b'9\r\n{"a":1}\n{\r\n', b'4\r\n"b":\r\n3\r\n2', b"}\n\r\n0\r\n\r\n"
    ) as url:
        kube = connect(url)
        assert [line async for line in kube.lines("/x", {}, idle=5)] == [b'{"a":1}', b'{"b":2}']
        assert not kube._open
        await kube.close()


async def test_a_silent_watch_ends(api: apiserver.ApiServer, connect: Connect) -> None:
    api.silent_watches = True
    kube = connect(api.url)
    with pytest.raises(errors.Unreachable, match=r"was silent for 0.1 s"):
        async for _ in kube.lines(SLICES, {"watch": "true"}, idle=0.1):
            pass
    assert not kube._open


async def test_a_watch_that_is_broken_off(api: apiserver.ApiServer, connect: Connect) -> None:
    kube = connect(api.url)
    lines = kube.lines(SLICES, {"watch": "true"}, idle=5)
    first = asyncio.ensure_future(anext(lines))
    await apiserver.until(lambda: api.watches)
    await api.cut()
    with pytest.raises(errors.Unreachable):
        await first


async def test_a_watch_that_is_refused_says_why(api: apiserver.ApiServer, connect: Connect) -> None:
    api.fail(410)
    with pytest.raises(errors.Gone, match="ordered by a test"):
        await anext(connect(api.url).lines(SLICES, {"watch": "true"}, idle=5))


async def test_a_watch_does_not_use_up_a_slot(api: apiserver.ApiServer, connect: Connect) -> None:
    kube = connect(api.url, limit=1)
    async with contextlib.aclosing(kube.lines(SLICES, {"watch": "true"}, idle=5)) as lines:
        first = asyncio.ensure_future(anext(lines))
        await apiserver.until(lambda: api.watches)
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": {"driver": "d"}})
        assert json.loads(await first)["type"] == "ADDED"
        await kube.request("GET", NODE)
    assert len(kube._open) == 1


async def test_tls_with_the_right_authority(pki, connect: Connect) -> None:
    async with apiserver.serve(server_context(pki.server, pki.server_key)) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca)
        await kube.request("GET", NODE)
        await kube.request("GET", NODE)
        assert api.connections == 1
        named = connect(api.url, ca=pki.ca.read_text(), server_name="kubernetes.test")
        await named.request("GET", NODE)
        await kube.close()
        await named.close()


async def test_tls_trusts_nobody_else(pki, connect: Connect) -> None:
    async with apiserver.serve(server_context(pki.server, pki.server_key)) as api:
        for more in ({"ca": pki.other_ca}, {"ca": pki.ca, "server_name": "evil.test"}, {}):
            with pytest.raises(
                errors.Unreachable, match="is not trusted: .*; expected a certificate for"
            ):
                await connect(api.url, **more).request("GET", NODE)
        assert not api.requests
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.other_ca, verify=False)
        await kube.request("GET", NODE)
        await kube.close()


async def test_a_new_authority_is_noticed_on_reconnect(pki, connect: Connect, tmp_path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(pki.other_ca.read_bytes())
    async with apiserver.serve(server_context(pki.server, pki.server_key)) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=ca)
        with pytest.raises(errors.Unreachable):
            await kube.request("GET", NODE)
        ca.write_bytes(pki.ca.read_bytes())
        await kube.request("GET", NODE)
        ca.write_text("rubbish")  # half written: the one from before is better than none
        await api.cut()
        await kube.request("GET", NODE)
        assert api.connections == 2  # the refused one never became one
        await kube.close()


async def test_a_client_certificate(pki, connect: Connect) -> None:
    async with apiserver.serve(server_context(pki.server, pki.server_key, clients=pki.ca)) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca, certificate=pki.client, key=pki.client_key)
        await kube.request("GET", NODE)
        with pytest.raises(errors.Unreachable):
            await connect(api.url, ca=pki.ca).request("GET", NODE)
        await kube.close()


async def test_plain_http_where_tls_is_expected(pki, connect: Connect) -> None:
    async with apiserver.serve(server_context(pki.server, pki.server_key)) as secure:
        with pytest.raises(errors.Unreachable):
            await connect(secure.url.replace("https", "http")).request("GET", NODE)
    async with raw_server(
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", until=b"\x16"
    ) as url:
        with pytest.raises(errors.Unreachable, match="no TLS in common"):
            await connect(url.replace("http", "https"), ca=pki.ca).request("GET", NODE)


async def test_others_have_their_turn_after_so_many_pieces(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        if seconds == 0:
            turns.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(client, "PIECES_A_TURN", 5)
    monkeypatch.setattr(client.asyncio, "sleep", counted)
    chunks = b"1\r\nx\r\n" * 22 + b"0\r\n\r\n"
    async with raw_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) as url:
        assert await connect(url).request("GET", NODE) == b"x" * 22
    # The head, the chunks, the end.
    assert len(turns) == 24 // 5


async def test_a_watch_that_does_not_begin_leaves_nothing_behind(
    api: apiserver.ApiServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.gate.clear()
    kube = connect(api.url)
    waiting = asyncio.ensure_future(anext(kube.lines(SLICES, {"watch": "true"}, idle=5)))
    await apiserver.until(lambda: api.count("GET") == 1)
    assert len(kube._open) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not kube._open

    monkeypatch.setattr(client, "CONNECT_TIMEOUT", 0.1)
    expected = rf"GET {SLICES}: no answer from {api.url} within 0.1 s"
    with pytest.raises(errors.Unreachable, match=expected):
        await anext(kube.lines(SLICES, {"watch": "true"}, idle=5))
    assert not kube._open

    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20
    async with raw_server(interim) as url:
        other = connect(url)
        with pytest.raises(errors.Malformed, match=r"GET \S+: more than 8 interim responses"):
            await anext(other.lines(SLICES, {"watch": "true"}, idle=5))
        assert not other._open


async def test_an_answer_that_nobody_asked_for_answers_nothing(connect: Connect) -> None:
    """Otherwise the next request would take the stray bytes for its answer."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: "
    connections = 0
    ended = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"1\r\n\r\n%d" % connections)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(head + b"7\r\n\r\nunasked")
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        ended.release()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kube = connect(f"http://127.0.0.1:{port}")
    assert await kube.request("GET", NODE) == b"1"
    (connection,) = kube._open
    await apiserver.until(lambda: not connection.is_idle())
    assert await kube.request("GET", NODE) == b"2"
    await kube.close()
    for _ in range(connections):
        await ended.acquire()
    server.close()
