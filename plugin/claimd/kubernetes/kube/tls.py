"""TLS contexts from a client's configuration, which are built again when its files change."""

from __future__ import annotations

import logging
import os
import ssl
import time
from pathlib import Path

from claimd.common import errors

from . import stream
from .client_config import ClientConfig, Credential

log = logging.getLogger(__name__)

# Seconds after which the server must show its certificate again, instead of resuming a session.
SESSION_SECONDS = 3600.0


class TlsContexts:
    """The newest TLS context that could be built, and the newest TLS session of its connections.

    Resuming a session makes a handshake about a quarter cheaper for both sides.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._session: ssl.SSLSession | None = None
        # The time, on the monotonic clock, when the server last showed its certificate.
        self._proved_at = 0.0
        self._config = config
        self._sources: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self, credential: Credential) -> ssl.SSLContext | None:
        """Returns the context for a new connection; None for plain HTTP.

        If the files cannot be used, the earlier context stays in use. OSError or ValueError if
        there is no earlier one.
        """
        config = self._config
        if not config.secure:
            return None

        # The files are looked at for every new connection, which is cheap. Building a context is
        # expensive, so it happens only after a change.
        files = (_state_of(config.ca), _state_of(config.certificate), _state_of(config.key))
        sources = (*files, credential.certificate, credential.key)
        if self._context is None or sources != self._sources:
            try:
                self._context = self._build(credential)
                self.drop_session()
            except (OSError, ValueError) as error:
                if self._context is None:
                    raise
                # Somebody may be replacing the files at this moment.
                log.warning("using the certificates from before: %s", error)
            self._sources = sources
        return self._context

    @property
    def session(self) -> ssl.SSLSession | None:
        """The session for a new connection. None if a full handshake is due."""
        is_old = time.monotonic() - self._proved_at >= SESSION_SECONDS
        return None if is_old else self._session

    def keep_session(self, connected: stream.Stream) -> None:
        """Keeps the session of a stream for later connections.

        Call it after the stream's first response. Servers do not send a session before that.
        """
        session = connected.session
        # The stream may be older than the current context, which cannot use its session then.
        if session is None or connected.context is not self._context:
            return
        self._session = session
        if not connected.is_resumed:
            self._proved_at = time.monotonic()

    def drop_session(self) -> None:
        """Forgets the session, so that the next connection does a full handshake."""
        self._session = None

    def _build(self, credential: Credential) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not config.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif config.ca:
            context.load_verify_locations(cadata=_pem(config.ca))
        else:
            context.load_default_certs()

        certificate = credential.certificate or config.certificate
        key = credential.key or config.key
        if certificate:
            _load_pair(context, _pem(certificate), _pem(key))
        return context


def check(config: ClientConfig) -> None:
    """Builds the TLS context once. UsageError if a certificate or key cannot be used."""
    try:
        TlsContexts(config).context(Credential())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise errors.UsageError(
            f"the certificates for {config.address} cannot be used: {reason(error)}; expected PEM: "
            f"certificate authority {_name(config.ca)}, "
            f"client certificate {_name(config.certificate)}, key {_name(config.key)}"
        ) from error


def reason(error: Exception) -> str:
    """Returns the reason why certificates cannot be used, in words."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # OpenSSL's Python binding takes only a path. A file in memory keeps the key off every disk.
    with os.fdopen(os.memfd_create("pair"), "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _pem(source: Path | str) -> str:
    if isinstance(source, Path):
        return source.read_text(encoding="ascii", errors="replace")
    return source


def _state_of(source: Path | str) -> object:
    """Returns a value that changes when the file's content may have changed.

    A text that stands in the configuration itself never changes.
    """
    if not isinstance(source, Path):
        return None
    try:
        status = source.stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_mtime_ns, status.st_size


def _name(source: Path | str) -> str:
    """Returns the path for messages, without showing the content of inline texts."""
    if isinstance(source, Path):
        return str(source)
    return "inline" if source else "none"
