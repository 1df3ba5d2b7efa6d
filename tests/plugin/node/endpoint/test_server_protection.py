"""The metrics' port over TLS: who asks and how, who is slow, and who floods."""

import asyncio
import contextlib
import http.client
import os
import shutil
import socket
import ssl
import struct
import time

import pytest

from claimd.common import probe
from claimd.node.endpoint import certificate as serving_certificate
from claimd.node.endpoint import server as endpoint
from tests.plugin.kubernetes.kube import conftest as pki

REFUSED = endpoint.Verdict(
    allowed=False,
    status="401 Unauthorized",
    words="show a token",
    fields="WWW-Authenticate: Bearer\r\n",
    reason="no token",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A certificate for 127.0.0.1, as a Secret has it, and its authority."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("pki")
    ca = pki.authority(folder, "ca")
    pki.sign(folder, ca, "tls", "IP:127.0.0.1")
    return folder


class Served:
    """The endpoint, and who decides who may scrape."""

    def __init__(self, port, folder):
        self.port = port
        self.trusting = pki.trusting(folder / "ca.crt")
        self.known = {"Bearer good": endpoint.Verdict(allowed=True)}
        self.later = []  # of those who are not known: what to call with the verdict
        certificate = serving_certificate.ServingCertificate(folder)
        self.endpoint = endpoint.Endpoint(
            f"127.0.0.1:{port}",
            str,
            protection=endpoint.Protection(certificate.context, self.may_scrape),
        )

    def may_scrape(self, authorization, source, decided):
        assert source == "127.0.0.1"
        if authorization == "Bearer unknown":
            self.later.append(decided)
            return None
        return self.known.get(authorization, REFUSED)

    async def get(self, path="/metrics", token="good"):
        """Status, head and text."""

        def ask():
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=self.trusting, timeout=30
            )
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, dict(answer.headers), text

        return await asyncio.to_thread(ask)

    def secure(self):
        """How many have begun a handshake, at one moment."""
        return sum(client.secure for client in list(self.endpoint._clients.values()))

    def connected(self):
        """A connection before its handshake."""
        return socket.create_connection(("127.0.0.1", self.port), 30)


@pytest.fixture
async def served(unused_tcp_port, folder):
    served_ = Served(unused_tcp_port, folder)
    running = asyncio.create_task(served_.endpoint.run())
    while not served_.endpoint._listeners:
        await asyncio.sleep(0.01)
    yield served_
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def until(fact):
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0.01)


async def test_who_may_gets_all_of_it(served):
    status, head, text = await served.get()
    assert status == 200
    assert head["Content-Type"].startswith("text/plain; version=0.0.4")
    assert int(head["Content-Length"]) == len(text.encode()) > 3000
    assert "claimd_records_damaged_total" in text


async def test_a_text_of_many_records_arrives_whole(served, monkeypatch):
    text = "x" * 3_000_000
    monkeypatch.setattr(endpoint, "_format_metrics", lambda _: ("text/plain", text))
    assert (await served.get())[2] == f"{text}\n"


async def test_who_may_not_is_told_why_and_counted(served):
    refused = endpoint.metrics.SCRAPES_REFUSED.values
    before = refused.get(("no token",), 0)
    status, head, text = await served.get(token="bad")
    assert (status, text) == (401, "show a token\n")
    assert head["WWW-Authenticate"] == "Bearer"
    assert refused["no token",] == before + 1


async def test_what_says_nothing_of_the_node_needs_no_token(served):
    assert (await served.get("/livez", token=""))[::2] == (200, "ok\n")


@pytest.mark.parametrize("verdict", [endpoint.Verdict(allowed=True), REFUSED])
async def test_a_decision_that_comes_later(served, verdict):
    asking = [asyncio.ensure_future(served.get(token="unknown")) for _ in range(5)]
    await until(lambda: len(served.later) == 5)
    assert (await served.get())[0] == 200, "who is known waits for nobody"
    for decided in served.later:
        decided(verdict)
    assert {status for status, _, _ in await asyncio.gather(*asking)} == {
        200 if verdict.allowed else 401
    }


async def test_who_goes_before_it_is_decided_leaves_nothing(served):
    connection = served.trusting.wrap_socket(served.connected(), server_hostname="127.0.0.1")
    connection.sendall(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer unknown\r\n\r\n")
    await until(lambda: served.later)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    await until(lambda: not served.endpoint._clients)
    served.later.pop()(endpoint.Verdict(allowed=True))
    assert (await served.get())[0] == 200


async def test_a_decision_that_never_comes(served, monkeypatch):
    monkeypatch.setattr(endpoint, "CLIENT_TIMEOUT", 0.2)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError)):
        await served.get(token="unknown")
    assert not served.endpoint._clients


async def test_who_asks_without_tls_is_told(served):
    with served.connected() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = await asyncio.to_thread(client.recv, 1000)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"metrics are served over TLS here: ask by https\n")


@pytest.mark.parametrize("bytes_", [b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\xff\xff" + b"x" * 9000])
async def test_a_handshake_that_is_none(served, bytes_):
    with served.connected() as client:
        client.sendall(bytes_)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            await asyncio.to_thread(client.recv, 1000)
    assert (await served.get())[0] == 200
    await until(lambda: not served.endpoint._clients)


async def test_old_versions_are_not_spoken(served, folder):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with served.connected() as client, pytest.raises(OSError):
        await asyncio.to_thread(old.wrap_socket, client)


async def test_one_byte_at_a_time_is_served(served):
    """Of the handshake as of the request."""
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    speaking = served.trusting.wrap_bio(theirs, ours, server_hostname="127.0.0.1")

    def slowly():
        with served.connected() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def turn():
                for byte in ours.read():
                    client.sendall(bytes([byte]))

            while True:
                try:
                    speaking.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    turn()
                    theirs.write(client.recv(65536))
            speaking.write(b"GET /livez HTTP/1.1\r\n\r\n")
            turn()
            while True:
                try:
                    return speaking.read(1000)
                except ssl.SSLWantReadError:
                    theirs.write(client.recv(65536))

    assert (await asyncio.to_thread(slowly)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_without_a_certificate_nobody_is_served(tmp_path, unused_tcp_port, folder):
    served_ = Served(unused_tcp_port, folder)
    served_.endpoint._protection = endpoint.Protection(
        serving_certificate.ServingCertificate(tmp_path).context
    )
    running = asyncio.create_task(served_.endpoint.run())
    await until(lambda: served_.endpoint._listeners)
    before = len(os.listdir("/proc/self/fd"))
    with served_.connected() as client:
        client.sendall(b"x")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
    await until(lambda: len(os.listdir("/proc/self/fd")) == before)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00"])
async def test_who_never_ends_the_handshake_keeps_nobody_out(served, said):
    before = len(os.listdir("/proc/self/fd"))
    idle = [served.connected() for _ in range(3 * endpoint.SECURE_CLIENTS)]
    for client in idle:
        client.sendall(said)
    assert (await served.get())[0] == 200
    assert served.secure() <= endpoint.SECURE_CLIENTS
    assert len(os.listdir("/proc/self/fd")) - before <= len(idle) + endpoint.most_clients() + 4
    for client in idle:
        client.close()


async def test_no_more_handshakes_are_under_way_than_there_may_be(served, monkeypatch):
    """However long it takes to begin one."""
    context, counts = served.endpoint._protection.context(), []

    class Slow:
        def wrap_socket(self, connection, **options):
            time.sleep(0.05)
            counts.append(served.secure())
            return context.wrap_socket(connection, **options)

    monkeypatch.setattr(endpoint, "SECURE_CLIENTS", 3)
    monkeypatch.setattr(served.endpoint, "_protection", endpoint.Protection(Slow))
    with contextlib.ExitStack() as idle:
        for _ in range(8):
            idle.enter_context(served.connected()).sendall(b"\x16\x03\x01\x02\x00")
        await until(lambda: len(counts) == 8)
        await until(lambda: served.secure() == 3)
        assert max(counts) <= 3


async def test_those_who_have_gone_stand_before_nobody(served, monkeypatch):
    """A queue that was full when its flooder ended is no seconds of handshakes."""
    assert (await served.get())[0] == 200
    for client in [served.connected() for _ in range(3 * endpoint.HANDSHAKES)]:
        client.close()
    monkeypatch.setattr(endpoint, "HANDSHAKES", served.endpoint._handshakes.count + 1)
    assert (await served.get())[0] == 200


async def test_so_many_handshakes_a_second(served, monkeypatch):
    """Who comes past that waits."""
    assert (await served.get())[0] == 200
    monkeypatch.setattr(endpoint, "HANDSHAKES", 0)
    waiting = asyncio.ensure_future(served.get())
    taken, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not taken
    assert not any(client.secure for client in served.endpoint._clients.values())
    monkeypatch.setattr(endpoint, "HANDSHAKES", 1 << 30)
    assert (await waiting)[0] == 200


def test_the_count_of_handshakes_begins_anew_each_second(folder, monkeypatch):
    endpoint_ = Served(1, folder).endpoint
    now = 1000.0
    monkeypatch.setattr(endpoint.time, "monotonic", lambda: now)
    for _ in range(3):
        admitted = [endpoint_._handshakes.may_begin() for _ in range(endpoint.HANDSHAKES + 5)]
        assert admitted == endpoint.HANDSHAKES * [True] + 5 * [False]
        now += 1.0


def test_probes_are_not_protected():
    protection = endpoint.Protection(lambda: None)
    served = endpoint.serving(":1", ":2", str, protection)
    assert [(server._address, server._protection) for _, server in served] == [
        (":1", None),
        (":2", protection),
    ]


async def test_a_probe_of_the_port_says_something(served):
    yes, words = await asyncio.to_thread(probe.ask, f"127.0.0.1:{served.port}", "/metrics")
    assert (yes, words) == (False, "metrics are served over TLS here: ask by https")
