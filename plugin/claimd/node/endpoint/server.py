"""The endpoint: answers probes and scrapes over HTTP, on a TCP port or a unix socket.

GET /livez succeeds if the event loop runs and our sockets answer, and GET /readyz if the plugin is
ready. GET /metrics returns the metrics. The caller decides what ready and dead mean, and where
metrics are shown.

Anybody who can reach the port may connect, so everything is limited: the connections, and the bytes
and the time of a request. A flood may cost other clients their answer, but it never takes a
descriptor that the kubelet or the API server needs. The endpoint has its own thread, which answers
clients faster than one flooder connects. The thread never waits: if a client needs a verdict or a
scrape, other threads work on it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import logging
import resource
import select
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from claimd.common import errors, metrics

from . import listening

log = logging.getLogger(__name__)

T = TypeVar("T")

# A conversation with a client. It yields the events to wait for (see epoll) until it ends.
Talk = Generator[int, None, T]

LONGEST_REQUEST = 8192
# Seconds for a client to send its request and to take the answer.
CLIENT_TIMEOUT = 5.0
# The event loop notes the time at this interval in seconds. If it has not done so for the second
# number of seconds, we are not alive.
TURN_INTERVAL, LONGEST_TURN = 0.5, 5.0
# The number of clients that may wait at the same time, and the share of the process's descriptors
# that they may use.
MOST_CLIENTS, SHARE_OF_DESCRIPTORS = 256, 1 / 4
# The number of clients that the kernel holds until we accept them, and the number of queues of a
# port.
BACKLOG, QUEUES = 4096, 16
# The number of clients that are accepted from one queue before the next queue is served.
ACCEPTS_A_TURN = 16
# Seconds until the next try if the system has no descriptor for a connection.
ACCEPT_PAUSE = 0.1

# A TLS handshake costs a millisecond of a processor and 100 KB. These are the number of clients
# that may be in a handshake, the number of handshakes that may begin in a second, and the seconds
# until a client above that number is tried again.
SECURE_CLIENTS, HANDSHAKES, HANDSHAKE_PAUSE = 32, 100, 0.02

PLAIN = "text/plain; charset=utf-8"
_NO_TLS = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\nmetrics are served over TLS here: ask by https\n"
)


class Verdict(NamedTuple):
    """The decision whether a client may scrape, and the answer if it may not."""

    allowed: bool
    status: str = "200 OK"
    words: str = ""
    fields: str = ""  # header fields of the answer, each with its line end
    reason: str = ""  # the label in the metric of refused scrapes


# A function that is called in the endpoint's thread, with the field Authorization and the client's
# address. It returns None if the verdict is not known yet. Later it passes the verdict to the third
# argument, in any thread.
MayScrape = Callable[[str, str, Callable[[Verdict], None]], Verdict | None]


class Protection(NamedTuple):
    """The protection of metrics: by TLS, and by a decision about each scrape.

    `context` returns the TLS context for a new connection, or None while there is no certificate.
    Without `may_scrape`, everybody who connects may scrape.
    """

    context: Callable[[], ssl.SSLContext | None]
    may_scrape: MayScrape | None = None


class _Client:
    """One connection. It carries one request, and is closed after the answer."""

    def __init__(self, connection: socket.socket, source: str) -> None:
        self.connection, self.source = connection, source
        self.descriptor = connection.fileno()
        self.deadline = time.monotonic() + CLIENT_TIMEOUT
        self.secure = False  # has begun a TLS handshake
        self.delivery: Any = None  # what another thread has handed over
        self.talk: Talk[None]


class _Handshakes:
    """Counts the TLS handshakes that begin in a second."""

    def __init__(self) -> None:
        self.count, self.since = 0, 0.0
        self.is_exhausted = False  # a client was told to wait

    def may_begin(self) -> bool:
        """Counts one more handshake; returns True if it may begin in this second."""
        now = time.monotonic()
        if now - self.since >= 1.0:
            self.count, self.since = 0, now
        self.count += 1
        self.is_exhausted = self.count > HANDSHAKES
        return not self.is_exhausted


class Endpoint:
    """Serves probes and scrapes while `run` runs.

    A client that sends its request at once, as probes do, is answered and leaves. Other clients
    wait. If too many wait, a new one takes the place of the one that has waited longest.
    """

    def __init__(
        self,
        address: str,
        unready: Callable[[], str],
        dead: Callable[[], str] = str,
        *,
        shows_metrics: bool = True,
        protection: Protection | None = None,
    ) -> None:
        """Calls `unready` and `dead` in another thread.

        `unready` returns why we are not ready, or "" if we are, and `dead` why a restart is needed.
        With `protection`, everything is served over TLS.
        """
        self._address = address
        self._unready = unready
        self._dead = dead
        self._shows_metrics = shows_metrics
        self._protection = protection
        self._turned = 0.0  # when the event loop last noted the time
        self._closing = False
        self._scrapes: ThreadPoolExecutor | None = None
        self._listeners: dict[int, socket.socket] = {}
        self._refusal = ""  # the last reason why a connection could not be accepted
        self._handshakes = _Handshakes()

        # The clients that wait, by descriptor, in the order of their arrival; and those for which
        # another thread has delivered something. A byte to the waker announces a delivery.
        self._clients: dict[int, _Client] = {}
        self._delivered: collections.deque[_Client] = collections.deque()
        self._waker: socket.socket | None = None

    async def run(self) -> None:
        """Serves until cancelled. Raises Fatal if the address cannot be served."""
        self._listeners = {listener.fileno(): listener for listener in self._listen()}
        self._turned, self._closing = time.monotonic(), False
        self._scrapes = ThreadPoolExecutor(1, "endpoint-scrape")
        woken, self._waker = socket.socketpair()
        thread = threading.Thread(target=self._serve, args=[woken], name="endpoint", daemon=True)
        thread.start()
        try:
            while True:
                await asyncio.sleep(TURN_INTERVAL)
                self._turned = time.monotonic()
        finally:
            self._closing = True
            self._wake()
            thread.join()
            self._waker.close()
            self._scrapes.shutdown(wait=False, cancel_futures=True)

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

    # ---------------------------------------------------------------- the endpoint's thread

    def _serve(self, woken: socket.socket) -> None:
        """Accepts clients and talks to them, until `run` ends."""
        with woken, select.epoll() as poll:
            for reader in (woken, *self._listeners.values()):
                reader.setblocking(False)
                poll.register(reader, select.EPOLLIN)
            while not self._closing:
                ready = [descriptor for descriptor, _ in poll.poll(self._patience())]
                for client in [self._clients[each] for each in ready if each in self._clients]:
                    self._go_on(client, poll)
                if woken.fileno() in ready:
                    woken.recv(4096)
                    while self._delivered:
                        self._go_on(self._delivered.popleft(), poll)

                # New clients come last: they may get descriptors of clients that have just gone.
                for each in ready:
                    if each in self._listeners:
                        self._accept(self._listeners[each], poll)

                # No client may keep its place for long, and TLS must leave the processor to others.
                while self._clients and self._patience() == 0:
                    self._hang_up(next(iter(self._clients.values())))
                if self._handshakes.is_exhausted:
                    self._handshakes.is_exhausted = False
                    time.sleep(HANDSHAKE_PAUSE)

            for listener in self._listeners.values():
                listener.close()
            for client in self._clients.values():
                client.connection.close()
            self._listeners, self._clients = {}, {}

    def _patience(self) -> float | None:
        """Returns the seconds until the time of the oldest client is over; None if there are no
        clients.
        """
        oldest = next(iter(self._clients.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline - time.monotonic())

    def _accept(self, listener: socket.socket, poll: select.epoll) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # the client has gone again
                continue
            except OSError as error:
                # No descriptor is left. The listener stays readable, so this would be a busy loop.
                if str(error) != self._refusal:
                    log.warning("probes are not answered for now: %s", error)
                self._refusal = str(error)
                time.sleep(ACCEPT_PAUSE)
                return

            # Most clients have sent their request already, and never wait.
            self._refusal = ""
            connection.setblocking(False)
            client = _Client(connection, str(address[0]) if address else "")
            client.talk = self._converse(client)
            awaited = self._step(client)
            if awaited is None:
                client.connection.close()
                continue
            if len(self._clients) >= most_clients():
                self._hang_up(next(iter(self._clients.values())))
            self._clients[client.descriptor] = client
            poll.register(client.descriptor, awaited)

    def _go_on(self, client: _Client, poll: select.epoll) -> None:
        if self._clients.get(client.descriptor) is client:
            awaited = self._step(client)
            if awaited is None:
                self._hang_up(client)
            else:
                poll.modify(client.descriptor, awaited)

    def _step(self, client: _Client) -> int | None:
        """Continues the conversation as far as possible; returns the events to wait for, or None at
        its end.
        """
        try:
            return next(client.talk, None)
        except OSError:  # the client has gone, or does not speak TLS
            return None
        except Exception:
            log.exception("a probe was not answered, which is a mistake in claimd")
            return None

    def _hang_up(self, client: _Client) -> None:
        del self._clients[client.descriptor]
        client.connection.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is closed, or wakes anyhow
            if self._waker is not None:
                self._waker.send(b"x", socket.MSG_DONTWAIT)

    def _deliver(self, client: _Client, delivery: object) -> None:
        """Passes something to a client that waits for it. Any thread may call this."""
        client.delivery = delivery
        self._delivered.append(client)
        self._wake()

    # ---------------------------------------------------------------- a conversation

    def _converse(self, client: _Client) -> Talk[None]:
        """Reads one request and sends the answer. A malformed request gets no answer."""
        if self._protection is not None:
            yield from self._shake_hands(client, self._protection)

        head = b""
        while b"\r\n\r\n" not in head:
            room = LONGEST_REQUEST - len(head)
            data = (
                (yield from _retry(select.EPOLLIN, client.connection.recv, room)) if room else b""
            )
            if not data:
                return
            head += data

        response = memoryview((yield from self._respond(client, head)))
        while response:
            sent = yield from _retry(select.EPOLLOUT, client.connection.send, response)
            response = response[sent:]

    def _shake_hands(self, client: _Client, protection: Protection) -> Talk[None]:
        # A client that has sent nothing, or has disconnected, gets no handshake and no place for
        # one.
        peek = functools.partial(client.connection.recv, 1, socket.MSG_PEEK)
        while (yield from _retry(select.EPOLLIN, peek)) and not self._handshakes.may_begin():
            yield select.EPOLLIN
        context = protection.context()
        if context is None or not peek():
            raise ConnectionAbortedError

        shaking = [other for other in self._clients.values() if other.secure]
        if len(shaking) >= SECURE_CLIENTS:
            self._hang_up(shaking[0])
        client.secure = True
        secure = context.wrap_socket(
            client.connection, server_side=True, do_handshake_on_connect=False
        )
        client.connection = secure
        try:
            yield from _retry(select.EPOLLIN, secure.do_handshake)
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                # This reads from the socket itself, without the TLS library. If data were left
                # unread, the kernel would cut off the answer.
                socket.socket.recv(secure, LONGEST_REQUEST)
                socket.socket.send(secure, _NO_TLS)
            raise

    def _respond(self, client: _Client, head: bytes) -> Talk[bytes]:
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request_line.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        content_type, fields = PLAIN, ""
        if path == "/metrics" and method in ("GET", "HEAD") and self._shows_metrics:
            verdict = yield from self._decide(client, _field(lines, "authorization"))
            _, status, text, fields, reason = verdict
            if verdict.allowed:
                content_type, text = yield from self._scrape(client, _field(lines, "accept"))
            else:
                metrics.SCRAPES_REFUSED.add(reason)
        else:
            status, text = self._answer(method, path)

        body = f"{text}\n".encode()
        fields += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        if method == "HEAD":
            body = b""
        return f"HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n".encode() + body

    def _decide(self, client: _Client, authorization: str) -> Talk[Verdict]:
        """Returns whether the client may scrape."""
        if self._protection is None or self._protection.may_scrape is None:
            return Verdict(allowed=True)
        decided = functools.partial(self._deliver, client)
        verdict = self._protection.may_scrape(authorization, client.source, decided)
        if verdict is None:
            verdict = yield from _delivery(client)
        return verdict

    def _scrape(self, client: _Client, accept: str) -> Talk[tuple[str, str]]:
        """Collects the metrics in a thread of their own, since that may wait for the kubelet."""
        assert self._scrapes is not None
        scrape = self._scrapes.submit(_format_metrics, accept)
        scrape.add_done_callback(functools.partial(self._deliver, client))
        yield from _delivery(client)
        return scrape.result()

    def _answer(self, method: str, path: str) -> tuple[str, str]:
        """Returns the status and the text, for everything but metrics."""
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "only GET"
        match path:
            case "/livez":
                seconds = time.monotonic() - self._turned
                if seconds > LONGEST_TURN:
                    reason = f"the event loop has not turned for {seconds:.0f} s"
                    return "503 Service Unavailable", reason
                return _verdict(self._dead())
            case "/readyz":
                return _verdict(self._unready())
            case "/metrics":
                return "404 Not Found", "metrics are where the setting metrics-endpoint says"
        return "404 Not Found", "there are /livez, /readyz and /metrics"


def _verdict(reason: str) -> tuple[str, str]:
    """Returns the status and the text for a reason to say no, or for none."""
    return ("503 Service Unavailable", reason) if reason else ("200 OK", "ok")


def _retry(events: int, operation: Callable[..., T], *args: object) -> Talk[T]:
    """Calls a non-blocking operation until it does not have to wait, and returns its result."""
    while True:
        try:
            return operation(*args)
        except BlockingIOError:
            yield events
        except ssl.SSLWantReadError:
            yield select.EPOLLIN
        except ssl.SSLWantWriteError:
            yield select.EPOLLOUT


def _delivery(client: _Client) -> Talk[Any]:
    """Waits for what another thread delivers to the client, and returns it."""
    if client.delivery is None:
        # Without events, epoll still reports a client that goes away.
        yield 0
        if client.delivery is None:
            raise ConnectionAbortedError
    delivery, client.delivery = client.delivery, None
    return delivery


def _format_metrics(accept: str) -> tuple[str, str]:
    """Returns the content type and the text of the metrics, in the format the client asks for."""
    from . import exposition  # a node that nobody scrapes does not load it

    form = exposition.content_type(accept)
    return form, exposition.text(metrics.ALL, form)


def _field(lines: list[str], name: str) -> str:
    """Returns a header field, given its name in lower case. Repeated fields are joined as a list."""
    values = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.lower() == name:
            values.append(value.strip())
    return ",".join(values)


def serving(
    probes: str,
    metrics_: str,
    unready: Callable[[], str],
    protection: Protection | None = None,
    dead: Callable[[], str] = str,
) -> list[tuple[str, Endpoint]]:
    """Returns the endpoints for the settings `endpoint` and `metrics-endpoint`, with their names.

    Any client that reaches a port may send requests. So metrics are shown at their own port, or at
    the port of the probes if both settings name it. A unix socket shows everything, because only
    root of the node reaches it. `protection` is for the metrics' own port; probes are served
    without it.
    """
    endpoints = []
    if probes:
        shows_metrics = metrics_ == probes or (not metrics_ and probes.startswith("unix:"))
        probed = Endpoint(probes, unready, dead, shows_metrics=shows_metrics)
        endpoints.append(("the endpoint", probed))
    if metrics_ and metrics_ != probes:
        scraped = Endpoint(metrics_, unready, dead, protection=protection)
        endpoints.append(("the metrics", scraped))
    return endpoints


def most_clients() -> int:
    """Returns how many clients may wait, so that enough descriptors are left for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CLIENTS
    return max(1, min(MOST_CLIENTS, int(descriptors * SHARE_OF_DESCRIPTORS)))


def _listen_unix(path: Path) -> socket.socket:
    """Listens at the path, and replaces an old socket. Raises OSError if the path is something
    else.
    """
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
