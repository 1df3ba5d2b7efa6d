"""The probe against servers that answer as they like; against the endpoint it is in test_endpoint."""

import contextlib
import socket
import threading
import time

import pytest

from claimd.common import probe


@contextlib.contextmanager
def server(family, where, *answers, holds=False):
    """Answers one connection with these pieces; with `holds`, it hangs up after the block only."""
    asked, over = [], threading.Event()
    with socket.socket(family) as listener:
        listener.bind(where)
        listener.listen(1)

        def serve():
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(4096))
                for answer in answers:
                    connection.sendall(answer)
                    time.sleep(0.01)
                if holds:
                    over.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener, asked
        finally:
            over.set()
            thread.join(30)


@contextlib.contextmanager
def on_a_port(*answers, **more):
    with server(socket.AF_INET, ("127.0.0.1", 0), *answers, **more) as (listener, asked):
        yield listener.getsockname()[1], asked


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nok\n", (True, "ok")),
        (b"HTTP/1.0 200 OK\r\n\r\n", (True, "")),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\nnot yet\n", (False, "not yet")),
        (b"HTTP/1.1 2000 X\r\n\r\n", (False, "")),
        (b"HTTP/1.1 404 200\r\n\r\nno", (False, "no")),
        (b"200", (False, "")),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", (True, "\N{REPLACEMENT CHARACTER}")),
    ],
)
def test_only_200_is_a_yes(answer, said):
    with on_a_port(answer) as (port, asked):
        assert probe.ask(f"127.0.0.1:{port}", "/livez") == said
    assert asked == [b"GET /livez HTTP/1.0\r\n\r\n"]


def test_a_connection_that_ends_without_an_answer():
    """A firewall or a proxy may take a connection to a port that does not exist."""
    with on_a_port() as (port, _):
        is_ready, words = probe.ask(f"127.0.0.1:{port}", "/readyz")
    assert not is_ready
    assert words.startswith(f"no answer at 127.0.0.1:{port}: the connection was closed; ")


def test_an_answer_in_pieces():
    with on_a_port(b"HTTP/1.1 2", b"00 OK\r\n\r", b"\nfine", b" so far") as (port, _):
        assert probe.ask(f":{port}", "/readyz") == (True, "fine so far")


def test_ipv6():
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with server(socket.AF_INET6, ("::1", 0), b"HTTP/1.1 200 OK\r\n\r\nok") as (listener, _):
        assert probe.ask(f"[::1]:{listener.getsockname()[1]}", "/livez") == (True, "ok")


def test_who_says_nothing_is_waited_for_as_long_as_told():
    with on_a_port(holds=True) as (port, _):
        began = time.monotonic()
        yes, words = probe.ask(f"127.0.0.1:{port}", "/livez", timeout=0.2)
        assert time.monotonic() - began > 0.15
    assert (yes, words) == (
        False,
        f"no answer at 127.0.0.1:{port}: timed out; is `claimd run` up, with this endpoint?",
    )


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yes, words = probe.ask(f"127.0.0.1:{port}", "/livez")
    assert not yes
    assert words.startswith(f"no answer at 127.0.0.1:{port}: Connection refused; is `claimd run`")


def full(path):
    """A listener that the kernel queues nobody for any more, and who is in the queue."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(path)
    return listener, waiting


def test_a_full_queue_is_waited_out(tmp_path):
    path = str(tmp_path / "e")
    listener, waiting = full(path)

    def serve():
        time.sleep(0.2)
        first, _ = listener.accept()
        second, _ = listener.accept()
        second.recv(4096)
        second.sendall(b"HTTP/1.1 200 OK\r\n\r\nok")
        first.close()
        second.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with listener, waiting:
        assert probe.ask(f"unix:{path}", "/livez") == (True, "ok")
        thread.join(10)


def test_a_queue_that_stays_full(tmp_path):
    path = str(tmp_path / "e")
    listener, waiting = full(path)
    with listener, waiting:
        began = time.monotonic()
        yes, words = probe.ask(f"unix:{path}", "/livez", timeout=0.2)
    assert time.monotonic() - began > 0.15
    assert not yes
    assert "Resource temporarily unavailable" in words


def test_a_socket_that_is_missing_is_not_waited_for(tmp_path):
    began = time.monotonic()
    yes, words = probe.ask(f"unix:{tmp_path}/e", "/livez", timeout=20.0)
    assert time.monotonic() - began < 10
    assert not yes
    assert "No such file or directory" in words
