"""Our own sockets, asked by real connections."""

import asyncio
import contextlib
import socket

import pytest

from claimd.node.kubelet import registration, self_check
from tests.support import sockets


@contextlib.asynccontextmanager
async def checking(*paths):
    check = self_check.SelfCheck(paths)
    running = asyncio.create_task(check.run())
    try:
        yield check
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(check, words):
    """Asks as a probe does, until the answer has these words; empty means that all is well."""
    async with asyncio.timeout(30):
        while (failure := check.failure()) != words and not (words and words in failure):
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(self_check, "SPACING", 0.05)
    monkeypatch.setattr(self_check, "PATIENCE", 0.2)


def add(server):
    registration.add_to(server, registration.Registration("d", "/s", (), lambda: None))


async def test_a_socket_that_answers_is_well(tmp_path):
    path = tmp_path / "s.sock"
    async with checking(path) as check:
        await until(check, f"nobody answers at our own socket {path}: No such file or directory")
        async with sockets.serving(path, add):
            await until(check, "")


async def test_a_socket_that_does_not_accept_is_named(tmp_path):
    well, silent = tmp_path / "well.sock", tmp_path / "silent.sock"
    async with sockets.serving(well, add), checking(well, silent) as check:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(silent))
            listener.listen()
            await until(check, f"nobody answers at our own socket {silent} within 0.2 s")
        await until(check, f"nobody answers at our own socket {silent}: Connection refused")


async def test_a_socket_that_hangs_up_is_named(tmp_path):
    path = tmp_path / "s.sock"

    async def hang_up(_, writer):
        writer.close()

    async with await asyncio.start_unix_server(hang_up, path), checking(path) as check:
        await until(check, "the connection was closed")


async def test_a_flood_of_probes_costs_few_checks(tmp_path, monkeypatch):
    monkeypatch.setattr(self_check, "SPACING", 10.0)
    connections = []

    async def answer(_, writer):
        connections.append(writer)
        writer.write(b"x")

    path = tmp_path / "s.sock"
    async with await asyncio.start_unix_server(answer, path), checking(path) as check:
        for _ in range(100):
            check.failure()
            await asyncio.sleep(0.001)
        assert len(connections) == 1
        for writer in connections:
            writer.close()


async def test_nobody_is_asked_before_it_runs(tmp_path):
    assert self_check.SelfCheck([tmp_path / "missing"]).failure() == ""
