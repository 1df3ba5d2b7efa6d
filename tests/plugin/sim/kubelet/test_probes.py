"""Probes of a real process by commands, HTTP and TCP."""

import asyncio
import contextlib

import pytest

from claimd.sim.kubelet import probes
from claimd.sim.runtime import bundle, cdi_cache, container, executed
from tests.support.apiserver import until

PATIENT = {"timeoutSeconds": 60}  # a machine that is busy makes no probe fail
ONCE = probes._DEFAULTS | PATIENT


class Heard:
    """Callbacks that record their calls."""

    def __init__(self):
        self.told, self.killed, self.changes = [], [], 0
        self.callbacks = probes.Callbacks(changed=self.change, tell=self.tell, kill=self.kill)

    def change(self):
        self.changes += 1

    async def tell(self, message):
        self.told.append(message)

    async def kill(self, kind, probe):
        self.killed.append(kind)


@contextlib.asynccontextmanager
async def running(folder, *command):
    config = bundle.ContainerConfig(name="main", command=command or ("sleep", "100"))
    edits = cdi_cache.InjectedEdits()
    attempt = container.Container(bundle.Bundle(config, edits, folder, namespace=False))
    await attempt.start(lambda sign, group: None)
    try:
        yield attempt
    finally:
        await attempt.stop(0)


@contextlib.asynccontextmanager
async def serving(answer=b"HTTP/1.1 200 OK\r\n\r\n"):
    """Yields the port of a server with this answer, and the requests that it has received."""
    container_with = []

    async def answer_one(reader, writer):
        # A probe of TCP connects and leaves without a word.
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError):
            if answer:
                container_with.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(answer)

    server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], container_with


def container_with(kind, command, **more):
    probe = {"exec": {"command": ["sh", "-c", command]}} | PATIENT | more
    return {"name": "main", kind: probe}


async def check(handler, attempt=None, **spec):
    return await probes.check(ONCE | handler, {"name": "main"} | spec, attempt)


async def test_a_command_sees_what_the_container_sees(tmp_path):
    async with running(tmp_path / "c") as attempt:
        (tmp_path / "c" / "here").write_text("")
        assert await check({"exec": {"command": ["test", "-e", "here"]}}, attempt) is None
        assert await check({"exec": {"command": ["sh", "-c", "echo no; exit 3"]}}, attempt) == "no"
        assert await check({"exec": {"command": ["false"]}}, attempt) == "exit code 1"
        assert "no-such" in await check({"exec": {"command": ["no-such"]}}, attempt)
        slow = {"exec": {"command": ["sleep", "60"]}, "timeoutSeconds": 0.2}
        assert await check(slow, attempt) == "no answer within 0.2 s"


async def test_a_command_is_in_the_namespaces_of_its_container(tmp_path):
    probe = await asyncio.create_subprocess_exec(
        *executed.PYTHON, executed.LAUNCH, "probe", stderr=asyncio.subprocess.DEVNULL
    )
    if await probe.wait():
        pytest.skip("containers cannot have mounts of their own here")
    config = bundle.ContainerConfig(name="main", command=("sleep", "100"), hostname="inside")
    edits = cdi_cache.InjectedEdits()
    attempt = container.Container(bundle.Bundle(config, edits, tmp_path / "c", namespace=True))
    await attempt.start(lambda sign, group: None)
    assert (await attempt.execute(["hostname"]))[1] == "inside\n"
    assert (await attempt.execute(["ls", "/dev/mem"]))[0] != 0
    await attempt.stop(0)


async def test_http():
    async with serving() as (port, seen):
        headers = [{"name": "Host", "value": "web"}, {"name": "X-Way", "value": "in"}]
        action = {"port": "http", "path": "ready", "httpHeaders": headers}
        named = [{"name": "http", "containerPort": port}]
        assert await check({"httpGet": action}, ports=named) is None
        lines = seen[0].split("\r\n")
        assert lines[0] == "GET /ready HTTP/1.1"
        assert {"Host: web", "X-Way: in", "Connection: close"} <= set(lines)
    refused = await check({"httpGet": {"port": port}})
    assert "refused" in refused.lower() or "Connect call failed" in refused


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 302 Found\r\n\r\n", None),
        (b"HTTP/1.0 500 no\r\n\r\n", "HTTP probe failed with statuscode: 500"),
        (b"HTTP/1.1 404\r\n\r\n", "HTTP probe failed with statuscode: 404"),
        (b"SSH-2.0-x\r\n", "what answers there does not speak HTTP"),
        (b"", "what answers there does not speak HTTP"),
    ],
)
async def test_answers_by_http(answer, problem):
    async with serving(answer) as (port, _):
        outcome = await check({"httpGet": {"port": port}})
        assert outcome == problem or (not answer and outcome)


async def test_a_header_is_one_line():
    headers = [{"name": "X", "value": "a\r\nY: b"}]
    problem = await check({"httpGet": {"port": 1, "httpHeaders": headers}})
    assert problem == "a header or the path has an end of a line in it"


async def test_tcp():
    async with serving() as (port, _):
        assert await check({"tcpSocket": {"port": port}}) is None
    assert await check({"tcpSocket": {"port": port}})
    assert await check({"tcpSocket": {"port": "web"}}) == "the container has no port web"


def test_which_probes_are_run():
    assert probes.is_run({"tcpSocket": {}})
    assert not probes.is_run({"grpc": {"port": 1}})
    assert not probes.is_run(None)


async def test_a_container_without_probes_is_ready_at_once(tmp_path):
    async with running(tmp_path / "c") as attempt:
        probes_ = probes.Probes({"name": "main"}, attempt, Heard().callbacks)
        probes_.start()
        assert (probes_.has_started, probes_.is_ready) == (True, True)


async def test_it_is_ready_as_long_as_its_probe_says_so(tmp_path):
    heard = Heard()
    async with running(tmp_path / "c") as attempt:
        look = "test -e ready || { echo not yet; exit 1; }"
        spec = container_with(probes.READINESS, look, periodSeconds=0.05)
        probes_ = probes.Probes(spec, attempt, heard.callbacks)
        probes_.start()
        await until(lambda: len(heard.told) > 1)
        assert set(heard.told) == {"Readiness probe failed: not yet"}
        assert (probes_.has_started, probes_.is_ready, heard.changes) == (True, False, 0)

        (tmp_path / "c" / "ready").write_text("")
        await until(lambda: probes_.is_ready)
        assert heard.changes == 1
        (tmp_path / "c" / "ready").unlink()
        told = len(heard.told)
        await until(lambda: not probes_.is_ready)
        assert len(heard.told) >= told + 3  # the threshold
        assert (heard.changes, heard.killed) == (2, [])
        probes_.stop()


async def test_other_probes_wait_for_the_first_success_of_startup(tmp_path):
    heard = Heard()
    async with running(tmp_path / "c") as attempt:
        spec = container_with(
            probes.STARTUP, "test -e up", periodSeconds=0.05, failureThreshold=10_000
        )
        spec |= container_with(probes.LIVENESS, "echo dead; exit 1", failureThreshold=1)
        probes_ = probes.Probes(spec, attempt, heard.callbacks)
        probes_.start()
        await until(lambda: len(heard.told) > 1)
        assert set(heard.told) == {"Startup probe failed: exit code 1"}
        assert (probes_.has_started, probes_.is_ready, heard.killed) == (False, False, [])

        (tmp_path / "c" / "up").write_text("")
        await until(lambda: heard.killed)
        assert (probes_.has_started, heard.killed) == (True, ["liveness"])
        assert heard.told[-1] == "Liveness probe failed: dead"
        probes_.stop()


async def test_startup_that_fails_for_good(tmp_path):
    heard = Heard()
    async with running(tmp_path / "c") as attempt:
        spec = container_with(probes.STARTUP, "exit 1", periodSeconds=0.02, failureThreshold=2)
        probes_ = probes.Probes(spec, attempt, heard.callbacks)
        probes_.start()
        await until(lambda: heard.killed)
        assert (heard.killed, len(heard.told)) == (["startup"], 2)
        probes_.stop()
