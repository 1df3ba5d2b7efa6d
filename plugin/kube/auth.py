"""Where the API server is, whom it must be, and who we are: a kubeconfig file, or the service
account of a pod.

Reads files and sends nothing; the forms of a kubeconfig are in `kubeconfig`. What is wrong from the
start is a UsageError; what goes wrong later is an error of the request that met it.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .. import errors as plugin_errors
from . import errors

log = logging.getLogger(__name__)

TOKEN_AGE = (
    60.0  # seconds until a token file is read again; the kubelet renews it long before it expires
)


@dataclass(frozen=True, kw_only=True)
class Credential:
    """What goes with a request. The certificate and key are PEM texts that a kubeconfig's command
    has given.
    """

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)


class Credentials(Protocol):
    async def get(self, refused: Credential | None = None) -> Credential:
        """The credential of now; not the refused one, if there is any other."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An address and the two sides' identities. Certificates and keys are paths, or PEM texts."""

    host: str
    port: int
    secure: bool = True
    prefix: str = ""  # before every path
    server_name: str = ""  # what the server's certificate must say, if not the host
    ca: Path | str = ""  # empty: what the system trusts
    verify: bool = True
    certificate: Path | str = ""
    key: Path | str = ""
    credentials: Credentials

    @property
    def address(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def connect(
    kubeconfig: str, account: Path, environment: Mapping[str, str] | None = None
) -> Connection:
    """By the kubeconfig file if one is named, else as the pod that we run in. Reads the files that
    are named.
    """
    if kubeconfig:
        from . import kubeconfig as kubeconfigs  # not needed in a pod

        return kubeconfigs.connection(Path(kubeconfig))
    return in_cluster(account, os.environ if environment is None else environment)


def in_cluster(account: Path, environment: Mapping[str, str]) -> Connection:
    host, port = (
        environment.get("KUBERNETES_SERVICE_HOST", ""),
        environment.get("KUBERNETES_SERVICE_PORT", ""),
    )
    if not host or not port.isdigit():
        raise plugin_errors.UsageError(
            f"no API server is known: KUBERNETES_SERVICE_HOST is {host!r} and KUBERNETES_SERVICE_PORT is {port!r}, "
            "which a pod has from the kubelet; outside a pod give --kubeconfig FILE"
        )
    ca = account / "ca.crt"
    _readable(ca, "the certificate authority of the cluster")
    credentials = TokenFile(account / "token")
    credentials.read()
    connection = Connection(host=host, port=int(port), ca=ca, credentials=credentials)
    check(connection)
    return connection


def one_token(text: str, where: str) -> str:
    """The text without space around it; it has to fit into a header."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise plugin_errors.UsageError(
            f"{where} should hold one bearer token: visible ASCII characters without a space"
        )
    return token


def check(connection: Connection) -> None:
    """Builds the TLS context once, so that a bad certificate or key is found at the start."""
    try:
        Tls(connection).context(Credential())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise plugin_errors.UsageError(
            f"the certificates for {connection.address} cannot be used: {error}; expected PEM: "
            f"certificate authority {_name(connection.ca)}, client certificate {_name(connection.certificate)}, "
            f"key {_name(connection.key)}"
        ) from error


class Fixed:
    """A credential that never changes, or none."""

    def __init__(self, token: str = "") -> None:
        self._credential = Credential(token=one_token(token, "token"))

    async def get(self, refused: Credential | None = None) -> Credential:
        return self._credential


class TokenFile:
    """A token in a file that others renew. A file that cannot be read leaves us the token that we
    had.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._credential: Credential | None = None
        self._until = 0.0

    async def get(self, refused: Credential | None = None) -> Credential:
        if (
            self._credential is not None
            and self._clock() < self._until
            and self._credential != refused
        ):
            return self._credential
        try:
            return self.read()
        except plugin_errors.UsageError as error:
            if self._credential is None:
                raise errors.Unauthorized(str(error)) from error
            log.warning("using the token from before: %s", error)
            self._until = self._clock() + TOKEN_AGE
            return self._credential

    def read(self) -> Credential:
        text = one_token(_readable(self._path, "a bearer token"), str(self._path))
        if not text:
            raise plugin_errors.UsageError(f"{self._path} is empty; it should hold a bearer token")
        self._until = self._clock() + TOKEN_AGE
        self._credential = Credential(token=text)
        return self._credential


class Tls:
    """The TLS context of a connection, made anew when a file or the credential's certificate has
    changed.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._state: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self, credential: Credential) -> ssl.SSLContext | None:
        """None for plain HTTP. OSError or ValueError if the files are no good and there is no older
        context.
        """
        if not self._connection.secure:
            return None
        connection = self._connection
        files = (_stat(connection.ca), _stat(connection.certificate), _stat(connection.key))
        state = (*files, credential.certificate, credential.key)
        if self._context is None or state != self._state:
            try:
                self._context = self._make(credential)
            except (OSError, ValueError) as error:
                if self._context is None:
                    raise
                log.warning("using the certificates from before: %s", error)
            self._state = state
        return self._context

    def _make(self, credential: Credential) -> ssl.SSLContext:
        connection = self._connection
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not connection.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif connection.ca:
            context.load_verify_locations(cadata=_text(connection.ca))
        else:
            context.load_default_certs()
        certificate, key = (
            credential.certificate or connection.certificate,
            credential.key or connection.key,
        )
        if certificate:
            _load_pair(context, _text(certificate), _text(key) if key else "")
        return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # The library takes a path only. A file without a name keeps the key off every disk.
    with os.fdopen(os.memfd_create("pair"), "wb") as file:
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _text(source: Path | str) -> str:
    return (
        source.read_text(encoding="ascii", errors="replace") if isinstance(source, Path) else source
    )


def _stat(source: Path | str) -> object:
    if not isinstance(source, Path):
        return None
    try:
        found = source.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size


def _name(source: Path | str) -> str:
    return str(source) if isinstance(source, Path) else "inline" if source else "none"


def _readable(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise plugin_errors.UsageError(
            f"{path} should hold {what}, but cannot be read: {error.strerror}; is the service account's token mounted, "
            "and does its path in the configuration fit?"
        ) from error
