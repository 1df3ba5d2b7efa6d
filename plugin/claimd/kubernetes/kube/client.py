"""Requests to the API server over kept connections, and streams of lines.

HTTP and bytes, no knowledge of objects: what is requested and what a response means is decided by
the callers. Every failure leaves here as an error of kube.errors.
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
# Seconds until idle connections beyond the first are given back.
IDLE = 20.0
# Responses of the kind "100 Continue" before the real one. API servers send none.
MOST_INFORMATIONAL = 8
# Pieces of a response until other tasks have their turn: a chunk may be a single byte.
PIECES_A_TURN = 100
# Again is as good as once. The only PATCH of ours is an apply.
REPEATABLE = frozenset({"GET", "PUT", "DELETE", "PATCH"})
# With these, a server that vanished is noticed within a minute.
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class _Unanswered(Exception):
    """The connection ended before the first byte of a response."""


class _Connection:
    """One HTTP connection: its stream, and what HTTP makes of what has come over it.

    It serves one request at a time. After `ready_again` has said yes, it serves another; in any
    other case it has to be dropped.
    """

    def __init__(self, stream_: stream.Stream, credential: Credential, largest: int) -> None:
        self.stream = stream_
        # of the client, that the connection was made with
        self.certificate = credential.certificate
        self.http = http1.Responses()
        self.reused = False
        self.idle_since = 0.0  # 0: it was in use since it was made
        self._pieces = 0
        self._largest = largest  # bytes of a response's body

    def send(self, head: bytes, body: bytes | None) -> None:
        """Writes the whole request at once.

        The system has room for it, or the transport keeps it: bodies are ours and small.
        """
        self.http.expect()
        self.stream.write(head + body if body else head)

    async def response(self) -> http1.Response:
        """The head of the response; _Unanswered if there is none."""
        for _ in range(MOST_INFORMATIONAL + 1):
            event = await self.event()
            if isinstance(event, http1.Response) and event.status >= 200:
                return event
        raise errors.Malformed(f"more than {MOST_INFORMATIONAL} interim responses (1xx)")

    async def body(self) -> bytes:
        """The rest of the response, which leaves the connection between two requests."""
        parts: list[bytes] = []
        size = 0
        while isinstance(piece := await self.event(), bytes):
            parts.append(piece)
            size += len(piece)
            if size > self._largest:
                raise errors.Malformed(f"an answer of more than {self._largest:,} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def event(self) -> http1.Response | bytes | http1.Sign:
        """The next piece of the response, waited for."""
        # What has arrived may be thousands of pieces that take no waiting, and seconds.
        self._pieces += 1
        if self._pieces % PIECES_A_TURN == 0:
            await asyncio.sleep(0)

        while (event := self.http.next()) is http1.Sign.NEED_DATA:
            data = await self.stream.read()
            if not data and not self.answered():
                raise _Unanswered
            self.http.receive(data)
        return event

    def answered(self) -> bool:
        """Whether a response to the request under way has begun to arrive."""
        return self.http.has_begun

    def ready_again(self) -> bool:
        """Whether another request may follow. No if the server wants to close, or said too much."""
        self.reused = self.http.may_repeat
        return self.reused

    def is_idle(self) -> bool:
        """Whether it is open, as far as we have been told, and nobody has spoken without being asked."""
        return self.stream.is_idle

    def drop(self) -> None:
        self.stream.abort()


class Client:
    """Requests over at most `limit` connections at a time, and watches beside them.

    A connection is in one of three states:

    - in use, by the one request that has taken it out of `_idle` or has made it;
    - idle, in `_idle`, from the end of a response that was read whole until it is taken again,
      the server closes it, or a burst has left more of them than are needed;
    - closed. A request that fails or is cancelled closes its connection, since nobody knows what
      would still arrive on it.

    A watch has a connection of its own beside the limit, and closes it at its end. All that are not
    closed are in `_open`, so that `close` finds them.
    """

    def __init__(
        self, config: ClientConfig, agent: str, limit: int = 4, largest: int | None = None
    ) -> None:
        """`limit` is of connections, `largest` the bytes of an answer: LARGEST if not given."""
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
        # The last is used next, so that those before it grow old.
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
        """The body of a successful response, within the time; ApiError for everything else.

        The time includes the wait for a connection. A GET, PUT, DELETE or apply may reach the
        server twice, if a kept connection is closed in the moment that it is used. A POST never
        does, so that an error leaves open whether it was carried out.
        """
        operation, outcome = f"{method} {path}", "Abandoned"
        began = time.monotonic()
        target = self._target(path, query)
        fields = []
        if body is not None:
            fields = [("Content-Type", content_type), ("Content-Length", str(len(body)))]

        try:
            async with asyncio.timeout(timeout):
                answer = await self._authorized(operation, method, target, fields, body)
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
        """The lines of an endless response, until the server ends it.

        Silence for `idle` seconds is an error. Close it with contextlib.aclosing: the connection is
        its own.
        """
        operation = f"GET {path}"
        connection = None
        try:
            connection, response = await self._begin(operation, self._target(path, query))
            if response.status != 200:
                async with asyncio.timeout(idle):
                    answer = await connection.body()
                raise errors.from_answer(operation, response.status, _headers(response), answer)

            # A line may come in several pieces, and a piece may have several lines.
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
        """The clock of the API server, as its answers carry it in HTTP's form; empty if they do not."""
        connection, response = await self._begin("GET /version", self._target("/version", None))
        self._discard(connection)
        for name, value in response.headers:
            if name == b"date":
                return value.decode(errors="replace")
        return ""

    async def close(self) -> None:
        """Cuts every connection; requests under way fail."""
        if self._trimmer is not None:
            self._trimmer.cancel()

        connections = list(self._open)
        for connection in connections:
            self._discard(connection)
        self._idle.clear()
        for connection in connections:
            with contextlib.suppress(OSError):
                await connection.stream.wait_closed()

    # ---------------------------------------------------------------- one request

    async def _authorized(
        self,
        operation: str,
        method: str,
        target: str,
        fields: list[tuple[str, str]],
        body: bytes | None,
    ) -> bytes:
        """The body of a successful response, once more with another credential after a 401."""
        credential = await self._config.credentials.get()
        async with self._slots:
            head = self._head(method, target, credential, fields)
            status, headers, answer = await self._exchange(
                operation, method, credential, head, body
            )
            if status == 401:
                # The same credential would be refused again.
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
        """One request and its response; on a fresh connection if a kept one proves to be dead."""
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
                # The server closes idle connections, perhaps in the moment that we use one. Then
                # what may be repeated is, once: the next connection is a fresh one. A create is
                # left to the caller, since it may have been carried out.
                repeatable = method in REPEATABLE
                if not connection.reused or connection.answered() or not repeatable:
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
        """A connection and the head of an endless response on it, likewise after a 401."""
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
        return f"{target}?{_encoded(tuple(query.items()))}" if query else target

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
        """An idle connection that was made with this credential's certificate, and is alive."""
        while self._idle:
            connection = self._idle.pop()
            if connection.certificate == credential.certificate and connection.is_idle():
                return connection
            self._discard(connection)
        return None

    def _keep(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        if not connection.idle_since:
            self._tls.keep_session(connection.stream)
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._trimmer is None:
            self._trimmer = loop.call_later(IDLE, self._trim)

    def _trim(self) -> None:
        """Gives back what the server has closed, and what a burst has left but for one."""
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
            # Should the session be what it cannot cope with, the next try goes without.
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
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """As it stands in a URL. Kept, since each claim's report has the same."""
    return urlencode(query)


def _reason(error: Exception, config: ClientConfig) -> str:
    """What went wrong with the address before it, and what to check."""
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
    """The headers of a failure; nobody asks for those of a success."""
    if response.status < 300:
        return {}
    return {name.decode(): value.decode(errors="replace") for name, value in response.headers}
