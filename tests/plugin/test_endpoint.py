"""The endpoint over real sockets, asked by the probe and by hand."""

import asyncio
import contextlib
import os
import resource
import socket
import tempfile
import time
from pathlib import Path

import pytest

from plugin import endpoint, errors, metrics, probe
from tests.support import flood


@pytest.fixture(params=["unix", "tcp"])
async def served(request, unused_tcp_port):
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        address = (
            f"unix:{folder}/e.sock" if request.param == "unix" else f"127.0.0.1:{unused_tcp_port}"
        )
        reasons = []
        running = asyncio.create_task(endpoint.Endpoint(address, lambda: "; ".join(reasons)).run())
        deadline = asyncio.get_running_loop().time() + 5
        while not (await ask(address, "/livez"))[0]:
            assert asyncio.get_running_loop().time() < deadline
        yield address, reasons
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def ask(address, path):
    return await asyncio.to_thread(probe.ask, address, path)


async def test_answers(served):
    address, reasons = served
    assert await ask(address, "/livez") == (True, "ok")
    assert await ask(address, "/readyz") == (True, "ok")
    reasons.append("not yet")
    assert await ask(address, "/readyz") == (False, "not yet")
    assert await ask(address, "/livez") == (True, "ok"), "not ready is still alive"
    assert (await ask(address, "/other"))[0] is False


async def test_metrics_are_served_as_prometheus_reads_them(served):
    address, _ = served
    head, _, body = (await raw(address, b"GET /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4" in head
    assert body.decode() == metrics.text() + "\n"
    assert b"claimd_records_damaged_total" in body


async def raw(address, data):
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        reader, writer = await asyncio.open_connection(*address.split(":"))
    answer = b""
    with contextlib.suppress(ConnectionError):  # who says too much is hung up on in the middle
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
        async with asyncio.timeout(5):
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
    with connected(address) as client:
        began = time.monotonic()
        assert await asyncio.to_thread(client.recv, 1) == b""
        assert 0.1 < time.monotonic() - began < 3


def connected(address):
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
    idle = [connected(address) for _ in range(most)]
    await ask(address, "/livez")  # behind them all, in the order of arrival
    assert await asyncio.to_thread(idle[0].recv, 1) == b"", "the first was hung up on"
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


@pytest.mark.parametrize("many", [50, 900], ids=["that come and go", "that stay"])
async def test_a_flood_of_clients(served, caplog, many):
    """Two thousand a second: probes are answered within one, and others keep their descriptors."""
    address, _ = served
    before = len(os.listdir("/proc/self/fd"))
    with flood.running(address, seconds=4, many=many) as flooding:
        longest, most, count = 0.0, 0, 0
        while flooding.poll() is None:
            began = time.monotonic()
            assert await ask(address, "/livez") == (True, "ok")
            longest, count = max(longest, time.monotonic() - began), count + 1
            most = max(most, len(os.listdir("/proc/self/fd")))
            await asyncio.sleep(0.05)
        made = int(flooding.stdout.read())
    assert made > 500
    assert count > 5
    assert longest < 1.0
    assert most - before <= endpoint.most_clients() + 8
    assert caplog.records == []


async def test_nobody_there():
    yes, words = await ask("unix:/nowhere/e.sock", "/livez")
    assert not yes
    assert "is `claimd run` up" in words
