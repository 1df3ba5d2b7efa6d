"""A kubeconfig file, JSON or YAML, as a Connection. Only what we can honour; the rest is refused by name."""

from __future__ import annotations

import base64
import binascii
import datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from .. import errors
from ..api import text
from . import auth

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


_T = TypeVar("_T")


def connection(path: Path) -> auth.Connection:
    """The current context's API server and user. UsageError says what is wrong with the file."""
    config = _read(path)
    chosen = {named.name: named.context for named in config.contexts or ()}
    context = _named(path, "context", config.current_context, chosen) or Context()
    cluster = _named(path, "cluster", context.cluster, {c.name: c.cluster for c in config.clusters or ()}) or Cluster()
    user = User()
    if context.user:
        user = _named(path, "user", context.user, {u.name: u.user for u in config.users or ()}) or User()
    _refuse(path, cluster, user)
    url = urlsplit(cluster.server)
    try:
        port = url.port
    except ValueError:
        port = -1
    if url.scheme not in ("http", "https") or not url.hostname or port == -1:
        raise errors.UsageError(f"{path}: server {cluster.server!r}: expected https://HOST:PORT")
    secure = url.scheme == "https"
    certificate = _pem(path, "client-certificate", user.client_certificate_data, user.client_certificate)
    key = _pem(path, "client-key", user.client_key_data, user.client_key)
    found = auth.Connection(
        host=url.hostname,
        port=port or (443 if secure else 80),
        secure=secure,
        prefix=url.path.rstrip("/"),
        server_name=cluster.tls_server_name,
        ca=_pem(path, "certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority),
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
        raise errors.UsageError(f"the kubeconfig {path} is neither JSON nor YAML: {error}") from error
    try:
        return msgspec.convert(document, Kubeconfig)
    except msgspec.ValidationError as error:
        raise errors.UsageError(f"{path} is not a kubeconfig: {error}") from error


def _named(path: Path, what: str, name: str, known: dict[str, _T]) -> _T:
    if not name:
        raise errors.UsageError(f"{path} names no {'current-context' if what == 'context' else what}; set one")
    if name not in known:
        raise errors.UsageError(f"{path} has no {what} {name!r}; it has: {', '.join(sorted(known)) or 'none'}")
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
            raise errors.UsageError(f"{path}: {name} is not supported; use a token, tokenFile, a certificate or exec")


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
        raise errors.UsageError(f"{path}: exec wants a terminal (interactiveMode Always), which we have not")
    about: dict[str, object] = {"server": cluster.server, "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify}
    about |= {"tls-server-name": cluster.tls_server_name} if cluster.tls_server_name else {}
    ca = _pem(path, "certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority)
    if isinstance(ca, Path) and ca.is_file():
        ca = ca.read_text()
    if isinstance(ca, str) and ca:
        about["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    command = auth.Command(user.exec, path.parent, about)
    command.program()
    return command
