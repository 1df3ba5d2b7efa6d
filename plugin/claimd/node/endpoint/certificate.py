"""The certificate of the metrics endpoint, from files that are replaced while we run.

The files are usually a mounted Secret. They change when the owner of the Secret, for instance
cert-manager, puts a new certificate into it.
"""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path

log = logging.getLogger(__name__)

# The keys of a Secret of the type kubernetes.io/tls.
CERTIFICATE, KEY = "tls.crt", "tls.key"
# Seconds between two looks at the files, however many clients connect.
LOOK_INTERVAL = 1.0


class ServingCertificate:
    """TLS contexts from the two files of a folder, always from the newest usable ones."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / CERTIFICATE, folder / KEY
        self._looked_at = -LOOK_INTERVAL
        self._seen: list[object] = []
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """Returns the context for a new connection; None as long as there is no certificate.

        Files that cannot be used are logged once, and the earlier certificate stays in use.
        """
        if time.monotonic() - self._looked_at >= LOOK_INTERVAL:
            self._looked_at = time.monotonic()
            seen = [_state(path) for path in self._files]
            if seen != self._seen:
                self._seen = seen
                self._load()
        return self._context

    def _load(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2

        # A connection serves one request, so there is nothing to resume or to renegotiate.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        try:
            # Without a password, the library would ask the terminal for one.
            context.load_cert_chain(*self._files, password=lambda: "")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            log.warning(
                "%s: %s and %s cannot be used: %s; expected a certificate and its key, in PEM and "
                "without a password",
                "serving with the certificate from before" if self._context else "not served",
                *self._files,
                error,
            )
        else:
            self._context = context


def _state(path: Path) -> object:
    """Returns a value that changes whenever the file's content may have changed."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_mtime_ns, status.st_size
