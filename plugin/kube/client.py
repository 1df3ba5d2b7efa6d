"""Requests to the API server over kept connections, and streams of lines. HTTP and bytes; no
knowledge of objects.

What is asked and what an answer means is decided by the callers; every failure leaves here as an
error of kube.errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlencode

import h11

from .. import metrics
from . import errors, tls
from .client_config import ClientConfig, Credential

LARGEST = (
    32 << 20
)  # bytes of an answer or of one line of a watch; etcd takes objects of at most 1.5 MiB
CHUNK = 256 << 10
CONNECT_TIMEOUT = 5.0
# seconds until kept connections beyond the first are given back: each has buffers of 300 KB
IDLE = 20.0
SAFE = frozenset(
    {"GET", "PUT", "DELETE", "PATCH"}
)  # again is as good as once; our only patch is an apply
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class _Unanswered(Exception):
    """The connection ended before the first byte of an answer."""


class _Wire:
    """One connection: the streams and h11's view of them."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credential: Credential,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.certificate = (
            credential.certificate
        )  # of the client, that the connection was made with
        self.http = h11.Connection(h11.CLIENT)
        self.used = False  # has served a request before
        self.since = 0.0  # when it became idle

    def send(self, head: h11.Request, body: bytes | None) -> None:
        """All in one write. The system has room for it, or the transport keeps it: bodies are ours
        and small.
        """
        parts = [self.http.send(head)]
        if body:
            parts.append(self.http.send(h11.Data(data=body)))
        parts.append(self.http.send(h11.EndOfMessage()))
        self.writer.write(b"".join(part for part in parts if part))

    async def event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            data = await self.reader.read(CHUNK)
            if (
                not data
                and self.http.their_state is h11.SEND_RESPONSE
                and not self.http.trailing_data[0]
            ):
                raise _Unanswered
            self.http.receive_data(data)
        return event  # type: ignore[return-value]

    async def response(self) -> h11.Response:
        while not isinstance(event := await self.event(), h11.Response):
            if isinstance(event, h11.ConnectionClosed):
                raise _Unanswered
        return event

    async def body(self) -> bytes:
        parts, size = [], 0
        while isinstance(event := await self.event(), h11.Data):
            parts.append(event.data)
            size += len(event.data)
            if size > LARGEST:
                raise errors.Malformed(f"an answer of more than {LARGEST >> 20} MiB")
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def ready_again(self) -> bool:
        if (
            self.http.our_state is not h11.DONE
            or self.http.their_state is not h11.DONE
            or self.http.trailing_data[0]
        ):
            return False
        self.http.start_next_cycle()
        self.used = True
        return True

    def closed(self) -> bool:
        return (
            self.reader.at_eof() or self.reader.exception() is not None or self.writer.is_closing()
        )

    def drop(self) -> None:
        self.writer.transport.abort()


class Client:
    """Requests over at most `limit` connections at a time, and watches beside them."""

    def __init__(self, config: ClientConfig, agent: str, limit: int = 4) -> None:
        self._config = config
        self._tls = tls.TlsContexts(config)
        self._headers = [
            ("Host", config.authority),
            ("User-Agent", agent),
            ("Accept", "application/json"),
        ]
        self._slots = asyncio.Semaphore(limit)
        self._kept: list[_Wire] = []  # the last is used next, so that the others grow idle
        self._open: set[_Wire] = set()
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
        """The body of a successful answer, within the time; ApiError for everything else."""
        target = self._target(path, query)
        fields = (
            [("Content-Type", content_type), ("Content-Length", str(len(body)))]
            if body is not None
            else []
        )
        what, outcome = f"{method} {path}", "Abandoned"
        try:
            async with asyncio.timeout(timeout):
                answer = await self._authorized(what, method, target, fields, body)
            outcome = "Success"
            return answer
        except errors.ApiError as error:
            outcome = type(error).__name__
            raise
        except TimeoutError:
            outcome = errors.Unreachable.__name__
            raise errors.Unreachable(
                f"{what}: no answer from {self._config.address} within {timeout:g} s; is the API server overloaded, "
                "or is something between us dropping packets?"
            ) from None
        finally:
            metrics.API_REQUESTS.add(method, outcome)

    async def lines(
        self, path: str, query: Mapping[str, str], *, idle: float
    ) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer, on a connection of its own, until the server ends it.
        Silence for `idle` seconds is an error. Close it with contextlib.aclosing.
        """
        what = f"GET {path}"
        head = self._target(path, query)
        wire = None
        try:
            wire, status, headers = await self._begin(what, head)
            rest = bytearray()
            if status != 200:
                async with asyncio.timeout(idle):
                    raise errors.from_answer(what, status, headers, await wire.body())
            while True:
                async with asyncio.timeout(idle):
                    event = await wire.event()
                if not isinstance(event, h11.Data):
                    return
                rest += event.data
                if len(rest) > LARGEST:
                    raise errors.Malformed(f"{what}: a line of more than {LARGEST >> 20} MiB")
                *whole, last = rest.split(b"\n") if b"\n" in event.data else (rest,)
                rest = last
                for line in whole:
                    yield bytes(line)
        except TimeoutError:
            raise errors.Unreachable(
                f"{what}: {self._config.address} was silent for {idle:g} s"
            ) from None
        except (OSError, _Unanswered, h11.RemoteProtocolError) as error:
            raise self._broken(what, error) from error
        finally:
            if wire is not None:
                self._discard(wire)

    async def close(self) -> None:
        """Cuts every connection; requests under way fail."""
        if self._trimmer is not None:
            self._trimmer.cancel()
        wires = list(self._open)
        for wire in wires:
            self._discard(wire)
        self._kept.clear()
        for wire in wires:
            with contextlib.suppress(OSError):
                await wire.writer.wait_closed()

    async def _authorized(
        self, what: str, method: str, target: str, fields: list[tuple[str, str]], body: bytes | None
    ) -> bytes:
        credential = await self._config.credentials.get()
        async with self._slots:
            status, headers, answer = await self._exchange(
                what, credential, self._request(method, target, credential, fields), body
            )
            if status == 401:
                refused, credential = (
                    credential,
                    await self._config.credentials.get(refused=credential),
                )
                if credential != refused:
                    status, headers, answer = await self._exchange(
                        what, credential, self._request(method, target, credential, fields), body
                    )
        if status < 200 or status > 299:
            raise errors.from_answer(what, status, headers, answer)
        return answer

    async def _exchange(
        self, what: str, credential: Credential, head: h11.Request, body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request and its answer; on a fresh connection if a kept one turns out to be dead."""
        wire = self._take(credential) or await self._connect(what, credential)
        while True:
            keep = False
            try:
                wire.send(head, body)
                response = await wire.response()
                answer = await wire.body()
                keep = wire.ready_again()
                return response.status_code, _headers(response), answer
            except (OSError, _Unanswered, h11.RemoteProtocolError) as error:
                # The server closes idle connections, perhaps in the moment that we use one. A
                # create is left to the
                # caller: it may have been carried out.
                started = wire.http.their_state is not h11.SEND_RESPONSE or bool(
                    wire.http.trailing_data[0]
                )
                if not wire.used or started or head.method.decode() not in SAFE:
                    raise self._broken(what, error) from error
            except errors.Malformed as error:
                raise errors.Malformed(f"{what}: {error.message}") from None
            finally:
                if keep:
                    self._keep(wire)
                else:
                    self._discard(wire)
            wire = await self._connect(what, credential)

    async def _begin(self, what: str, target: str) -> tuple[_Wire, int, Mapping[str, str]]:
        """The head of an endless answer, with the credential asked for again if it was refused."""
        credential = await self._config.credentials.get()
        while True:
            wire = await self._connect(what, credential)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    wire.send(self._request("GET", target, credential, []), None)
                    response = await wire.response()
            except TimeoutError:
                self._discard(wire)
                raise errors.Unreachable(
                    f"{what}: no answer from {self._config.address} within {CONNECT_TIMEOUT:g} s"
                ) from None
            except BaseException:
                self._discard(wire)
                raise
            if response.status_code == 401:
                fresh = await self._config.credentials.get(refused=credential)
                if fresh != credential:
                    self._discard(wire)
                    credential = fresh
                    continue
            return wire, response.status_code, _headers(response)

    def _take(self, credential: Credential) -> _Wire | None:
        while self._kept:
            wire = self._kept.pop()
            if wire.certificate == credential.certificate and not wire.closed():
                return wire
            self._discard(wire)
        return None

    def _keep(self, wire: _Wire) -> None:
        loop = asyncio.get_running_loop()
        wire.since = loop.time()
        self._kept.append(wire)
        if self._trimmer is None:
            self._trimmer = loop.call_later(IDLE, self._trim)

    def _trim(self) -> None:
        """Gives back what a burst has left, but for one connection, and what the server has closed."""
        loop = asyncio.get_running_loop()
        latest = self._kept[-1:]
        for wire in self._kept[:]:
            if wire.closed() or (wire not in latest and wire.since + IDLE <= loop.time()):
                self._kept.remove(wire)
                self._discard(wire)
        self._trimmer = loop.call_later(IDLE, self._trim) if self._kept else None

    def _discard(self, wire: _Wire) -> None:
        self._open.discard(wire)
        wire.drop()

    async def _connect(self, what: str, credential: Credential) -> _Wire:
        config = self._config
        try:
            context = self._tls.context(credential)
        except (OSError, ValueError) as error:
            raise errors.Unreachable(f"{what}: the certificates cannot be used: {error}") from error
        name = (config.server_name or config.host) if context else None
        more: dict[str, Any] = {"ssl": context, "server_hostname": name, "limit": CHUNK}
        if any(c.isalpha() for c in config.host) and ":" not in config.host:
            more["happy_eyeballs_delay"] = (
                0.25  # a name may have two addresses, one of which leads nowhere
            )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_connection(config.host, config.port, **more)
        except TimeoutError:
            raise errors.Unreachable(
                f"{what}: {config.address} did not take the connection within {CONNECT_TIMEOUT:g} s; "
                "is the address right, and does a network policy or firewall let us through?"
            ) from None
        except OSError as error:
            raise self._broken(what, error) from error
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for (
            option,
            value,
        ) in KEEP_ALIVE:  # so that a server that vanished is noticed within a minute
            raw.setsockopt(socket.IPPROTO_TCP, option, value)
        wire = _Wire(reader, writer, credential)
        self._open.add(wire)
        return wire

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        target = self._config.prefix + path
        return f"{target}?{urlencode(query)}" if query else target

    def _request(
        self, method: str, target: str, credential: Credential, fields: list[tuple[str, str]]
    ) -> h11.Request:
        headers = [*self._headers, *fields]
        if credential.token:
            headers.append(("Authorization", f"Bearer {credential.token}"))
        return h11.Request(method=method, target=target, headers=headers)

    def _broken(self, what: str, error: Exception) -> errors.Unreachable:
        config = self._config
        return errors.Unreachable(f"{what}: {config.address} {_reason(error, config)}")


def _reason(error: Exception, config: ClientConfig) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"is not trusted: {error.verify_message}; expected a certificate for "
            f"{config.server_name or config.host} by the certificate authority that we were given"
        )
    if isinstance(error, ssl.SSLError):
        return f"and we have no TLS in common: {error.reason or error}; is the port right, and our certificate?"
    if isinstance(error, socket.gaierror):
        return f"has no address: {error.strerror}; is the name right, and does DNS work here?"
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection; is the API server running, and are address and port right?"
    if isinstance(error, h11.RemoteProtocolError):
        return f"broke off its answer, or does not speak HTTP: {error}"
    if isinstance(error, _Unanswered):
        return "closed the connection without an answer"
    return f"cannot be reached: {error}"


def _headers(response: h11.Response) -> Mapping[str, str]:
    if response.status_code < 300:
        return {}
    return {name.decode(): value.decode(errors="replace") for name, value in response.headers}
