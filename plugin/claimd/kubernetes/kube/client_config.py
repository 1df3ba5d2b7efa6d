"""The configuration of a client: the API server's address, its expected identity, and our own.

This module has only types. `auth` builds the configuration. `credentials` and `exec_credentials`
provide the credential that goes with each request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token, a client certificate with its key, or both.

    The certificate and the key are PEM texts. Only credential plugins provide them.
    """

    token: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        # Logs and tracebacks must not show secrets.
        return f"Credential(certificate={self.certificate!r})"


class Credentials(Protocol):
    """The source of the credential that goes with each request."""

    async def get(self, refused: Credential | None = None) -> Credential:
        """Returns the current credential, and another one than `refused` if that is possible.

        It may be called for every request: a credential that is still valid is not fetched again.
        Unauthorized if there is no credential.
        """


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's address and the identities of both sides.

    Certificates and keys are PEM texts or paths. A file is read again after it has changed.
    """

    host: str
    port: int
    secure: bool = True
    # Put before every path, for a proxy that serves several clusters.
    prefix: str = ""
    # The name that the server's certificate must have. Empty: the host.
    server_name: str = ""
    # The certificate authority of the server. Empty: those that the system trusts.
    ca: Path | str = ""
    verify: bool = True
    certificate: Path | str = ""
    key: Path | str = ""
    credentials: Credentials

    @property
    def address(self) -> str:
        """The server's address for messages.

        It hides the prefix, which may contain a token, as the prefixes of `claimd sim` do.
        """
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self.authority}{'/…' if self.prefix else ''}"

    @property
    def authority(self) -> str:
        """Host and port, in the form of a URL and of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
