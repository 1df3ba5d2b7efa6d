"""The endpoint: answers probes over HTTP, on a TCP port or a unix socket. `probe` asks it.

GET /livez says that the event loop turns, GET /readyz that it serves, GET /metrics what was
counted, where the caller wants it said. What ready means is told by the caller.

Anybody who can reach the port may connect, so everything here is bounded: connections, the bytes
and the time of a request. A flood costs others an answer at most, never the plugin a descriptor
that the kubelet or the API server needs. Threads of its own take clients faster than one flooder
makes them, so that the kernel's queue does not fill; who comes to a full queue waits for a second.
Addresses have queues of their own besides, so that many flooders do not stand before the kubelet.

Where metrics are served over TLS (`Protection`), a client costs much more:
fewer are under way, there are fewer threads, and so many handshakes a second that a processor is
left to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import resource
import select
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from claimd.common import errors, metrics

from . import listening

if TYPE_CHECKING:
    import ssl

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

# Over TLS: threads; clients at a time that have begun a handshake, and so take some 100 KB; handshakes
# in a second, and how long a thread rests that has one too many.
SECURE_THREADS = 2
SECURE_CLIENTS = 32
HANDSHAKES = 100
HANDSHAKE_PAUSE = 0.02

# Awaited by a client for whom somebody else has to decide first.
_DECISION = select.EPOLLONESHOT

END_OF_HEAD = b"\r\n\r\n"
PLAIN = "text/plain; charset=utf-8"
_NO_TLS = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\nmetrics are served over TLS here: ask by https\n"
)


class Verdict(NamedTuple):
    """Whether somebody may scrape, and what is answered if not."""

    allowed: bool
    status: str = "200 OK"
    words: str = ""
    fields: str = ""  # of the answer's head, each with its line's end
    reason: str = ""  # for who counts


# Asked in threads with the field Authorization, with the client's address, and with what to call if
# the verdict is not known at once: then nothing is returned.
MayScrape = Callable[[str, str, Callable[[Verdict], None]], Verdict | None]


class Protection(NamedTuple):
    """How metrics are kept from those who have no business with them.

    `context` gives the TLS context for a new connection, or nothing if there is no certificate yet.
    Without `may_scrape` everybody may who connects.
    """

    context: Callable[[], ssl.SSLContext | None]
    may_scrape: MayScrape | None = None


class _Client:
    """One connection, which has one request and is closed after its answer."""

    def __init__(self, connection: socket.socket, source: str) -> None:
        self.connection = connection
        self.descriptor = connection.fileno()
        self.source = source  # its address
        # Over TLS, once it has said something, and as long as the handshake is not done.
        self.handshake: Callable[[], None] | None = None
        self.secure = False
        self.verdict: Verdict | None = None
        self.asked = False  # somebody has to decide
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
        self,
        address: str,
        unready: Callable[[], str],
        *,
        shows_metrics: bool = True,
        protection: Protection | None = None,
    ) -> None:
        """`unready` gives the reason why we are not ready, or nothing if we are.

        It is called in other threads. With `protection` all is served over TLS.
        """
        self._address = address
        self._unready = unready
        self._shows_metrics = shows_metrics
        self._protection = protection
        self._most = most_clients()
        self._poll: select.epoll | None = None
        self._handshakes = 0  # since `_counted_at`
        self._counted_at = 0.0
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
            self._poll = poll
            poll.register(ending, select.EPOLLIN)
            for listener in self._listeners.values():
                listener.setblocking(False)
                poll.register(listener, select.EPOLLIN)
            count = THREADS if self._protection is None else SECURE_THREADS
            threads = [
                threading.Thread(target=self._attend, args=[poll], name="endpoint", daemon=True)
                for _ in range(count)
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
                connection, address = listener.accept()
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
            client = _Client(connection, str(address[0]) if address else "")
            awaited = self._go_on(client)
            if awaited:
                self._keep(client, poll, awaited)
            else:
                client.connection.close()

    def _may_shake_hands(self) -> bool:
        """Whether there is room for one more in this second, which is counted."""
        with self._lock:
            now = time.monotonic()
            if now - self._counted_at >= 1.0:
                self._counted_at, self._handshakes = now, 0
            self._handshakes += 1
            return self._handshakes <= HANDSHAKES

    def _keep(self, client: _Client, poll: select.epoll, awaited: int) -> None:
        """It waits from now on, if need be in the place of another."""
        with self._lock:
            if len(self._clients) >= self._most:
                self._hang_up_on_the_oldest()
            # Since it began, another thread may have kept one that had begun.
            if client.secure:
                self._make_room_for_a_handshake()
            self._clients[client.descriptor] = client
            poll.register(client.descriptor, _events(client, awaited))

    def _decide(self, client: _Client, verdict: Verdict) -> None:
        """A thread goes on with the client, if it is still there. Called by any thread."""
        with self._lock:
            client.verdict = verdict
            waits = self._clients.get(client.descriptor) is client and not client.attended
            if waits and self._poll is not None:
                self._poll.modify(client.descriptor, _events(client, _DECISION))

    def _make_room_for_a_handshake(self) -> None:
        """With the lock held."""
        if sum(client.secure for client in self._clients.values()) >= SECURE_CLIENTS:
            self._hang_up_on_the_oldest(secure=True)

    def _hang_up_on_the_oldest(self, *, secure: bool = False) -> None:
        """Of all, or of those whose handshake has begun."""
        for descriptor, client in self._clients.items():
            if not client.attended and (client.secure or not secure):
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
                    poll.modify(descriptor, _events(client, awaited))
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
        if self._protection is not None:
            return self._go_on_securely(client)
        try:
            return self._exchange(client, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return select.EPOLLOUT if client.response else select.EPOLLIN
        except OSError:
            return 0

    def _go_on_securely(self, client: _Client) -> int:
        """The same, with the handshake before it. What is awaited says the library."""
        import ssl  # loaded already, by who speaks with the API server

        try:
            if not client.secure:
                awaited = self._begin_handshake(client)
                if not client.secure:
                    return awaited
            if client.handshake is not None:
                client.handshake()
                client.handshake = None
            awaited = self._exchange(client, 0)
            if not awaited:
                # That it is the end, and nobody has cut it off. The client's word is not awaited.
                with contextlib.suppress(OSError):
                    client.connection.unwrap()  # type: ignore[attr-defined]
            return awaited
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                with contextlib.suppress(OSError):
                    # Past the library. What is left unread would cut the answer off.
                    socket.socket.recv(client.connection, LONGEST_REQUEST, socket.MSG_DONTWAIT)
                    socket.socket.send(client.connection, _NO_TLS, socket.MSG_DONTWAIT)
            return 0
        except OSError:
            return 0

    def _begin_handshake(self, client: _Client) -> int:
        """Makes it `secure` once it has said something; else what it waits for, as `_go_on`."""
        assert self._protection is not None
        # Who says nothing costs nothing, and who has gone already takes no place.
        try:
            if not client.connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK):
                return 0
        except BlockingIOError:
            return select.EPOLLIN
        if not self._may_shake_hands():
            time.sleep(HANDSHAKE_PAUSE)
            return select.EPOLLIN

        context = self._protection.context()
        if context is None:
            return 0
        with self._lock:
            self._make_room_for_a_handshake()
            client.secure = True
        client.connection.setblocking(False)
        connection = context.wrap_socket(
            client.connection, server_side=True, do_handshake_on_connect=False
        )
        client.connection, client.handshake = connection, connection.do_handshake
        return 0

    def _exchange(self, client: _Client, flags: int) -> int:
        """Reads, answers and sends as far as it goes without waiting; as `_go_on`."""
        if not client.response:
            if not client.asked:
                room = LONGEST_REQUEST - len(client.head)
                data = client.connection.recv(room, flags)
                client.head += data
                if END_OF_HEAD not in client.head:
                    done = not data or len(client.head) >= LONGEST_REQUEST
                    return 0 if done else select.EPOLLIN
            elif client.verdict is None:
                return 0  # it has gone before anything was decided
            client.response = self._response(client)
            if not client.response:
                return _DECISION

        sent = client.connection.send(client.response, flags)
        client.response = client.response[sent:]
        return select.EPOLLOUT if client.response else 0

    def _response(self, client: _Client) -> bytes:
        """Nothing as long as it is not decided whether the client may have it."""
        request_line, *lines = client.head.decode("latin-1").split("\r\n")
        method, _, rest = request_line.partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        content_type, more = PLAIN, ""
        if path == "/metrics" and method in ("GET", "HEAD") and self._shows_metrics:
            verdict = self._verdict(client, lines)
            if verdict is None:
                return b""
            if verdict.allowed:
                status = verdict.status
                content_type, text = _scraped(_field(lines, "accept"))
            else:
                status, text, more = verdict.status, verdict.words, verdict.fields
        else:
            status, text = self._answer(method, path)

        body = f"{text}\n".encode()
        fields = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close"
        if method == "HEAD":
            body = b""
        return f"HTTP/1.1 {status}\r\n{more}{fields}\r\n\r\n".encode() + body

    def _verdict(self, client: _Client, lines: list[str]) -> Verdict | None:
        if self._protection is None or self._protection.may_scrape is None:
            return Verdict(allowed=True)
        verdict = client.verdict
        if verdict is None:
            client.asked = True
            authorization = _field(lines, "authorization")
            verdict = self._protection.may_scrape(
                authorization, client.source, functools.partial(self._decide, client)
            )
        if verdict is not None and not verdict.allowed:
            with self._lock:
                metrics.SCRAPES_REFUSED.add(verdict.reason)
        return verdict

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


def serving(
    probes: str,
    metrics_: str,
    unready: Callable[[], str],
    protection: Protection | None = None,
) -> list[tuple[str, Endpoint]]:
    """What is to run for these two settings, by name.

    Whoever reaches a port may ask: metrics are shown at one of their own, or at that of the probes
    if both settings say so. A unix socket is reached by the node's root alone, and shows all.
    `protection` is for a port of the metrics' own; probes are served without.
    """
    endpoints = []
    if probes:
        shows_metrics = metrics_ == probes or (not metrics_ and probes.startswith("unix:"))
        endpoints.append(("the endpoint", Endpoint(probes, unready, shows_metrics=shows_metrics)))
    if metrics_ and metrics_ != probes:
        endpoints.append(("the metrics", Endpoint(metrics_, unready, protection=protection)))
    return endpoints


def _events(client: _Client, awaited: int) -> int:
    """For the poll: what the client waits for may have come about in the meantime."""
    if awaited == _DECISION and client.verdict is not None:
        awaited = select.EPOLLOUT
    return awaited | select.EPOLLONESHOT


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
