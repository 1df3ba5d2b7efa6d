"""Tests of streams, against servers that use blocking sockets and Python's `ssl`."""

import asyncio
import contextlib
import socket
import ssl
import threading

import pytest

from claimd.kubernetes.kube import stream
from tests.plugin.kubernetes.kube.conftest import Pki, trusting

PATIENCE = 20.0


class Server:
    """A server that accepts one connection in a thread and passes it to `serve`.

    It uses TLS if there is a `pki`.
    """

    def __init__(self, serve, pki: Pki | None = None, client: bool = False) -> None:
        self.serve, self.tls, self.trouble = serve, None, None
        if pki is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(pki.server, pki.server_key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        connection, _ = self.listener.accept()
        connection.settimeout(PATIENCE)
        with connection:
            try:
                if self.tls is None:
                    self.serve(connection)
                else:
                    with self.tls.wrap_socket(connection, server_side=True) as secure:
                        self.serve(secure)
            except OSError as error:
                self.trouble = error

    async def __aenter__(self) -> "Server":
        self.thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.thread.join)
        self.listener.close()


async def connect(server: Server, pki: Pki | None = None, name: str = "kubernetes.test"):
    context = None if pki is None else trusting(pki.ca)
    return await stream.connect("127.0.0.1", server.port, context, name)


async def close(connection: stream.Stream) -> None:
    connection.abort()
    await connection.wait_closed()


def echo(connection) -> None:
    while data := connection.recv(70_000):
        connection.sendall(data)


@pytest.fixture(params=["plain", "tls"])
def secret(request, pki):
    return pki if request.param == "tls" else None


async def read_exactly(connection: stream.Stream, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        piece = await connection.read()
        assert piece, "the end came before"
        parts += piece
    return bytes(parts)


@pytest.mark.parametrize("size", [1, 16 << 10, (16 << 10) + 1, 3_000_000])
async def test_what_is_sent_arrives_and_comes_back(secret, size) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    async with Server(echo, secret) as server:
        connection = await connect(server, secret)
        connection.write(data[:size])
        assert await read_exactly(connection, size) == data[:size]
        connection.write(b"again")
        assert await connection.read() == b"again"
        assert not connection.is_over
        await close(connection)
        assert connection.is_over


async def test_an_end_is_seen_after_what_came_before_it(secret) -> None:
    def say_and_go(connection) -> None:
        connection.sendall(b"good bye")
        if secret is not None:
            connection.settimeout(0.1)  # the other side does not answer that it was all
            with contextlib.suppress(OSError):
                connection.unwrap()

    async with Server(say_and_go, secret) as server:
        connection = await connect(server, secret)
        await asyncio.to_thread(server.thread.join)
        assert await connection.read() == b"good bye"
        assert await connection.read() == b""
        assert await connection.read() == b""
        assert connection.is_over
        await close(connection)


async def test_a_broken_connection_is_an_error() -> None:
    def reset(connection) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with Server(reset) as server:
        connection = await connect(server)
        with pytest.raises(ConnectionResetError):
            connection.write(b"x")
            await connection.read()
        await close(connection)


async def test_a_slow_reader_makes_the_server_wait(secret) -> None:
    sent = 0

    def pour(connection) -> None:
        nonlocal sent
        for _ in range(400):
            connection.sendall(bytes(64 << 10))
            sent += 64 << 10

    async with Server(pour, secret) as server:
        connection = await connect(server, secret)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 20 << 20, "buffers of the system, and ours"
        assert len(connection._unread) <= stream.MOST_UNREAD + 2 * stream.CHUNK
        assert len(await read_exactly(connection, 400 * (64 << 10))) == 400 * (64 << 10)
        await close(connection)


async def test_another_authority_or_name_is_not_trusted(pki) -> None:
    for context, name in (
        (trusting(pki.other_ca), "kubernetes.test"),
        (trusting(pki.ca), "other.name"),
    ):
        async with Server(echo, pki) as server:
            with pytest.raises(ssl.SSLCertVerificationError):
                await stream.connect("127.0.0.1", server.port, context, name)
        assert server.trouble is not None, "the server was told"


async def test_a_server_that_speaks_no_tls_is_an_error(pki) -> None:
    async with Server(lambda connection: connection.sendall(b"HTTP/1.1 400 no\r\n\r\n")) as server:
        with pytest.raises(ssl.SSLError):
            await connect(server, pki)


async def test_a_server_that_hangs_up_while_tls_begins_is_an_error(pki) -> None:
    async with Server(lambda connection: connection.recv(10)) as server:
        with pytest.raises(ConnectionError):
            await connect(server, pki)


async def test_a_cancelled_connect_closes_its_socket(pki) -> None:
    done = threading.Event()
    ended = []

    def silent(connection) -> None:
        done.wait(PATIENCE)
        while connection.recv(1000):
            pass
        ended.append(True)

    async with Server(silent) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connect(server, pki)
        done.set()
    assert ended == [True]


async def test_garbage_in_a_tls_stream_ends_it(pki) -> None:
    """An attacker between the two sides writes into the connection."""

    def broken(connection) -> None:
        connection.sendall(b"good")
        raw = connection.detach()
        with socket.socket(fileno=raw) as below:
            below.sendall(b"\x17\x03\x03\x00\x05wrong")
            with contextlib.suppress(OSError):
                below.recv(100)

    async with Server(broken, pki) as server:
        connection = await connect(server, pki)
        assert await connection.read() == b"good"
        with pytest.raises(ssl.SSLError):
            await connection.read()
        assert connection.is_over
        await close(connection)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_each_version_of_tls(pki, version) -> None:
    server = Server(echo, pki)
    server.tls.maximum_version = server.tls.minimum_version = version
    async with server:
        connection = await connect(server, pki)
        connection.write(b"x" * 40_000)
        assert len(await read_exactly(connection, 40_000)) == 40_000
        await close(connection)


@pytest.mark.parametrize("trouble", ["an end", "no TLS"])
async def test_what_comes_after_the_end_is_not_kept(pki, trouble) -> None:
    """A server ends the stream, or sends garbage, and then goes on sending."""
    poured = 0

    def pour(connection) -> None:
        nonlocal poured
        connection.sendall(b"good")
        connection.settimeout(0.1)
        if trouble == "an end":
            with contextlib.suppress(OSError):
                connection.unwrap()
        with socket.socket(fileno=connection.detach()) as below:
            below.settimeout(0.5)
            with contextlib.suppress(OSError):
                for _ in range(600):
                    below.sendall(b"\x17\x03\x03\x00\x05wrong" * 6000)
                    poured += 60_000

    async with Server(pour, pki) as server:
        connection = await connect(server, pki)
        await asyncio.to_thread(server.thread.join)
        assert connection.is_over
        assert poured < 30_000_000, "it is not read any more"
        assert connection._incoming.pending <= 2 * stream.CHUNK
        await close(connection)


async def test_a_server_that_makes_us_speak_and_does_not_listen_is_given_up(pki) -> None:
    connection = stream.Stream(trusting(pki.ca), "kubernetes.test")

    class Transport:
        def get_write_buffer_size(self) -> int:
            return stream.MOST_UNSENT + 1

        def pause_reading(self) -> None:
            pass

        def write(self, data: bytes) -> None:
            pass

    connection.connection_made(Transport())
    connection._shaking_hands = False
    connection.buffer_updated(0)
    with pytest.raises(ConnectionError, match="does not listen"):
        await connection.read()


async def test_an_address_that_leads_nowhere_does_not_delay_the_other(monkeypatch) -> None:
    """The queue of the first address is full, so the kernel does not answer there."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        port = full.getsockname()[1]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))

        def find_both(host, port, **_):
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                for address in ("127.0.0.2", "127.0.0.1")
            ]

        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, port, *_, **__: find_both(host, port)
        )
        async with asyncio.timeout(PATIENCE):
            connection = await stream.connect("kubernetes.test", port, None, "")
        listener.accept()[0].close()
        await close(connection)
