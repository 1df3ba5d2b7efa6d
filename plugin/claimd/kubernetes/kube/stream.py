"""Bytes to and from a server, over TLS or as they are.

As asyncio's streams, in one layer in place of four: TLS is done here, between what the transport
has read and who waits for it. For one request at a time and its response; what the bytes mean is
not known here.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

# Bytes that are taken from the system at a time; a record of TLS has at most 16 KiB.
CHUNK = 32 << 10
# Bytes that nobody has read yet. With more of them the server has to wait.
MOST_UNREAD = 512 << 10
# Bytes that the server has not taken yet, most of them what TLS has to say by itself. A request of
# ours is smaller by far.
MOST_UNSENT = 8 << 20


async def connect(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    server_name: str,
    session: ssl.SSLSession | None = None,
) -> Stream:
    """A stream to the server; over TLS if there is a context, and then to one of that name.

    OSError if there is none, an ssl.SSLError among them. Cancelled, it leaves nothing behind. A
    server that wants to agree on TLS anew while we write loses the connection: none of Go does.

    `session` is that of an earlier stream of the same context (ValueError if of another): if the
    server still knows it, neither side proves again who it is.
    """
    options: dict[str, Any] = {}
    if any(character.isalpha() for character in host) and ":" not in host:
        # A name may have two addresses, one of which leads nowhere.
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
    """One connection. `read` is for one task at a time; `write` and `abort` return at once."""

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
        self._has_ended = False  # nothing more will arrive
        self._error: Exception | None = None  # that has ended it
        self._waiter: asyncio.Future[None] | None = None  # of who waits for news of the above
        self._lost = asyncio.get_running_loop().create_future()

        self.context = context
        # TLS turns what has come into what was meant, and what is meant into what is sent.
        self._tls: ssl.SSLObject | None = None
        self._shaking_hands = False
        if context is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=server_name, session=session
            )
            self._shaking_hands = True

    # ---------------------------------------------------------------- for who uses it

    async def shake_hands(self) -> None:
        """What TLS begins with; without TLS nothing. OSError if the two sides do not agree."""
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
                await self._news()
            except ssl.SSLError:
                # The other side is told why.
                self._send_out()
                raise
        self._shaking_hands = False
        self._send_out()
        # The server may have said more than its part of that.
        self._decrypt()

    async def read(self) -> bytes:
        """What has arrived and was not read yet, waited for; empty at the end of the stream.

        What ended it by force is raised, as an OSError.
        """
        while not self._unread:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                return b""
            await self._news()

        data = bytes(self._unread)
        self._unread.clear()
        if self._is_paused and not self._will_say_nothing:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        """Sends it: at once as far as the system has room, the rest as soon as there is some."""
        if self._tls is None:
            self.transport.write(data)
            return
        self._tls.write(data)
        self._send_out()

    @property
    def is_over(self) -> bool:
        """Whether either side has hung up, as far as we have been told."""
        return self._will_say_nothing or self.transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether nothing has arrived that was not read: what comes without a question answers none."""
        return not self._unread and not self.is_over

    @property
    def session(self) -> ssl.SSLSession | None:
        """For `connect`. Servers give it with, or right after, what they say first."""
        session = self._tls.session if self._tls is not None else None
        return session if session is not None and session.has_ticket else None

    @property
    def is_resumed(self) -> bool:
        """Whether the server knew the session."""
        return self._tls is not None and bool(self._tls.session_reused)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    def abort(self) -> None:
        """Hangs up; what was not sent yet is lost."""
        self.transport.abort()

    async def wait_closed(self) -> None:
        """Returns when its socket is closed, some time after `abort`."""
        await self._lost

    # ---------------------------------------------------------------- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._will_say_nothing:
            return
        arrived = memoryview(self._buffer)[:nbytes]
        if self._tls is None:
            self._unread += arrived
        else:
            self._incoming.write(arrived)
            if not self._shaking_hands:
                self._decrypt()
        self._told()

        if len(self._unread) > MOST_UNREAD or self._will_say_nothing:
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The transport is closed by whoever uses it, who may have something to read still."""
        self._has_ended = True
        self._told()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._error = self._error or exc
        self._told()
        if not self._lost.done():
            self._lost.set_result(None)

    # ---------------------------------------------------------------- within

    def _decrypt(self) -> None:
        assert self._tls is not None
        try:
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(CHUNK)
                if not piece:
                    # The other side has said that this was all.
                    self._has_ended = True
                    break
                self._unread += piece
        except ssl.SSLWantReadError:
            pass  # a part of a record
        except ssl.SSLError as error:
            self._error = error
        # TLS may have something to say of its own, as when keys change.
        self._send_out()
        if self.transport.get_write_buffer_size() > MOST_UNSENT:
            self._error = ConnectionError("it makes us speak and does not listen")

    @property
    def _will_say_nothing(self) -> bool:
        return self._has_ended or self._error is not None

    def _send_out(self) -> None:
        if self._outgoing.pending:
            self.transport.write(self._outgoing.read())

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _told(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
