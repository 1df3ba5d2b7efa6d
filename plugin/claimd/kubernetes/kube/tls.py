"""TLS contexts from a client's configuration, made anew when its files change."""

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

# Seconds for which a server need not show its certificate again.
SESSION_SECONDS = 3600.0


class TlsContexts:
    """The TLS context to connect with: always the newest that could be made.

    And the session that the server gave of late to a connection of this context: one that begins
    with it costs both sides about a quarter less.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._session: ssl.SSLSession | None = None
        self._proved_at = 0.0  # when the server has last shown its certificate, by the clock
        self._config = config
        self._sources: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self, credential: Credential) -> ssl.SSLContext | None:
        """None for plain HTTP.

        OSError or ValueError if the files are no good and there is no older context.
        """
        config = self._config
        if not config.secure:
            return None

        # Looked at for every new connection, which is cheap; a context is built only after a
        # change, which is not.
        files = (_state_of(config.ca), _state_of(config.certificate), _state_of(config.key))
        sources = (*files, credential.certificate, credential.key)
        if self._context is None or sources != self._sources:
            try:
                self._context = self._build(credential)
                self.drop_session()
            except (OSError, ValueError) as error:
                if self._context is None:
                    raise
                log.warning("using the certificates from before: %s", error)
            self._sources = sources
        return self._context

    @property
    def session(self) -> ssl.SSLSession | None:
        """None if there is none, or if it is time for the server to show its certificate again."""
        is_old = time.monotonic() - self._proved_at >= SESSION_SECONDS
        return None if is_old else self._session

    def keep_session(self, connected: stream.Stream) -> None:
        """After its first response, which is when the server has given one."""
        session = connected.session
        # The stream may be one of before, and its session is of no use to another context.
        if session is None or connected.context is not self._context:
            return
        self._session = session
        if not connected.is_resumed:
            self._proved_at = time.monotonic()

    def drop_session(self) -> None:
        """The next connection begins without."""
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
    """Builds the TLS context once, so that a bad certificate or key is found at the start."""
    try:
        TlsContexts(config).context(Credential())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise errors.UsageError(
            f"the certificates for {config.address} cannot be used: {reason(error)}; expected PEM: "
            f"certificate authority {_name(config.ca)}, "
            f"client certificate {_name(config.certificate)}, key {_name(config.key)}"
        ) from error


def reason(error: Exception) -> str:
    """Why certificates cannot be used, in words."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # The library takes a path only. A file without a name keeps the key off every disk.
    with os.fdopen(os.memfd_create("pair"), "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _pem(source: Path | str) -> str:
    if isinstance(source, Path):
        return source.read_text(encoding="ascii", errors="replace")
    return source


def _state_of(source: Path | str) -> object:
    """What is another when the file's content may be another."""
    if not isinstance(source, Path):
        return None
    try:
        status = source.stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_mtime_ns, status.st_size


def _name(source: Path | str) -> str:
    if isinstance(source, Path):
        return str(source)
    return "inline" if source else "none"
