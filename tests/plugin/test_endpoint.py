"""The endpoint over real sockets, asked by the probe and by hand."""

import asyncio
import tempfile

import pytest

from plugin import endpoint, errors, metrics, probe


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
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
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


async def test_nobody_there():
    yes, words = await ask("unix:/nowhere/e.sock", "/livez")
    assert not yes
    assert "is `claimd run` up" in words
