"""Several queues at one port, filled by a real kernel."""

import contextlib
import errno
import os
import select
import socket

import pytest

from claimd.node.endpoint import listening

QUEUES = 16


@pytest.fixture(autouse=True)
def _no_seed(monkeypatch):
    monkeypatch.setattr("claimd.node.endpoint.listening.secrets.randbits", lambda _: 0)


@contextlib.contextmanager
def listeners(host, port, queues=QUEUES):
    sockets = listening.by_address(host, port, queues, 8)
    try:
        yield sockets
    finally:
        for listener in sockets:
            listener.close()


def queue_of(sockets, address, source=None):
    """Which of the listeners has a client that comes from there."""
    with socket.create_connection(address, 30, source and (source, 0)):
        readable, _, _ = select.select(sockets, [], [], 30)
        (listener,) = readable
        listener.accept()[0].close()
    return sockets.index(listener)


def expect_queue(words):
    """The queue of a client whose address has these words of 32 bits."""
    address = 0
    for word in words:
        address ^= word
    return (address * 0x9E3779B1 % 2**32 >> 16) % QUEUES


@pytest.mark.parametrize("host", ["127.0.0.1", ""], ids=["IPv4", "both"])
def test_a_client_has_the_queue_of_its_address(unused_tcp_port, host):
    sources = [f"127.0.{number}.{number * 7 % 250 + 1}" for number in range(12)]
    with listeners(host, unused_tcp_port) as sockets:
        assert len(sockets) == QUEUES
        queues = []
        for source in sources:
            number = int.from_bytes(socket.inet_aton(source))
            queues.append(queue_of(sockets, ("127.0.0.1", unused_tcp_port), source))
            assert queues[-1] == expect_queue([number]), source
    assert len(set(queues)) > 4, "neighbours have others"


@pytest.mark.parametrize("host", ["::1", ""], ids=["IPv6", "both"])
def test_an_address_of_ipv6_is_told_by_all_of_its_words(monkeypatch, unused_tcp_port, host):
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with listeners(host, unused_tcp_port) as sockets:
        assert queue_of(sockets, ("::1", unused_tcp_port)) == expect_queue([0, 0, 0, 1])

    # There is one address to come from. Read from its end, the other words say nothing last.
    monkeypatch.setattr(listening, "_SOURCE_V6", listening._SOURCE_V6[::-1])
    with listeners(host, unused_tcp_port) as sockets:
        assert queue_of(sockets, ("::1", unused_tcp_port)) == expect_queue([1, 0, 0, 0])


def test_the_seed_moves_everybody(monkeypatch, unused_tcp_port):
    source = int.from_bytes(socket.inet_aton("127.0.0.1"))
    monkeypatch.setattr("claimd.node.endpoint.listening.secrets.randbits", lambda bits: 2**bits - 2)
    with listeners("127.0.0.1", unused_tcp_port) as sockets:
        assert queue_of(sockets, ("127.0.0.1", unused_tcp_port)) == expect_queue(
            [source ^ 0xFFFFFFFE]
        )


def test_who_listens_there_already_is_told_from_ourselves(unused_tcp_port):
    """Also one that would share the port: it would get a part of the clients."""
    with socket.create_server(("127.0.0.1", unused_tcp_port), reuse_port=True):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="Address already in use"):
            listening.by_address("127.0.0.1", unused_tcp_port, QUEUES, 8)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_kernel_without_queues_has_one(monkeypatch, unused_tcp_port):
    monkeypatch.setattr(listening, "_SO_ATTACH_REUSEPORT_CBPF", 32000)
    before = len(os.listdir("/proc/self/fd"))
    with listeners("127.0.0.1", unused_tcp_port) as sockets:
        assert len(sockets) == 1
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0
        assert queue_of(sockets, ("127.0.0.1", unused_tcp_port)) == 0


def test_without_ipv6_the_other_family_is_all(monkeypatch, unused_tcp_port):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listeners("", unused_tcp_port) as sockets:
        assert {listener.family for listener in sockets} == {socket.AF_INET}
        assert queue_of(sockets, ("127.0.0.1", unused_tcp_port)) in range(QUEUES)


def test_where_ipv6_is_turned_off_the_other_family_is_all(monkeypatch, unused_tcp_port):
    """Python is built with it, and the kernel refuses it."""
    create = socket.create_server

    def create_server(address, *, family=socket.AF_INET, **more):
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        return create(address, family=family, **more)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    monkeypatch.setattr(socket, "create_server", create_server)
    with listeners("", unused_tcp_port) as sockets:
        assert {listener.family for listener in sockets} == {socket.AF_INET}


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", 4), ("::1", 6), ("", 6)])
def test_families(unused_tcp_port, host, family):
    if family == 6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    wanted = socket.AF_INET6 if family == 6 else socket.AF_INET
    with listeners(host, unused_tcp_port, 2) as sockets:
        assert [listener.family for listener in sockets] == [wanted] * 2
