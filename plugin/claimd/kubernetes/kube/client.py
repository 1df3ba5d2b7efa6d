"""Requests to the API server over kept connections, and streams of lines for watches.

The client knows HTTP and bytes, but no Kubernetes objects: the callers decide what to request and
what a response means. Every failure is raised as an error of kube.errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlencode

from claimd.common import metrics

from . import errors, http1, stream, tls
from .client_config import ClientConfig, Credential

# Bytes of a response, or of one line of a watch. etcd takes objects of at most 1.5 MiB.
LARGEST = 32 << 20
CONNECT_TIMEOUT = 5.0
# Seconds after which idle connections are closed, except for the newest one.
IDLE = 20.0
# The most interim responses, such as "100 Continue", before the real one. API servers send none.
MOST_INFORMATIONAL = 8
# Other tasks run after this number of pieces of a response: a chunk may be a single byte.
PIECES_A_TURN = 100
# Methods that do no harm if the server receives the request twice. Our PATCH requests are
# server-side applies, or JSON patches that test the resource version first.
REPEATABLE = frozenset({"GET", "PUT", "DELETE", "PATCH"})
# Options of a socket. With them the kernel reports a vanished server within a minute.
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class _Unanswered(Exception):
    """The connection ended before the first byte of a response."""


class _Connection:
    """One HTTP connection: its stream, and the parser of its responses.

    It serves one request at a time. If `ready_again` returns True after a response, the connection
    may serve another request. Otherwise the caller must drop it.
    """

    def __init__(self, stream_: stream.Stream, credential: Credential, largest: int) -> None:
        self.stream = stream_
        # The client's certificate. A connection cannot change it later.
        self.certificate = credential.certificate
        self.http = http1.Responses()
        self.reused = False
        # By the loop's clock. 0: the connection has never been idle.
        self.idle_since = 0.0
        self._pieces = 0
        # The most bytes of a response's body.
        self._largest = largest

    def send(self, head: bytes, body: bytes | None) -> None:
        """Writes the whole request without waiting.

        What the kernel does not take at once stays in the transport's buffer. Our bodies are small.
        """
        self.http.expect()
        self.stream.write(head + body if body else head)

    async def response(self) -> http1.Response:
        """Returns the head of the response and skips interim ones.

        _Unanswered if the connection ends before the first byte.
        """
        for _ in range(MOST_INFORMATIONAL + 1):
            event = await self.event()
            if isinstance(event, http1.Response) and event.status >= 200:
                return event
        raise errors.Malformed(f"more than {MOST_INFORMATIONAL} interim responses (1xx)")

    async def body(self) -> bytes:
        """Reads the response to its end and returns its body."""
        parts: list[bytes] = []
        size = 0
        while isinstance(piece := await self.event(), bytes):
            parts.append(piece)
            size += len(piece)
            if size > self._largest:
                raise errors.Malformed(f"an answer of more than {self._largest:,} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def event(self) -> http1.Response | bytes | http1.Sign:
        """Waits for the next piece of the response and returns it."""
        # Thousands of pieces may have arrived already. They need no waiting, so without this the
        # loop would be blocked for seconds.
        self._pieces += 1
        if self._pieces % PIECES_A_TURN == 0:
            await asyncio.sleep(0)

        while (event := self.http.next()) is http1.Sign.NEED_DATA:
            data = await self.stream.read()
            if not data and not self.has_answer():
                raise _Unanswered
            self.http.receive(data)
        return event

    def has_answer(self) -> bool:
        """Returns True if a part of the response to the current request has arrived."""
        return self.http.has_begun

    def ready_again(self) -> bool:
        """Returns True if another request may follow.

        It may not if the server wants to close the connection or has sent more than its response.
        """
        self.reused = self.http.may_repeat
        return self.reused

    def is_idle(self) -> bool:
        """Returns True if the connection is open and the server sent nothing unasked."""
        return self.stream.is_idle

    def drop(self) -> None:
        self.stream.abort()


class Client:
    """A client of the API server: requests over at most `limit` connections at a time, and watches.

    A connection is in one of three states:

    - in use: one request has taken it out of `_idle` or has opened it;
    - idle: it is in `_idle` after a response was read to its end. It leaves when a request takes
      it, when the server closes it, or when a burst of requests has left too many of them;
    - closed. A request that fails or is cancelled closes its connection, because the rest of its
      response could still arrive there.

    Each watch has its own connection, which does not count for the limit, and closes it at its end.
    `_open` has all connections that are not closed, so that `close` finds them.
    """

    def __init__(
        self, config: ClientConfig, agent: str, limit: int = 4, largest: int | None = None
    ) -> None:
        """Takes `agent`, the User-Agent, and `largest`, the most bytes of a response (None:
        LARGEST).
        """
        self._config = config
        self._tls = tls.TlsContexts(config)
        self._headers = [
            ("Host", config.authority),
            ("User-Agent", agent),
            ("Accept", "application/json"),
        ]
        self._largest = LARGEST if largest is None else largest
        self._slots = asyncio.Semaphore(limit)
        self._open: set[_Connection] = set()
        # The last one is used next, so that the earlier ones grow old and are closed.
        self._idle: list[_Connection] = []
        self._trimmer: asyncio.TimerHandle | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> bytes:
        """Sends a request and returns the body of the response. Raises ApiError if it failed.

        The timeout includes the wait for a connection. A GET, PUT, DELETE or PATCH may reach the
        server twice, if the server closes a kept connection at the moment of its use. A POST is
        sent only once, so after an error the server may or may not have carried it out.
        """
        operation, outcome = f"{method} {path}", "Abandoned"
        began = time.monotonic()
        target = self._target(path, query)
        fields = []
        if body is not None:
            fields = [("Content-Type", content_type), ("Content-Length", str(len(body)))]

        try:
            async with asyncio.timeout(timeout):
                answer = await self._request_authorized(operation, method, target, fields, body)
            outcome = "Success"
            return answer
        except errors.ApiError as error:
            outcome = type(error).__name__
            raise
        except TimeoutError:
            outcome = errors.Unreachable.__name__
            raise errors.Unreachable(
                f"{operation}: no answer from {self._config.address} within {timeout:g} s; "
                "is the API server overloaded, or is something between us dropping packets?"
            ) from None
        finally:
            metrics.API_REQUESTS.add(method, outcome)
            metrics.API_SECONDS.add(time.monotonic() - began, method)

    async def lines(
        self, path: str, query: Mapping[str, str], *, idle: float
    ) -> AsyncGenerator[bytes, None]:
        """Yields the lines of an endless response until the server ends it.

        A silence of `idle` seconds raises Unreachable. The generator has its own connection, so
        callers must close the generator with contextlib.aclosing.
        """
        operation = f"GET {path}"
        connection = None
        try:
            connection, response = await self._begin(operation, self._target(path, query))
            if response.status != 200:
                async with asyncio.timeout(idle):
                    answer = await connection.body()
                raise errors.from_answer(operation, response.status, _headers(response), answer)

            # A line may come in several pieces, and a piece may have several lines. `rest` is the
            # line whose end has not arrived.
            rest = bytearray()
            while True:
                async with asyncio.timeout(idle):
                    piece = await connection.event()
                if not isinstance(piece, bytes):
                    return
                rest += piece
                if len(rest) > self._largest:
                    raise errors.Malformed(
                        f"{operation}: a line of more than {self._largest:,} bytes"
                    )
                if b"\n" not in piece:
                    continue
                *complete, rest = rest.split(b"\n")
                for line in complete:
                    yield bytes(line)
        except TimeoutError:
            raise errors.Unreachable(
                f"{operation}: {self._config.address} was silent for {idle:g} s"
            ) from None
        except (OSError, _Unanswered, http1.ProtocolError) as error:
            raise self._unreachable(operation, error) from error
        finally:
            if connection is not None:
                self._discard(connection)

    async def date(self) -> str:
        """Returns the API server's time, in HTTP's format. Empty if its responses have no date."""
        connection, response = await self._begin("GET /version", self._target("/version", None))
        self._discard(connection)
        for name, value in response.headers:
            if name == b"date":
                return value.decode(errors="replace")
        return ""

    async def close(self) -> None:
        """Closes every connection. Requests that are in progress fail."""
        if self._trimmer is not None:
            self._trimmer.cancel()

        connections = list(self._open)
        for connection in connections:
            self._discard(connection)

        # Aborted sockets are closed by the loop, a moment later.
        for connection in connections:
            with contextlib.suppress(OSError):
                await connection.stream.wait_closed()

    # ---------------------------------------------------------------- one request

    async def _request_authorized(
        self,
        operation: str,
        method: str,
        target: str,
        fields: list[tuple[str, str]],
        body: bytes | None,
    ) -> bytes:
        """Sends a request and returns the body of a successful response.

        After a 401 it repeats the request once with another credential, if there is one.
        """
        credential = await self._config.credentials.get()
        async with self._slots:
            head = self._head(method, target, credential, fields)
            status, headers, answer = await self._exchange(
                operation, method, credential, head, body
            )
            if status == 401:
                # The credential may have expired a moment ago. The same one would be refused again.
                fresh = await self._config.credentials.get(refused=credential)
                if fresh != credential:
                    head = self._head(method, target, fresh, fields)
                    status, headers, answer = await self._exchange(
                        operation, method, fresh, head, body
                    )

        if not 200 <= status <= 299:
            raise errors.from_answer(operation, status, headers, answer)
        return answer

    async def _exchange(
        self,
        operation: str,
        method: str,
        credential: Credential,
        head: bytes,
        body: bytes | None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Sends a request and returns status, headers and body of the response.

        If a kept connection turns out to be dead, a repeatable request goes out again on a new one.
        """
        connection = self._take(credential) or await self._connect(operation, credential)
        while True:
            keep = False
            try:
                connection.send(head, body)
                response = await connection.response()
                answer = await connection.body()
                keep = connection.ready_again()
                return response.status, _headers(response), answer
            except (OSError, _Unanswered, http1.ProtocolError) as error:
                # The server may close an idle connection at the moment that we use it. A repeatable
                # request is then sent once more, on a new connection. A POST is not, because the
                # server may have carried it out: its caller must decide.
                repeatable = method in REPEATABLE
                if not connection.reused or connection.has_answer() or not repeatable:
                    raise self._unreachable(operation, error) from error
            except errors.Malformed as error:
                raise errors.Malformed(f"{operation}: {error.message}") from None
            finally:
                if keep:
                    self._keep(connection)
                else:
                    self._discard(connection)
            connection = await self._connect(operation, credential)

    async def _begin(self, operation: str, target: str) -> tuple[_Connection, http1.Response]:
        """Opens a connection, sends a GET, and returns the connection and the head of the response.

        After a 401 it tries once more with another credential, if there is one.
        """
        credential = await self._config.credentials.get()
        while True:
            connection = await self._connect(operation, credential)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    connection.send(self._head("GET", target, credential, []), None)
                    response = await connection.response()
            except TimeoutError:
                self._discard(connection)
                raise errors.Unreachable(
                    f"{operation}: no answer from {self._config.address} "
                    f"within {CONNECT_TIMEOUT:g} s"
                ) from None
            except errors.Malformed as error:
                self._discard(connection)
                raise errors.Malformed(f"{operation}: {error.message}") from None
            except BaseException:
                self._discard(connection)
                raise

            if response.status == 401:
                fresh = await self._config.credentials.get(refused=credential)
                if fresh != credential:
                    self._discard(connection)
                    credential = fresh
                    continue
            self._tls.keep_session(connection.stream)
            return connection, response

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        target = self._config.prefix + path
        return f"{target}?{_encode_query(tuple(query.items()))}" if query else target

    def _head(
        self, method: str, target: str, credential: Credential, fields: list[tuple[str, str]]
    ) -> bytes:
        headers = [*self._headers, *fields]
        if credential.token:
            headers.append(("Authorization", f"Bearer {credential.token}"))
        return http1.request(method, target, headers)

    def _unreachable(self, operation: str, error: Exception) -> errors.Unreachable:
        config = self._config
        return errors.Unreachable(f"{operation}: {config.address} {_reason(error, config)}")

    # ---------------------------------------------------------------- the connections

    def _take(self, credential: Credential) -> _Connection | None:
        """Returns a live idle connection with this credential's certificate, or None."""
        while self._idle:
            # The newest one is the most likely to be alive.
            connection = self._idle.pop()
            if connection.certificate == credential.certificate and connection.is_idle():
                return connection
            self._discard(connection)
        return None

    def _keep(self, connection: _Connection) -> None:
        """Puts the connection among the idle ones after a complete response."""
        loop = asyncio.get_running_loop()
        # The server sends its TLS session with, or right after, its first response.
        if not connection.idle_since:
            self._tls.keep_session(connection.stream)
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._trimmer is None:
            self._trimmer = loop.call_later(IDLE, self._trim)

    def _trim(self) -> None:
        """Closes idle connections: those that the server has closed, and old ones but the newest.

        It runs every IDLE seconds as long as there are idle connections.
        """
        loop = asyncio.get_running_loop()
        newest = self._idle[-1:]
        for connection in list(self._idle):
            old = connection.idle_since + IDLE <= loop.time()
            if not connection.is_idle() or (old and connection not in newest):
                self._idle.remove(connection)
                self._discard(connection)

        self._trimmer = loop.call_later(IDLE, self._trim) if self._idle else None

    def _discard(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.drop()

    async def _connect(self, operation: str, credential: Credential) -> _Connection:
        """Opens a new connection. Unreachable says what to check if that fails."""
        config = self._config
        try:
            context = self._tls.context(credential)
        except (OSError, ValueError) as error:
            raise errors.Unreachable(
                f"{operation}: the certificates cannot be used: {tls.reason(error)}"
            ) from error

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                connected = await stream.connect(
                    config.host,
                    config.port,
                    context,
                    config.server_name or config.host,
                    self._tls.session,
                )
        except TimeoutError:
            self._tls.drop_session()
            raise errors.Unreachable(
                f"{operation}: {config.address} did not take the connection "
                f"within {CONNECT_TIMEOUT:g} s; is the address right, "
                "and does a network policy or firewall let us through?"
            ) from None
        except OSError as error:
            # The TLS session may be the cause, so the next attempt does not use it. A refused
            # connection or an unknown host name has nothing to do with it.
            if not isinstance(error, ConnectionRefusedError | socket.gaierror):
                self._tls.drop_session()
            raise self._unreachable(operation, error) from error

        raw: socket.socket = connected.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE:
            raw.setsockopt(socket.IPPROTO_TCP, option, value)

        connection = _Connection(connected, credential, self._largest)
        self._open.add(connection)
        return connection


@functools.lru_cache(maxsize=8)
def _encode_query(query: tuple[tuple[str, str], ...]) -> str:
    """Returns the query in the form of a URL. Cached, because each report has the same query."""
    return urlencode(query)


def _reason(error: Exception, config: ClientConfig) -> str:
    """Returns the rest of a sentence about an address: what failed and what to check."""
    match error:
        case ssl.SSLCertVerificationError():
            name = config.server_name or config.host
            return (
                f"is not trusted: {error.verify_message}; expected a certificate for {name} "
                "by the certificate authority that we were given"
            )
        case ssl.SSLError():
            return (
                f"and we have no TLS in common: {error.reason or error}; "
                "is the port right, and our certificate?"
            )
        case socket.gaierror():
            return f"has no address: {error.strerror}; is the name right, and does DNS work here?"
        case ConnectionRefusedError():
            return (
                "refused the connection; is the API server running, and are address and port right?"
            )
        case http1.ProtocolError():
            return f"broke off its answer, or does not speak HTTP: {error}"
        case _Unanswered():
            return "closed the connection without an answer"
    return f"cannot be reached: {error}"


def _headers(response: http1.Response) -> Mapping[str, str]:
    """Returns the headers of a failure by name. Those of a success are not needed."""
    if response.status < 300:
        return {}
    return {name.decode(): value.decode(errors="replace") for name, value in response.headers}
