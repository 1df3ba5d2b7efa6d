"""The endpoint: answers probes over HTTP, on a TCP port or a unix socket. `probe` asks it.

GET /livez says that the event loop turns, GET /readyz that it serves, GET /metrics what was
counted, where the caller wants it said. What ready means is told by the caller.

Anybody who can reach the port may connect, so everything here is bounded: connections, the bytes
and the time of a request. A flood costs others an answer at most, never the plugin a descriptor
that the kubelet or the API server needs. Threads of its own take clients faster than one flooder
makes them, so that the kernel's queue does not fill; who comes to a full queue waits for a second.
Addresses have queues of their own besides, so that many flooders do not stand before the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import select
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import errors, listening, metrics

log = logging.getLogger(__name__)

LONGEST_REQUEST = 8192
# Seconds for a client to say what it wants and to take the answer, and between two looks for those
# that did not.
CLIENT_TIMEOUT = 5.0
SWEEP_INTERVAL = 0.5
# Seconds without a turn of the event loop after which we are not alive.
LONGEST_TURN = 5.0
# Clients at a time that have not said all, and the share of the process' descriptors that they may
# have at most. A flood goes through all of them in a fraction of a second, and a probe on a busy
# node may take some hundredths of that from its connection to its first word.
MOST_CLIENTS = 256
SHARE_OF_DESCRIPTORS = 1 / 4
# Clients that the kernel holds until we take them.
BACKLOG = 4096
# Queues for a port. Which one a client waits in follows from its address.
QUEUES = 16
# Threads. Most of what a client costs is the kernel's work, which they do side by side.
THREADS = 4
# Clients that a thread takes from one queue before it looks at the others.
ACCEPTS_A_TURN = 16
# Seconds until another try where the system gives us no connection.
ACCEPT_PAUSE = 0.1

END_OF_HEAD = b"\r\n\r\n"
PLAIN = "text/plain; charset=utf-8"


class _Client:
    """One connection, which has one request and is closed after its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + CLIENT_TIMEOUT
        self.head = b""
        self.response = b""  # what is still to be sent
        self.attended = False  # a thread has it in hands


class Endpoint:
    """Serves while `run` runs.

    A client that says at once what it wants, as probes do, is answered and gone. The others wait
    for their words. When as many wait as may, a new one takes the place of the one that has been
    there the longest, which is whoever holds connections open.
    """

    def __init__(
        self, address: str, unready: Callable[[], str], *, shows_metrics: bool = True
    ) -> None:
        """`unready` gives the reason why we are not ready, or nothing if we are.

        It is called in other threads.
        """
        self._address = address
        self._unready = unready
        self._shows_metrics = shows_metrics
        self._most = most_clients()
        self._turned = 0.0  # when the event loop had its last turn
        self._closing = False
        self._listeners: dict[int, socket.socket] = {}
        # Those that wait, by descriptor, in the order of their arrival.
        self._clients: dict[int, _Client] = {}
        self._lock = threading.Lock()  # for the clients
        self._refusal = ""  # the last reason why we could take no connection

    async def run(self) -> None:
        """Serves until cancelled; Fatal if the address cannot be served."""
        self._listeners = {listener.fileno(): listener for listener in self._listen()}
        self._turned = time.monotonic()
        self._closing = False
        ending, end = socket.socketpair()
        with select.epoll() as poll, ending, end:
            poll.register(ending, select.EPOLLIN)
            for listener in self._listeners.values():
                listener.setblocking(False)
                poll.register(listener, select.EPOLLIN)
            threads = [
                threading.Thread(target=self._attend, args=[poll], name="endpoint", daemon=True)
                for _ in range(THREADS)
            ]
            for thread in threads:
                thread.start()

            try:
                while True:
                    await asyncio.sleep(SWEEP_INTERVAL)
                    self._turned = time.monotonic()
                    self._hang_up_on_the_slow()
            finally:
                self._closing = True
                end.send(b"x")  # all of them wake up, as nobody reads it
                for thread in threads:
                    thread.join()
                self._close()

    def _listen(self) -> list[socket.socket]:
        try:
            if self._address.startswith("unix:"):
                return [_listen_unix(Path(self._address.removeprefix("unix:")))]
            host, _, port = self._address.rpartition(":")
            return listening.by_address(host.strip("[]"), int(port), QUEUES, BACKLOG)
        except OSError as error:
            raise errors.Fatal(
                f"cannot answer probes at {self._address}: {error.strerror or error}; "
                "change the setting endpoint or metrics-endpoint"
            ) from error

    def _close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for client in self._clients.values():
            client.connection.close()
        self._listeners, self._clients = {}, {}

    # ---------------------------------------------------------------- clients come and go

    def _attend(self, poll: select.epoll) -> None:
        """What each thread does: takes clients, and goes on with those that have said more."""
        while not self._closing:
            for descriptor, _ in poll.poll(maxevents=1):
                listener = self._listeners.get(descriptor)
                try:
                    if listener is not None:
                        self._accept(listener, poll)
                    else:
                        self._resume(descriptor, poll)
                except Exception:
                    log.exception("a probe was not answered, which is a mistake in claimd")

    def _accept(self, listener: socket.socket, poll: select.epoll) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it has gone again
                continue
            except OSError as error:
                # No descriptor is left. We would be called again and again for those that wait.
                if str(error) != self._refusal:
                    log.warning("probes are not answered for now: %s", error)
                self._refusal = str(error)
                time.sleep(ACCEPT_PAUSE)
                return

            # What it wants has mostly come along with it.
            self._refusal = ""
            client = _Client(connection)
            awaited = self._go_on(client)
            if awaited:
                self._keep(client, poll, awaited)
            else:
                connection.close()

    def _keep(self, client: _Client, poll: select.epoll, awaited: int) -> None:
        """It waits from now on, if need be in the place of another."""
        descriptor = client.connection.fileno()
        with self._lock:
            if len(self._clients) >= self._most:
                self._hang_up_on_the_oldest()
            self._clients[descriptor] = client
            poll.register(descriptor, awaited | select.EPOLLONESHOT)

    def _hang_up_on_the_oldest(self) -> None:
        for descriptor, client in self._clients.items():
            if not client.attended:
                del self._clients[descriptor]
                client.connection.close()
                return

    def _resume(self, descriptor: int, poll: select.epoll) -> None:
        with self._lock:
            client = self._clients.get(descriptor)
            if client is None or client.attended:  # hung up on meanwhile
                return
            client.attended = True

        # Whatever goes wrong with it, it is hung up on: else it would keep its place for ever.
        awaited = 0
        try:
            awaited = self._go_on(client)
        finally:
            with self._lock:
                client.attended = False
                if awaited:
                    poll.modify(descriptor, awaited | select.EPOLLONESHOT)
                else:
                    # First: once it is closed, another client may get its descriptor.
                    del self._clients[descriptor]
                    client.connection.close()

    def _hang_up_on_the_slow(self) -> None:
        now = time.monotonic()
        with self._lock:
            for descriptor, client in list(self._clients.items()):
                if client.deadline <= now and not client.attended:
                    del self._clients[descriptor]
                    client.connection.close()

    # ---------------------------------------------------------------- a request and its answer

    def _go_on(self, client: _Client) -> int:
        """Reads what has come, sends what fits. The event to wait for; 0 if it is to be hung up on.

        Whoever asks in no sensible way gets no answer.
        """
        try:
            if not client.response:
                room = LONGEST_REQUEST - len(client.head)
                data = client.connection.recv(room, socket.MSG_DONTWAIT)
                client.head += data
                if END_OF_HEAD in client.head:
                    client.response = self._response(client.head)
                elif not data or len(client.head) >= LONGEST_REQUEST:
                    return 0
                else:
                    return select.EPOLLIN

            sent = client.connection.send(client.response, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return select.EPOLLOUT if client.response else select.EPOLLIN
        except OSError:
            return 0

        client.response = client.response[sent:]
        return select.EPOLLOUT if client.response else 0

    def _response(self, head: bytes) -> bytes:
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request_line.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        if path == "/metrics" and method in ("GET", "HEAD") and self._shows_metrics:
            status = "200 OK"
            content_type, text = _scraped(_field(lines, "accept"))
        else:
            content_type = PLAIN
            status, text = self._answer(method, path)

        body = f"{text}\n".encode()
        fields = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close"
        if method == "HEAD":
            body = b""
        return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body

    def _answer(self, method: str, path: str) -> tuple[str, str]:
        """The status and the words, metrics aside."""
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "only GET"
        match path:
            case "/livez":
                seconds = time.monotonic() - self._turned
                if seconds > LONGEST_TURN:
                    reason = f"the event loop has not turned for {seconds:.0f} s"
                    return "503 Service Unavailable", reason
                return "200 OK", "ok"
            case "/readyz":
                reason = self._unready()
                return ("503 Service Unavailable", reason) if reason else ("200 OK", "ok")
            case "/metrics":
                return "404 Not Found", "metrics are where the setting metrics-endpoint says"
        return "404 Not Found", "there are /livez, /readyz and /metrics"


def _scraped(accept: str) -> tuple[str, str]:
    """The metrics in the format that the client asks for: its content type, and the text."""
    from . import exposition  # nobody may ever scrape

    form = exposition.content_type(accept)
    return form, exposition.text(metrics.ALL, form)


def _field(lines: list[str], name: str) -> str:
    """A field of a request's head, its name in small letters; given twice it is one list."""
    values = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.lower() == name:
            values.append(value.strip())
    return ",".join(values)


def serving(probes: str, metrics_: str, unready: Callable[[], str]) -> list[tuple[str, Endpoint]]:
    """What is to run for these two settings, by name.

    Whoever reaches a port may ask: metrics are shown at one of their own, or at that of the probes
    if both settings say so. A unix socket is reached by the node's root alone, and shows all.
    """
    endpoints = []
    if probes:
        shows_metrics = metrics_ == probes or (not metrics_ and probes.startswith("unix:"))
        endpoints.append(("the endpoint", Endpoint(probes, unready, shows_metrics=shows_metrics)))
    if metrics_ and metrics_ != probes:
        endpoints.append(("the metrics", Endpoint(metrics_, unready)))
    return endpoints


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
