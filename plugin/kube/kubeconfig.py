"""A kubeconfig file, JSON or YAML, as a Connection, and the command that it may name.

Only what we can honour; the rest is refused by name. Not loaded in a pod.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime
import os
import shutil
import time
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from .. import errors
from ..api import text
from . import auth
from . import errors as api_errors

EXEC_TIMEOUT = 60.0
EXEC_MARGIN = 10.0  # seconds before its expiry that a credential is not used any more
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class Pair(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[Pair] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: Exec | None = None
    # Known, and refused: acting as somebody else than was asked for would be worse.
    username: str = ""
    impersonate: str = msgspec.field(name="as", default="")
    auth_provider: dict[str, object] | None = None


class Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context | None = None


class Kubeconfig(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime.datetime | None = None


class ExecCredential(msgspec.Struct, frozen=True, tag_field="kind", tag="ExecCredential"):
    """What a command of a kubeconfig prints."""

    status: ExecStatus


class Command:
    """The command of a kubeconfig that prints a credential, run again when that has expired or was
    refused.
    """

    def __init__(self, exec_: Exec, folder: Path, cluster: dict[str, object]) -> None:
        self._exec = exec_
        self._folder = folder
        self._cluster = cluster
        self._lock = asyncio.Lock()
        self._credential: auth.Credential | None = None
        self._expiry: float | None = None

    async def get(self, refused: auth.Credential | None = None) -> auth.Credential:
        if (known := self._known(refused)) is not None:
            return known
        async with self._lock:
            if (
                known := self._known(refused)
            ) is not None:  # another request has had it run meanwhile
                return known
            self._credential, self._expiry = self._parse(await self._run())
            return self._credential

    def _known(self, refused: auth.Credential | None) -> auth.Credential | None:
        fresh = self._expiry is None or time.time() < self._expiry - EXEC_MARGIN
        return self._credential if fresh and self._credential != refused else None

    def program(self) -> str:
        """What to run: a path with a slash is relative to the kubeconfig, a bare name is looked up."""
        command = self._exec.command
        found = str(self._folder / command) if "/" in command else shutil.which(command)
        if not found or not os.access(found, os.X_OK):
            hint = self._exec.install_hint or "install it"
            raise errors.UsageError(
                f"the command {command!r} of the kubeconfig's user is not there; {hint}"
            )
        return found

    async def _run(self) -> bytes:
        info = {
            "apiVersion": self._exec.api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        if self._exec.provide_cluster_info:
            info["spec"] = {"interactive": False, "cluster": self._cluster}
        environment = os.environ | {pair.name: pair.value for pair in self._exec.env or ()}
        environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        pipe = asyncio.subprocess.PIPE
        try:
            running = await asyncio.create_subprocess_exec(
                self.program(), *(self._exec.args or ()), stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
                env=environment,
            )  # fmt: skip
        except (OSError, errors.UsageError) as error:
            raise api_errors.Unauthorized(
                f"no credential: {self._exec.command} cannot be run: {error}"
            ) from error
        try:
            async with asyncio.timeout(EXEC_TIMEOUT):
                out, complaint = await running.communicate()
        except TimeoutError:
            raise api_errors.Unauthorized(
                f"no credential: {self._exec.command} has not ended within {EXEC_TIMEOUT:.0f} s"
            ) from None
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
        if running.returncode:
            text = complaint.decode(errors="replace").strip()[-500:]
            raise api_errors.Unauthorized(
                f"no credential: {self._exec.command} ended with {running.returncode}: {text}"
            )
        return out

    def _parse(self, out: bytes) -> tuple[auth.Credential, float | None]:
        try:
            status = msgspec.json.decode(out, type=ExecCredential).status
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise api_errors.Unauthorized(
                f"no credential: {self._exec.command} printed no ExecCredential of {self._exec.api_version}: {error}"
            ) from error
        if not status.token and not status.client_certificate_data:
            raise api_errors.Unauthorized(
                f"no credential: {self._exec.command} printed neither token nor certificate"
            )
        expiry = status.expiration_timestamp
        if expiry is not None and expiry.tzinfo is None:
            expiry = expiry.replace(tzinfo=datetime.UTC)
        try:
            token = auth.one_token(status.token, f"what {self._exec.command} printed")
        except errors.UsageError as error:
            raise api_errors.Unauthorized(f"no credential: {error}") from error
        credential = auth.Credential(
            token=token, certificate=status.client_certificate_data, key=status.client_key_data
        )
        return credential, expiry.timestamp() if expiry else None


_T = TypeVar("_T")


def connection(path: Path) -> auth.Connection:
    """The current context's API server and user. UsageError says what is wrong with the file."""
    config = _read(path)
    chosen = {named.name: named.context for named in config.contexts or ()}
    context = _named(path, "context", config.current_context, chosen) or Context()
    cluster = (
        _named(path, "cluster", context.cluster, {c.name: c.cluster for c in config.clusters or ()})
        or Cluster()
    )
    user = User()
    if context.user:
        user = (
            _named(path, "user", context.user, {u.name: u.user for u in config.users or ()})
            or User()
        )
    _refuse(path, cluster, user)
    url = urlsplit(cluster.server)
    try:
        port = url.port
    except ValueError:
        port = -1
    if url.scheme not in ("http", "https") or not url.hostname or port == -1:
        raise errors.UsageError(f"{path}: server {cluster.server!r}: expected https://HOST:PORT")
    secure = url.scheme == "https"
    certificate = _pem(
        path, "client-certificate", user.client_certificate_data, user.client_certificate
    )
    key = _pem(path, "client-key", user.client_key_data, user.client_key)
    found = auth.Connection(
        host=url.hostname,
        port=port or (443 if secure else 80),
        secure=secure,
        prefix=url.path.rstrip("/"),
        server_name=cluster.tls_server_name,
        ca=_pem(
            path,
            "certificate-authority",
            cluster.certificate_authority_data,
            cluster.certificate_authority,
        ),
        verify=not cluster.insecure_skip_tls_verify,
        certificate=certificate,
        key=key,
        credentials=_credentials(path, cluster, user),
    )
    auth.check(found)
    return found


def _read(path: Path) -> Kubeconfig:
    try:
        document = text.load(path.read_bytes())
    except OSError as error:
        raise errors.UsageError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    except ValueError as error:
        raise errors.UsageError(
            f"the kubeconfig {path} is neither JSON nor YAML: {error}"
        ) from error
    try:
        return msgspec.convert(document, Kubeconfig)
    except msgspec.ValidationError as error:
        raise errors.UsageError(f"{path} is not a kubeconfig: {error}") from error


def _named(path: Path, what: str, name: str, known: dict[str, _T]) -> _T:
    if not name:
        raise errors.UsageError(
            f"{path} names no {'current-context' if what == 'context' else what}; set one"
        )
    if name not in known:
        raise errors.UsageError(
            f"{path} has no {what} {name!r}; it has: {', '.join(sorted(known)) or 'none'}"
        )
    return known[name]


def _refuse(path: Path, cluster: Cluster, user: User) -> None:
    refused = {
        "proxy-url": cluster.proxy_url,
        "username": user.username,
        "as": user.impersonate,
        "auth-provider": user.auth_provider,
    }
    for name, value in refused.items():
        if value:
            raise errors.UsageError(
                f"{path}: {name} is not supported; use a token, tokenFile, a certificate or exec"
            )


def _pem(path: Path, what: str, inline: str, file: str) -> Path | str:
    if not inline:
        return path.parent / file if file else ""
    try:
        return base64.b64decode(inline, validate=True).decode("ascii", errors="replace")
    except binascii.Error as error:
        raise errors.UsageError(f"{path}: {what}-data is not base64: {error}") from error


def _credentials(path: Path, cluster: Cluster, user: User) -> auth.Credentials:
    if user.token_file:
        file = auth.TokenFile(path.parent / user.token_file)
        file.read()
        return file
    if user.token or user.exec is None:
        return auth.Fixed(user.token)
    if user.exec.api_version not in EXEC_VERSIONS:
        raise errors.UsageError(
            f"{path}: exec says apiVersion {user.exec.api_version!r}; expected {' or '.join(EXEC_VERSIONS)}"
        )
    if user.exec.interactive_mode == "Always":
        raise errors.UsageError(
            f"{path}: exec wants a terminal (interactiveMode Always), which we have not"
        )
    about: dict[str, object] = {
        "server": cluster.server,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
    }
    about |= {"tls-server-name": cluster.tls_server_name} if cluster.tls_server_name else {}
    ca = _pem(
        path,
        "certificate-authority",
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    )
    if isinstance(ca, Path) and ca.is_file():
        ca = ca.read_text()
    if isinstance(ca, str) and ca:
        about["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    command = Command(user.exec, path.parent, about)
    command.program()
    return command
