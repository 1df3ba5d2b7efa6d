"""The endpoint: answers probes over HTTP, on a TCP port or a unix socket. `probe` asks it.

GET /livez says that the process turns, GET /readyz that it serves, GET /metrics what was counted.
What ready means is told by the caller.

Anybody who can reach the port may connect, so everything here is bounded: connections, the bytes
and the time of a request. A flood costs others an answer at most, never the plugin a descriptor
that the kubelet or the API server needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from . import errors, metrics

log = logging.getLogger(__name__)

LONGEST_REQUEST = 8192
# Seconds for a client to say what it wants and to take the answer, and between two looks for those
# that did not.
CLIENT_TIMEOUT = 5.0
SWEEP_INTERVAL = 0.5
# Clients at a time, and the share of the process' descriptors that they may have at most. A flood
# goes through all of them in a fraction of a second, and a probe on a busy node may take some
# hundredths of that from its connection to its first word.
MOST_CLIENTS = 256
SHARE_OF_DESCRIPTORS = 1 / 4
# Clients that the kernel holds until we take them. Probes would wait a second at a full queue.
BACKLOG = 1024
# Clients that are taken in one turn of the loop, which has claims to prepare as well.
ACCEPTS_A_TURN = 32
# Seconds until another try where the system gives us no connection.
ACCEPT_PAUSE = 0.1

END_OF_HEAD = b"\r\n\r\n"
# 0.0.4 is the version of Prometheus' format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Client:
    """One connection, which has one request and is closed after its answer."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        """`deadline` is by the loop's clock."""
        self.connection = connection
        self.deadline = deadline
        self.head = b""
        self.response = b""  # what is still to be sent
        self.watched = False  # the loop calls us when there is something to read, or room to write


class Endpoint:
    """Serves while `run` runs.

    When there are as many clients as there may be, a new one takes the place of the one that has
    been there the longest. A probe says at once what it wants and is answered at once, so that it
    never is that one; whoever holds connections open is. There is no task for a client, since
    thousands of them may come in a second.
    """

    def __init__(self, address: str, unready: Callable[[], str]) -> None:
        """`unready` gives the reason why we are not ready, or nothing if we are."""
        self._address = address
        self._unready = unready
        self._most = most_clients()
        # Those that are not answered yet, in the order of their arrival.
        self._clients: dict[_Client, None] = {}
        self._refusal = ""  # the last reason why we could take no connection

    async def run(self) -> None:
        """Serves until cancelled; Fatal if the address cannot be served."""
        loop = asyncio.get_running_loop()
        with self._listen() as listener:
            loop.add_reader(listener, self._accept, listener)
            try:
                while True:
                    await asyncio.sleep(SWEEP_INTERVAL)
                    self._hang_up_on_the_slow()
            finally:
                loop.remove_reader(listener)
                for client in list(self._clients):
                    self._hang_up(client)

    def _listen(self) -> socket.socket:
        try:
            if self._address.startswith("unix:"):
                listener = _listen_unix(Path(self._address.removeprefix("unix:")))
            else:
                host, _, port = self._address.rpartition(":")
                listener = _listen_tcp(host.strip("[]"), int(port))
        except OSError as error:
            raise errors.Fatal(
                f"cannot answer probes at {self._address}: {error.strerror or error}; "
                "change the setting endpoint"
            ) from error
        listener.setblocking(False)
        return listener

    # ---------------------------------------------------------------- clients come and go

    def _accept(self, listener: socket.socket) -> None:
        """Takes clients that wait; those that are left, in the next turn."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it has gone again
                continue
            except OSError as error:
                # No descriptor is left. The loop would call us again and again for those that wait.
                if str(error) != self._refusal:
                    log.warning("probes are not answered for now: %s", error)
                self._refusal = str(error)
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_PAUSE, self._resume, listener)
                return

            self._refusal = ""
            self._welcome(connection)

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:  # it is closed by now if we are at the end
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _welcome(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        client = _Client(connection, loop.time() + CLIENT_TIMEOUT)
        while len(self._clients) >= self._most:
            self._hang_up(next(iter(self._clients)))

        self._clients[client] = None
        # What it wants has mostly come along with it.
        self._read(client)

    def _hang_up(self, client: _Client) -> None:
        del self._clients[client]
        self._unwatch(client)
        client.connection.close()

    def _unwatch(self, client: _Client) -> None:
        if client.watched:
            loop = asyncio.get_running_loop()
            loop.remove_reader(client.connection)
            loop.remove_writer(client.connection)
            client.watched = False

    def _hang_up_on_the_slow(self) -> None:
        now = asyncio.get_running_loop().time()
        for client in list(self._clients):
            if client.deadline <= now:
                self._hang_up(client)

    # ---------------------------------------------------------------- a request and its answer

    def _read(self, client: _Client) -> None:
        """Reads what has come. Whoever asks in no sensible way gets no answer."""
        try:
            data = client.connection.recv(LONGEST_REQUEST - len(client.head))
        except BlockingIOError:
            data = None
        except OSError:
            data = b""

        client.head += data or b""
        if END_OF_HEAD in client.head:
            self._unwatch(client)
            client.response = self._response(client.head)
            self._write(client)
        elif data == b"" or len(client.head) >= LONGEST_REQUEST:
            self._hang_up(client)
        elif not client.watched:
            client.watched = True
            asyncio.get_running_loop().add_reader(client.connection, self._read, client)

    def _write(self, client: _Client) -> None:
        """Sends what fits, which is mostly all; the rest when there is room."""
        try:
            sent = client.connection.send(client.response)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._hang_up(client)
            return

        client.response = client.response[sent:]
        if not client.response:
            self._hang_up(client)
        elif not client.watched:
            client.watched = True
            asyncio.get_running_loop().add_writer(client.connection, self._write, client)

    def _response(self, head: bytes) -> bytes:
        request_line = head.split(b"\r\n", 1)[0].decode("latin-1")
        method, _, rest = request_line.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        status, text = self._answer(method, path)

        body = f"{text}\n".encode()
        fields = f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close"
        if method == "HEAD":
            body = b""
        return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body

    def _answer(self, method: str, path: str) -> tuple[str, str]:
        """The status and the words."""
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "only GET"
        match path:
            case "/livez":
                return "200 OK", "ok"
            case "/readyz":
                reason = self._unready()
                return ("503 Service Unavailable", reason) if reason else ("200 OK", "ok")
            case "/metrics":
                return "200 OK", metrics.text()
        return "404 Not Found", "there are /livez, /readyz and /metrics"


def most_clients() -> int:
    """How many clients there may be, so that enough descriptors are left for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CLIENTS
    return max(1, min(MOST_CLIENTS, int(descriptors * SHARE_OF_DESCRIPTORS)))


def _listen_unix(path: Path) -> socket.socket:
    """In the place of a socket that is there; OSError if anything else is."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"there is a file at {path} that is no socket")
        path.unlink()

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listen_tcp(host: str, port: int) -> socket.socket:
    """Without a host, on every address of both families."""
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # where IPv6 was turned off later
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
