"""Reads a kubeconfig, in one file or several, as JSON or YAML, and returns a ClientConfig.

A kubeconfig with a setting that this client does not support is refused, and the error names the
setting. A pod never loads this module.
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
    # These are read only to refuse them: to ignore them would mean to act as a different user.
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
    """The content of one kubeconfig file."""

    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


_T = TypeVar("_T")


@dataclass(frozen=True)
class _Entry(Generic[_T]):
    """A cluster, user or context, and its file. Paths in it are relative to the file's folder."""

    file: Path
    value: _T


@dataclass
class _Merged:
    """Several files as one. As with kubectl, the first file that defines a name wins."""

    files: Sequence[Path]
    current_context: str = ""
    clusters: dict[str, _Entry[Cluster]] = field(default_factory=dict)
    users: dict[str, _Entry[User]] = field(default_factory=dict)
    contexts: dict[str, _Entry[Context]] = field(default_factory=dict)

    def add(self, file: Path, content: Kubeconfig) -> None:
        """Adds the entries of a file whose names no earlier file has."""
        self.current_context = self.current_context or content.current_context
        for cluster in content.clusters or ():
            self.clusters.setdefault(cluster.name, _Entry(file, cluster.cluster or Cluster()))
        for user in content.users or ():
            self.users.setdefault(user.name, _Entry(file, user.user or User()))
        for context in content.contexts or ():
            self.contexts.setdefault(context.name, _Entry(file, context.context or Context()))

    def entry(self, kind: str, name: str, entries: dict[str, _Entry[_T]]) -> _Entry[_T]:
        """Returns the entry of this name. UsageError if the name is empty or unknown."""
        files = ", ".join(str(file) for file in self.files)
        if not name:
            missing = "current-context" if kind == "context" else kind
            raise errors.UsageError(f"{files} names no {missing}; set one")
        if name not in entries:
            others = ", ".join(sorted(entries)) or "none"
            raise errors.UsageError(f"{files} has no {kind} {name!r}; it has: {others}")
        return entries[name]


def default_files(environment: Mapping[str, str]) -> list[Path]:
    """Returns the files that kubectl reads by default.

    They are the files in $KUBECONFIG, or ~/.kube/config if the variable is empty.
    """
    named = environment.get("KUBECONFIG", "").split(os.pathsep)
    files = [Path(name) for name in named if name]
    if files:
        return files
    home = environment.get("HOME") or os.path.expanduser("~")
    return [Path(home) / ".kube" / "config"]


def load(*files: Path, context: str = "") -> ClientConfig:
    """Returns the configuration for a context of the files. Empty: their current context.

    Every file must exist. UsageError names the file and the mistake in it.
    """
    merged = _Merged(files)
    for file in files:
        merged.add(file, _read_file(file))

    # A context names a cluster and a user. Without a user the requests have no credential.
    chosen = merged.entry("context", context or merged.current_context, merged.contexts).value
    cluster = merged.entry("cluster", chosen.cluster, merged.clusters)
    user = _Entry(cluster.file, User())
    if chosen.user:
        user = merged.entry("user", chosen.user, merged.users)
    _check_supported(cluster, user)

    config = _client_config(cluster, user)
    tls.check(config)
    return config


def _read_file(file: Path) -> Kubeconfig:
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
    except ValueError as error:
        # A ValidationError of msgspec, or the UnicodeError for a name with a lone surrogate.
        raise errors.UsageError(f"{file} is not a kubeconfig: {error}") from error


def _check_supported(cluster: _Entry[Cluster], user: _Entry[User]) -> None:
    """Raises UsageError for a setting that this client does not support."""
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
    url, port = _parse_server(cluster)
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


def _parse_server(cluster: _Entry[Cluster]) -> tuple[SplitResult, int]:
    """Returns the server's URL and its port. UsageError if the URL is not valid."""
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
    """Returns the decoded inline text, or else the path, which is relative to the kubeconfig."""
    if not inline:
        return file.parent / path if path else ""
    try:
        return base64.b64decode(inline, validate=True).decode("ascii")
    except ValueError as error:
        raise errors.UsageError(f"{file}: {name}-data is not base64 of PEM: {error}") from error


def _credentials(cluster: _Entry[Cluster], user: _Entry[User]) -> Credentials:
    """Returns the source of the user's credential.

    As with kubectl, a token file is preferred to a token, and a token to a command.
    """
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
    # Looking for the command now reports a missing one at the start.
    plugin = exec_credentials.CredentialPlugin(config, user.file.parent, _cluster_info(cluster))
    plugin.program()
    return plugin


def _check_command(file: Path, config: exec_credentials.ExecConfig) -> None:
    """Checks that the kernel can pass arguments and environment to the command.

    The kernel ends each text at its first NUL, and each variable's name at its first "=".
    """
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
    """Returns the cluster's entry for a credential plugin, with the content of its files."""
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
            # The check of the certificates will report this file.
            authority = ""
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    return info
