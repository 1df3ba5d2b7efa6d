"""A kubeconfig, JSON or YAML, in one file or several, as a ClientConfig.

Only what we can honour; the rest is refused by name. Not loaded in a pod.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from claimd.common import errors

from ..api import text
from . import credentials, exec_credentials, tls
from .client_config import ClientConfig, Credentials


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: exec_credentials.ExecConfig | None = None
    # Read, and refused: acting as somebody else than the file says would be worse.
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
    """One file."""

    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


_T = TypeVar("_T")


@dataclass(frozen=True)
class _Entry(Generic[_T]):
    """A cluster, user or context, and the file that says it: its paths are relative to that."""

    file: Path
    value: _T


@dataclass
class _Merged:
    """Several files as one. What an earlier file says by a name, no later one changes."""

    files: Sequence[Path]
    current_context: str = ""
    clusters: dict[str, _Entry[Cluster]] = field(default_factory=dict)
    users: dict[str, _Entry[User]] = field(default_factory=dict)
    contexts: dict[str, _Entry[Context]] = field(default_factory=dict)

    def add(self, file: Path, content: Kubeconfig) -> None:
        self.current_context = self.current_context or content.current_context
        for cluster in content.clusters or ():
            self.clusters.setdefault(cluster.name, _Entry(file, cluster.cluster or Cluster()))
        for user in content.users or ():
            self.users.setdefault(user.name, _Entry(file, user.user or User()))
        for context in content.contexts or ():
            self.contexts.setdefault(context.name, _Entry(file, context.context or Context()))

    def entry(self, kind: str, name: str, entries: dict[str, _Entry[_T]]) -> _Entry[_T]:
        files = ", ".join(str(file) for file in self.files)
        if not name:
            missing = "current-context" if kind == "context" else kind
            raise errors.UsageError(f"{files} names no {missing}; set one")
        if name not in entries:
            others = ", ".join(sorted(entries)) or "none"
            raise errors.UsageError(f"{files} has no {kind} {name!r}; it has: {others}")
        return entries[name]


def default_files(environment: Mapping[str, str]) -> list[Path]:
    """Where kubectl looks if no file is named: those of $KUBECONFIG, else ~/.kube/config."""
    named = environment.get("KUBECONFIG", "").split(os.pathsep)
    files = [Path(name) for name in named if name]
    if files:
        return files
    home = environment.get("HOME") or os.path.expanduser("~")
    return [Path(home) / ".kube" / "config"]


def load(*files: Path, context: str = "") -> ClientConfig:
    """The API server and user of a context: the one that is named, or the files' current one.

    Every file has to be there. UsageError says what is wrong with which of them.
    """
    merged = _Merged(files)
    for file in files:
        merged.add(file, _read(file))

    chosen = merged.entry("context", context or merged.current_context, merged.contexts).value
    cluster = merged.entry("cluster", chosen.cluster, merged.clusters)
    user = _Entry(cluster.file, User())
    if chosen.user:
        user = merged.entry("user", chosen.user, merged.users)
    _check_supported(cluster, user)

    config = _client_config(cluster, user)
    tls.check(config)
    return config


def _read(file: Path) -> Kubeconfig:
    try:
        document = text.load(file.read_bytes())
    except OSError as error:
        raise errors.UsageError(f"cannot read the kubeconfig {file}: {error.strerror}") from error
    except ValueError as error:
        raise errors.UsageError(
            f"the kubeconfig {file} is neither JSON nor YAML: {error}"
        ) from error

    try:
        return msgspec.convert(document, Kubeconfig)
    except ValueError as error:  # msgspec's, and that of names with half a character
        raise errors.UsageError(f"{file} is not a kubeconfig: {error}") from error


def _check_supported(cluster: _Entry[Cluster], user: _Entry[User]) -> None:
    fields = (
        (cluster.file, "proxy-url", cluster.value.proxy_url),
        (user.file, "username", user.value.username),
        (user.file, "as", user.value.impersonate),
        (user.file, "auth-provider", user.value.auth_provider),
    )
    for file, name, value in fields:
        if value:
            raise errors.UsageError(
                f"{file}: {name} is not supported; use a token, tokenFile, a certificate or exec"
            )


def _client_config(cluster: _Entry[Cluster], user: _Entry[User]) -> ClientConfig:
    url, port = _split(cluster)
    assert url.hostname
    return ClientConfig(
        host=url.hostname,
        port=port,
        secure=url.scheme == "https",
        prefix=url.path.rstrip("/"),
        server_name=cluster.value.tls_server_name,
        ca=_authority(cluster),
        verify=not cluster.value.insecure_skip_tls_verify,
        certificate=_pem(
            user.file,
            "client-certificate",
            user.value.client_certificate_data,
            user.value.client_certificate,
        ),
        key=_pem(user.file, "client-key", user.value.client_key_data, user.value.client_key),
        credentials=_credentials(cluster, user),
    )


def _split(cluster: _Entry[Cluster]) -> tuple[SplitResult, int]:
    """The server's address and its port."""
    server = cluster.value.server
    problem = f"{cluster.file}: server {server!r}: expected https://HOST:PORT"
    try:
        url = urlsplit(server)
        port = url.port
    except ValueError as error:
        raise errors.UsageError(problem) from error
    if url.scheme not in ("http", "https") or not url.hostname:
        raise errors.UsageError(problem)
    return url, port or (443 if url.scheme == "https" else 80)


def _authority(cluster: _Entry[Cluster]) -> Path | str:
    value = cluster.value
    return _pem(
        cluster.file,
        "certificate-authority",
        value.certificate_authority_data,
        value.certificate_authority,
    )


def _pem(file: Path, name: str, inline: str, path: str) -> Path | str:
    if not inline:
        return file.parent / path if path else ""
    try:
        return base64.b64decode(inline, validate=True).decode("ascii")
    except ValueError as error:
        raise errors.UsageError(f"{file}: {name}-data is not base64 of PEM: {error}") from error


def _credentials(cluster: _Entry[Cluster], user: _Entry[User]) -> Credentials:
    """The user's token; a file of it comes before the token itself, and both before a command."""
    if user.value.token_file:
        if "\0" in user.value.token_file:
            raise errors.UsageError(f"{user.file}: tokenFile {user.value.token_file!r} is no path")
        token = credentials.TokenFile(user.file.parent / user.value.token_file)
        token.read()
        return token

    config = user.value.exec
    if user.value.token or config is None:
        return credentials.StaticToken(user.value.token)

    if config.api_version not in exec_credentials.VERSIONS:
        raise errors.UsageError(
            f"{user.file}: exec says apiVersion {config.api_version!r}; "
            f"expected {' or '.join(exec_credentials.VERSIONS)}"
        )
    if config.interactive_mode == "Always":
        raise errors.UsageError(
            f"{user.file}: exec wants a terminal (interactiveMode Always), which we have not"
        )
    _check_command(user.file, config)
    plugin = exec_credentials.CredentialPlugin(config, user.file.parent, _cluster_info(cluster))
    plugin.program()
    return plugin


def _check_command(file: Path, config: exec_credentials.ExecConfig) -> None:
    """Refuses what no program can be given: the kernel ends each text at its first NUL."""
    variables = config.env or ()
    texts = [config.command, *(config.args or ())]
    for variable in variables:
        texts += [variable.name, variable.value]
        if "=" in variable.name:
            raise errors.UsageError(f"{file}: exec sets {variable.name!r}, which is no variable")

    for each in texts:
        if "\0" in each:
            raise errors.UsageError(f"{file}: exec says {each!r}; expected a text without NUL")


def _cluster_info(cluster: _Entry[Cluster]) -> dict[str, object]:
    """What a credential plugin may be told about the cluster, with files as their content."""
    value = cluster.value
    info: dict[str, object] = {
        "server": value.server,
        "insecure-skip-tls-verify": value.insecure_skip_tls_verify,
    }
    if value.tls_server_name:
        info["tls-server-name"] = value.tls_server_name

    authority = _authority(cluster)
    if isinstance(authority, Path):
        try:
            authority = authority.read_text()
        except (OSError, ValueError):
            authority = ""  # the check of the certificates says what is wrong with it
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    return info
