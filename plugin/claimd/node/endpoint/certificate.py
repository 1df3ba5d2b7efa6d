"""The certificate that we serve with, from files that are replaced while we run.

A Secret that is mounted as a folder changes when whoever keeps it (cert-manager, for instance) puts
a new certificate into it. Who may connect, and what is served, is decided by the callers.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from pathlib import Path

log = logging.getLogger(__name__)

# As the keys of a Secret of the type kubernetes.io/tls are called.
CERTIFICATE, KEY = "tls.crt", "tls.key"
# Seconds between two looks at the files, however many connect.
LOOK_INTERVAL = 1.0


class ServingCertificate:
    """TLS contexts made of the two files of a folder, always of the newest that can be used."""

    def __init__(self, folder: Path) -> None:
        self._certificate, self._key = folder / CERTIFICATE, folder / KEY
        self._lock = threading.Lock()
        self._looked_at = -LOOK_INTERVAL
        self._seen: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """For a connection that begins; None as long as there is no certificate.

        Files that cannot be used are logged, once, and the certificate from before stays.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_INTERVAL:
                self._looked_at = now
                self._look()
            return self._context

    def _look(self) -> None:
        seen = (_state_of(self._certificate), _state_of(self._key))
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._context = self._made()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            log.warning(
                "%s: %s and %s cannot be used: %s; expected a certificate and its key, in PEM and "
                "without a password",
                "serving with the certificate from before" if self._context else "not served",
                self._certificate,
                self._key,
                error,
            )

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Connections serve one request and are no sessions to come back to.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        # Else the library would ask a terminal for it.
        context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        return context


def _state_of(path: Path) -> object:
    """What is another when the file's content may be another."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_mtime_ns, status.st_size
