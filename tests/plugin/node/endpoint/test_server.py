"""The endpoint over real sockets, asked by the probe and by hand."""

import asyncio
import contextlib
import os
import resource
import select
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

import pytest

from claimd.common import errors, metrics, probe
from claimd.node.endpoint import exposition, listening
from claimd.node.endpoint import server as endpoint
from tests.support import flood


@pytest.fixture(params=["unix", "tcp"])
async def served(request, unused_tcp_port):
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        address = (
            f"unix:{folder}/e.sock" if request.param == "unix" else f"127.0.0.1:{unused_tcp_port}"
        )
        reasons = []
        running = asyncio.create_task(endpoint.Endpoint(address, lambda: "; ".join(reasons)).run())
        async with asyncio.timeout(30):
            while not (await ask(address, "/livez"))[0]:
                pass
        yield address, reasons
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def ask(address, path, timeout=3.0):
    return await asyncio.to_thread(probe.ask, address, path, timeout)


async def test_answers(served):
    address, reasons = served
    assert await ask(address, "/livez") == (True, "ok")
    assert await ask(address, "/readyz") == (True, "ok")
    reasons.append("not yet")
    assert await ask(address, "/readyz") == (False, "not yet")
    assert await ask(address, "/livez") == (True, "ok"), "not ready is still alive"
    assert (await ask(address, "/other"))[0] is False


async def test_a_reason_for_a_restart_makes_it_dead(tmp_path):
    reasons = []
    address = f"unix:{tmp_path}/e.sock"
    dead = endpoint.Endpoint(address, str, lambda: "; ".join(reasons))
    running = asyncio.create_task(dead.run())
    try:
        async with asyncio.timeout(30):
            while not (await ask(address, "/livez"))[0]:
                pass
        reasons.append("nobody answers")
        assert await ask(address, "/livez") == (False, "nobody answers")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_metrics_are_served_as_prometheus_reads_them(served):
    address, _ = served
    head, _, body = (await raw(address, b"GET /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4" in head
    assert body.decode() == exposition.text(metrics.ALL, exposition.PLAIN) + "\n"
    assert b"claimd_records_damaged_total" in body


async def test_who_asks_for_openmetrics_gets_it(served):
    address, _ = served
    request = (
        b"GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.3\r\n"
        b"Accept:application/openmetrics-text;version=1.0.0;q=0.5\r\n\r\n"
    )
    head, _, body = (await raw(address, request)).partition(b"\r\n\r\n")
    assert b"\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8" in head
    assert f"\r\nContent-Length: {len(body)}\r\n" in head.decode()
    assert body.endswith(b"\n# EOF\n")


async def test_an_answer_that_is_larger_than_the_buffers_arrives_whole(tmp_path):
    """The server waits for the request first, and then until it can write the rest."""
    large = "x" * (8 << 20)
    server = endpoint.Endpoint(f"unix:{tmp_path}/e.sock", lambda: large)
    running = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(15):
            while not (await ask(f"unix:{tmp_path}/e.sock", "/livez"))[0]:
                pass
            reader, writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
            while not server._clients:
                await asyncio.sleep(0.01)
            writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
            _, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
        assert body.decode() == f"{large}\n"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_client_whose_answer_fails_is_hung_up_on(tmp_path):
    """Else it kept its descriptor and its place for ever."""

    def mistaken():
        raise RuntimeError("a mistake")

    server = endpoint.Endpoint(f"unix:{tmp_path}/e.sock", mistaken)
    running = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(30):
            while not (await ask(f"unix:{tmp_path}/e.sock", "/livez"))[0]:
                pass

            # It is waited for first, so that it has a place of its own.
            reader, writer = await asyncio.open_unix_connection(tmp_path / "e.sock")
            while not server._clients:
                await asyncio.sleep(0.01)
            writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
            assert await reader.read() == b""
            writer.close()
        assert not server._clients
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def raw(address, data):
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        reader, writer = await asyncio.open_connection(*address.split(":"))
    answer = b""
    with contextlib.suppress(OSError):  # who says too much is hung up on in the middle
        writer.write(data)
        writer.write_eof()
        answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    "data",
    [b"", b"GET", b"\x00\xff\r\n\r\n", b"POST /livez HTTP/1.1\r\n\r\n", b"A" * 20000 + b"\r\n\r\n"],
)
async def test_nonsense_does_no_harm(served, data):
    address, _ = served
    assert not (await raw(address, data)).startswith(b"HTTP/1.1 200")
    assert await ask(address, "/livez") == (True, "ok")


async def test_heads_that_are_too_long_leave_neither_a_connection_nor_a_trace(served, caplog):
    address, _ = served
    for _ in range(20):
        await raw(address, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000)  # ends when we hang up
    assert await ask(address, "/livez") == (True, "ok")
    assert caplog.records == []


async def test_a_port_that_is_taken_says_so(served):
    address, _ = served
    if address.startswith("unix:"):
        address = "unix:/nowhere/e.sock"
    with pytest.raises(errors.Fatal, match="cannot answer probes at .*change the setting endpoint"):
        await endpoint.Endpoint(address, str).run()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
async def test_what_is_no_socket_is_left_alone(tmp_path, kind):
    path = tmp_path / "precious"
    if kind == "file":
        path.write_text("x")
    elif kind == "folder":
        path.mkdir()
    else:
        (tmp_path / "other").write_text("x")
        path.symlink_to("other")
    with pytest.raises(errors.Fatal, match="there is a file at .*/precious that is no socket"):
        await endpoint.Endpoint(f"unix:{path}", str).run()
    assert path.is_symlink() == (kind == "link")
    assert path.is_dir() or path.read_text() == "x"


@contextlib.asynccontextmanager
async def running(address):
    task = asyncio.create_task(endpoint.Endpoint(address, str).run())
    try:
        async with asyncio.timeout(30):
            while not (await ask(address, "/livez"))[0]:
                assert not task.done(), task.result()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_socket_that_a_dead_predecessor_left_is_replaced():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        path = Path(folder) / "e.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        async with running(f"unix:{path}"):
            assert path.is_socket()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_without_a_host_every_address_answers(unused_tcp_port, host):
    if host == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    async with running(f":{unused_tcp_port}"):
        assert await ask(f"{host}:{unused_tcp_port}", "/livez") == (True, "ok")


async def test_head_is_answered_without_a_body(served):
    address, _ = served
    head, _, body = (await raw(address, b"HEAD /livez HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 3" in head
    assert body == b""


async def test_a_head_that_just_fits(served):
    address, _ = served
    line = b"GET /livez HTTP/1.1\r\nX: "
    for length, answered in (
        (endpoint.LONGEST_REQUEST, True),
        (endpoint.LONGEST_REQUEST + 1, False),
    ):
        filler = b"x" * (length - len(line) - 4)
        answer = await raw(address, line + filler + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200") is answered, length


async def test_who_says_nothing_is_hung_up_on(served, monkeypatch):
    address, _ = served
    monkeypatch.setattr(endpoint, "CLIENT_TIMEOUT", 0.2)
    with connect(address) as client:
        began = time.monotonic()
        assert await asyncio.to_thread(client.recv, 1) == b""
        assert time.monotonic() - began > 0.1


async def test_a_loop_that_does_not_turn_is_not_alive(served, monkeypatch):
    address, _ = served
    monkeypatch.setattr(endpoint, "LONGEST_TURN", 0.2)
    deadline = time.monotonic() + 10
    while (answer := probe.ask(address, "/livez"))[0]:  # it keeps the loop from turning
        assert time.monotonic() < deadline
    assert answer == (False, "the event loop has not turned for 0 s")


async def test_nothing_of_it_is_left_at_the_end(unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    before = len(os.listdir("/proc/self/fd"))
    async with running(address):
        assert "endpoint" in [thread.name for thread in threading.enumerate()]
        client = connect(address)
        client.sendall(b"GET")
    # On a busy machine the server may end before it has read these bytes. Then the kernel resets
    # the connection.
    with client, contextlib.suppress(ConnectionResetError):
        assert await asyncio.to_thread(client.recv, 1) == b""
    assert "endpoint" not in [thread.name for thread in threading.enumerate()]
    assert len(os.listdir("/proc/self/fd")) == before


def connect(address):
    if address.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        client.connect(address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        client = socket.create_connection((host, int(port)))
    client.settimeout(10)
    return client


async def test_the_oldest_client_makes_room_for_a_new_one(served):
    address, _ = served
    most = endpoint.most_clients()
    idle = [connect(address) for _ in range(most + 1)]

    # Threads take clients side by side, so any of the first few may count as the oldest.
    hung_up_on, _, _ = await asyncio.to_thread(select.select, idle, [], [], 2)
    assert len(hung_up_on) == 1
    assert idle.index(hung_up_on[0]) < most / 2
    assert hung_up_on[0].recv(1) == b""

    idle[-1].sendall(b"GET /livez HTTP/1.1\r\n\r\n")
    assert (await asyncio.to_thread(idle[-1].recv, 100)).startswith(b"HTTP/1.1 200")
    for client in idle:
        client.close()


@pytest.mark.parametrize(
    ("descriptors", "most"),
    [(resource.RLIM_INFINITY, 256), (1 << 20, 256), (1024, 256), (256, 64), (4, 1), (1, 1)],
)
def test_others_keep_most_descriptors(monkeypatch, descriptors, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert endpoint.most_clients() == most


@pytest.mark.slow
@pytest.mark.parametrize("many", [50, 900], ids=["that come and go", "that stay"])
async def test_a_flood_of_clients(served, caplog, many):
    """As fast as it can, from the address of the probes: they are answered within a second, and
    others keep their descriptors.
    """
    address, _ = served
    before = len(os.listdir("/proc/self/fd"))
    with flood.running(address, many=many, rate=0) as flooding:
        took, most = [], 0
        for _ in range(15):
            began = time.monotonic()
            assert await ask(address, "/livez", 20) == (True, "ok")
            took.append(time.monotonic() - began)
            most = max(most, len(os.listdir("/proc/self/fd")))
            await asyncio.sleep(0.05)
        attempts = flooding.end()
    assert attempts > 500
    assert sorted(took)[-2] < 1.0, "one may wait longer where the machine is busy"
    assert most - before <= endpoint.most_clients() + 8
    assert caplog.records == []


def retransmissions(client):
    """How often the kernel had to send something again."""
    state = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("=I", state, 100)[0]


@pytest.mark.parametrize(
    ("host", "source"), [("127.0.0.1", "127.0.0.7"), ("", "127.0.0.7")], ids=["IPv4", "both"]
)
async def test_who_floods_from_another_address_does_not_stand_before_a_probe(
    monkeypatch, unused_tcp_port, host, source
):
    """The queue of the neighbour is full, and nobody takes anything out of it."""
    monkeypatch.setattr("claimd.node.endpoint.listening.secrets.randbits", lambda _: 0)
    flooding = []
    listeners = listening.by_address(host, unused_tcp_port, endpoint.QUEUES, 4)
    try:
        for _ in range(50):
            flooding.append(flood._client(f"127.0.0.1:{unused_tcp_port}", source))
        with contextlib.ExitStack() as stack:
            for client in flooding:
                stack.enter_context(client)
            # A full queue lets the client ask again; another queue takes it at once.
            with socket.create_connection(("127.0.0.1", unused_tcp_port), 30) as client:
                assert retransmissions(client) == 0
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize(
    ("probes", "others", "expected"),
    [
        ("", "", []),
        (":1", "", [(":1", False)]),
        (":1", ":1", [(":1", True)]),
        (":1", ":2", [(":1", False), (":2", True)]),
        ("", ":2", [(":2", True)]),
        ("unix:/a", "", [("unix:/a", True)]),
        ("unix:/a", ":2", [("unix:/a", False), (":2", True)]),
    ],
)
def test_where_metrics_are_shown(probes, others, expected):
    served = endpoint.serving(probes, others, str)
    assert [(server._address, server._shows_metrics) for _, server in served] == expected


async def test_a_port_of_probes_shows_no_metrics(unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    [(_, server)] = endpoint.serving(address, "", str)
    running = asyncio.create_task(server.run())
    while not (await ask(address, "/livez"))[0]:
        await asyncio.sleep(0.01)
    yes, words = await ask(address, "/metrics")
    assert (yes, words) == (False, "metrics are where the setting metrics-endpoint says")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_nobody_there():
    yes, words = await ask("unix:/nowhere/e.sock", "/livez")
    assert not yes
    assert "is `claimd run` up" in words
