"""A connection that sends bytes to a server and receives bytes, with or without TLS.

It replaces asyncio's streams, which keep about four times as much memory for each connection. One
protocol class does the work of their four layers: it decrypts what the transport has read and hands
it to the waiting reader. The stream is made for one request and its response at a time. It does not
interpret the bytes.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

# Bytes that are read from the socket at a time. A TLS record has at most 16 KiB.
CHUNK = 32 << 10
# Bytes that have arrived and were not read. With more of them reading from the socket pauses.
MOST_UNREAD = 512 << 10
# Bytes that wait in the transport because the server does not read. Our requests are far smaller:
# so many bytes can only be TLS's own replies to the server.
MOST_UNSENT = 8 << 20


async def connect(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    server_name: str,
    session: ssl.SSLSession | None = None,
) -> Stream:
    """Connects to the server and returns the stream.

    With a context it uses TLS, and the server's certificate must have the name `server_name`.
    Raises OSError, which includes ssl.SSLError, if the connection fails. A cancelled call closes its
    socket. A server that renegotiates TLS while we write loses the connection; Go servers never do.

    `session` is the TLS session of an earlier stream of the same context; ValueError if it belongs
    to another context. If the server still knows the session, the two sides do not exchange
    certificates again.
    """
    options: dict[str, Any] = {}
    if any(character.isalpha() for character in host) and ":" not in host:
        # A host name may have two addresses, and one of them may lead nowhere.
        options["happy_eyeballs_delay"] = 0.25

    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(
        lambda: Stream(context, server_name, session), host, port, **options
    )
    try:
        await stream.shake_hands()
    except BaseException:
        stream.abort()
        raise
    return stream


class Stream(asyncio.BufferedProtocol):
    """One connection to a server.

    One task at a time may call `read`. `write` and `abort` return without waiting.
    """

    def __init__(
        self,
        context: ssl.SSLContext | None,
        server_name: str,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(CHUNK)
        self._unread = bytearray()
        self._is_paused = False
        # No more bytes will arrive.
        self._has_ended = False
        # The error that broke the connection.
        self._error: Exception | None = None
        # The task in `read` or `shake_hands` waits for this, until one of the fields above changes.
        self._waiter: asyncio.Future[None] | None = None
        self._lost = asyncio.get_running_loop().create_future()

        self.context = context
        # The TLS object reads encrypted bytes from `_incoming` and writes them to `_outgoing`.
        self._tls: ssl.SSLObject | None = None
        self._shaking_hands = False
        if context is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=server_name, session=session
            )
            self._shaking_hands = True

    # ---------------------------------------------------------------- for the client

    async def shake_hands(self) -> None:
        """Performs the TLS handshake, if the stream uses TLS. OSError if it fails."""
        if self._tls is None:
            return
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send_out()
                if self._has_ended:
                    raise self._error or ConnectionResetError(
                        "it was closed while TLS began"
                    ) from None
                await self._wait_for_change()
            except ssl.SSLError:
                # The TLS object has written an alert that tells the server the reason.
                self._send_out()
                raise
        self._shaking_hands = False
        self._send_out()
        # The server may have sent more than its part of the handshake.
        self._decrypt()

    async def read(self) -> bytes:
        """Waits until bytes have arrived and returns them; empty at the end of the stream.

        OSError if the connection broke. Bytes that arrived before are returned first.
        """
        while not self._unread:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                return b""
            await self._wait_for_change()

        data = bytes(self._unread)
        self._unread.clear()
        if self._is_paused and not self._is_finished:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        """Sends the data, without waiting until the kernel has taken all of it."""
        if self._tls is None:
            self.transport.write(data)
            return
        self._tls.write(data)
        self._send_out()

    @property
    def is_over(self) -> bool:
        """True if one of the two sides has closed the connection, as far as we know."""
        return self._is_finished or self.transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """True if the connection is open and all bytes that have arrived were read.

        Bytes that arrive between two requests cannot be a response, so the connection is not idle.
        """
        return not self._unread and not self.is_over

    @property
    def session(self) -> ssl.SSLSession | None:
        """The TLS session, for a later call of `connect`. None if the server has not sent one.

        Servers send it together with their first response, or right after it.
        """
        session = self._tls.session if self._tls is not None else None
        return session if session is not None and session.has_ticket else None

    @property
    def is_resumed(self) -> bool:
        """True if the server has accepted the session that was passed to `connect`."""
        return self._tls is not None and bool(self._tls.session_reused)

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the connected socket."""
        assert self._transport is not None, "not connected"
        return self._transport

    def abort(self) -> None:
        """Closes the connection. Bytes that were not sent yet are lost."""
        self.transport.abort()

    async def wait_closed(self) -> None:
        """Waits until the socket is closed, which happens some time after `abort`."""
        await self._lost

    # ---------------------------------------------------------------- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_finished:
            return
        arrived = memoryview(self._buffer)[:nbytes]
        if self._tls is None:
            self._unread += arrived
        else:
            self._incoming.write(arrived)
            if not self._shaking_hands:
                self._decrypt()
        self._wake()

        if len(self._unread) > MOST_UNREAD or self._is_finished:
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Notes that the server sends no more. The transport stays open for the unread bytes."""
        self._has_ended = True
        self._wake()
        # True keeps the transport open. The client closes it with `abort`.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._error = self._error or exc
        self._wake()
        if not self._lost.done():
            self._lost.set_result(None)

    # ---------------------------------------------------------------- internal

    def _decrypt(self) -> None:
        """Decrypts the bytes that have arrived, and sends what TLS itself has to send."""
        assert self._tls is not None
        try:
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(CHUNK)
                if not piece:
                    # The server has sent close_notify: this is the regular end.
                    self._has_ended = True
                    break
                self._unread += piece
        except ssl.SSLWantReadError:
            # Only a part of a TLS record has arrived.
            pass
        except ssl.SSLError as error:
            self._error = error
        # TLS may have messages of its own to send, such as the reply to a change of keys. A server
        # that provokes such replies and does not read them would fill our memory.
        self._send_out()
        if self.transport.get_write_buffer_size() > MOST_UNSENT:
            self._error = ConnectionError("it makes us speak and does not listen")

    @property
    def _is_finished(self) -> bool:
        """True if no more bytes will be taken from this connection."""
        return self._has_ended or self._error is not None

    def _send_out(self) -> None:
        if self._outgoing.pending:
            self.transport.write(self._outgoing.read())

    async def _wait_for_change(self) -> None:
        """Waits until bytes arrive, the stream ends, or the connection breaks."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        """Wakes the task that waits for a change."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
