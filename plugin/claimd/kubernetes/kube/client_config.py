"""What a client has to know: where the API server is, whom it must be, and who we are to it.

Types alone. `auth` finds out which configuration is meant, `credentials` and `exec_credentials`
provide what goes with each request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What goes with a request; the certificate and key are PEM texts of a credential plugin."""

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)


class Credentials(Protocol):
    """Where the credential of each request comes from."""

    async def get(self, refused: Credential | None = None) -> Credential:
        """The credential of now, and not the refused one if there is any other.

        May be called for every request: what is still good is not fetched again. Unauthorized if
        there is none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The API server's address and the two sides' identities.

    Certificates and keys are paths, which are read again when their file changes, or PEM texts.
    """

    host: str
    port: int
    secure: bool = True
    # before every path, as behind a proxy that serves several clusters
    prefix: str = ""
    # what the server's certificate must say, if not the host
    server_name: str = ""
    # empty: what the system trusts
    ca: Path | str = ""
    verify: bool = True
    certificate: Path | str = ""
    key: Path | str = ""
    credentials: Credentials

    @property
    def address(self) -> str:
        """For people. Without the prefix, which may hold a token, as `claimd sim` has it."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self.authority}{'/…' if self.prefix else ''}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
