"""The credential plugin of a kubeconfig's user: a command that prints a credential.

The protocol is client.authentication.k8s.io. A pod never loads this module.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from pathlib import Path

import msgspec

from claimd.common import errors as plugin_errors

from . import credentials, errors
from .client_config import Credential

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT = 60.0
# A credential is no longer used when it expires within this number of seconds.
EXPIRY_MARGIN = 10.0


class EnvironmentVariable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The command in a kubeconfig, and how it wants to be run."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime.datetime | None = None


class ExecCredential(msgspec.Struct, frozen=True, tag_field="kind", tag="ExecCredential"):
    """The object that the command prints."""

    status: ExecStatus


class CredentialPlugin:
    """The credentials that a command prints.

    The command runs again when the credential has expired or the API server has refused it.
    """

    def __init__(self, config: ExecConfig, folder: Path, cluster: dict[str, object]) -> None:
        """Takes the folder of the kubeconfig, and the cluster for a command that asks for it."""
        self._config = config
        self._folder = folder
        self._cluster = cluster
        self._running = asyncio.Lock()
        self._credential: Credential | None = None
        self._expiry: float | None = None

    async def get(self, refused: Credential | None = None) -> Credential:
        current = self._current(refused)
        if current is not None:
            return current

        async with self._running:
            # Several requests may be refused together. Only the first one runs the command, the
            # others find its result.
            current = self._current(refused)
            if current is None:
                current, self._expiry = self._parse(await self._run())
                self._credential = current
            return current

    def _current(self, refused: Credential | None) -> Credential | None:
        """Returns the last credential; None if it has expired, was refused, or does not exist."""
        if self._expiry is not None and time.time() >= self._expiry - EXPIRY_MARGIN:
            return None
        return self._credential if self._credential != refused else None

    def program(self) -> str:
        """Returns the path of the command. UsageError if it does not exist.

        A command with a slash is relative to the kubeconfig's folder. Any other is searched in
        $PATH.
        """
        command = self._config.command
        # Imported here, because most kubeconfigs have no command and shutil loads the modules that
        # unpack archives.
        import shutil

        path = str(self._folder / command) if "/" in command else shutil.which(command)
        if not path or not os.access(path, os.X_OK):
            hint = self._config.install_hint or "install it"
            raise plugin_errors.UsageError(
                f"the command {command!r} of the kubeconfig's user is not there; {hint}"
            )
        return path

    async def _run(self) -> bytes:
        """Runs the command and returns its output. Unauthorized if it fails or takes too long."""
        command = self._config.command
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                self.program(),
                *(self._config.args or ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                env=self._environment(),
            )
        except plugin_errors.UsageError as error:
            raise errors.Unauthorized(f"no credential: {error}") from error
        except OSError as error:
            raise errors.Unauthorized(
                f"no credential: {command} cannot be run: {error.strerror}"
            ) from error

        try:
            async with asyncio.timeout(TIMEOUT):
                output, complaint = await process.communicate()
        except TimeoutError:
            raise errors.Unauthorized(
                f"no credential: {command} has not ended within {TIMEOUT:.0f} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

        if process.returncode:
            text = complaint.decode(errors="replace").strip()[-500:]
            raise errors.Unauthorized(
                f"no credential: {command} ended with {process.returncode}: {text}"
            )
        return output

    def _environment(self) -> dict[str, str]:
        """Returns the environment of the command, with the request in KUBERNETES_EXEC_INFO."""
        spec: dict[str, object] = {"interactive": False}
        if self._config.provide_cluster_info:
            spec["cluster"] = self._cluster
        info = {"apiVersion": self._config.api_version, "kind": "ExecCredential", "spec": spec}

        environment = dict(os.environ)
        for variable in self._config.env or ():
            environment[variable.name] = variable.value
        environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        return environment

    def _parse(self, output: bytes) -> tuple[Credential, float | None]:
        """Returns the credential and its expiry in seconds since the epoch.

        The expiry is None if the credential never expires. Unauthorized if the output is not an
        ExecCredential, or has no credential in it.
        """
        command = self._config.command
        try:
            status = msgspec.json.decode(output, type=ExecCredential).status
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.Unauthorized(
                f"no credential: {command} printed no ExecCredential of "
                f"{self._config.api_version}: {error}"
            ) from error
        if not status.token and not status.client_certificate_data:
            raise errors.Unauthorized(
                f"no credential: {command} printed neither token nor certificate"
            )

        try:
            token = credentials.bearer_token(status.token, f"what {command} printed")
        except plugin_errors.UsageError as error:
            raise errors.Unauthorized(f"no credential: {error}") from error
        credential = Credential(
            token=token, certificate=status.client_certificate_data, key=status.client_key_data
        )

        # The protocol asks for RFC 3339. A timestamp without a zone is taken as UTC.
        expiry = status.expiration_timestamp
        if expiry is None:
            return credential, None
        if expiry.tzinfo is None:
            expiry = expiry.replace(tzinfo=datetime.UTC)
        return credential, expiry.timestamp()
