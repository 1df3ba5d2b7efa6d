"""Tests of a kubeconfig's credential command: its runs, its input, and its failures."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claimd.common.errors import UsageError
from claimd.kubernetes.kube import client, client_config, errors, kubeconfig
from tests.support import apiserver, kubeconfigs

NODE = "/api/v1/nodes/n"


@pytest.fixture(autouse=True)
def node(api: apiserver.ApiServer) -> None:
    api.put("nodes", {"metadata": {"name": "n"}})


async def token_of(connection: client_config.ClientConfig) -> str:
    return (await connection.credentials.get()).token


COMMAND = """#!/bin/sh
echo x >> "$FOLDER/runs"
printf '%s' "$KUBERNETES_EXEC_INFO" > "$FOLDER/info"
[ -e "$FOLDER/fail" ] && { echo "no network" >&2; exit 3; }
cat "$FOLDER/answer"
"""


class Exec:
    """A credential command in a folder, and a kubeconfig that names it."""

    def __init__(self, folder: Path, version: str = "v1") -> None:
        self.folder = folder
        self.version = f"client.authentication.k8s.io/{version}"
        (folder / "login").write_text(COMMAND)
        (folder / "login").chmod(0o755)

    def answer(self, **status: Any) -> None:
        document = {"kind": "ExecCredential", "apiVersion": self.version, "status": status}
        (self.folder / "answer").write_text(json.dumps(document))

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text().split())

    def connection(self, server: str, **more: Any) -> client_config.ClientConfig:
        exec_ = {
            "apiVersion": self.version,
            "command": "./login",
            "args": None,
            "env": [{"name": "FOLDER", "value": str(self.folder)}],
            "interactiveMode": "Never",
        }
        config = kubeconfigs.write(
            self.folder / "config", {"server": server}, {"exec": exec_ | more}
        )
        return kubeconfig.load(config)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_command_gives_the_token(
    api: apiserver.ApiServer, tmp_path: Path, connect: Callable[..., client.Client], version: str
) -> None:
    command = Exec(tmp_path, version)
    command.answer(token="t-1", expirationTimestamp="2999-01-01T00:00:00Z")
    api.token = "t-1"
    kube = connect(
        api.url, credentials=command.connection(api.url, provideClusterInfo=True).credentials
    )
    await asyncio.gather(*(kube.request("GET", NODE) for _ in range(20)))
    assert command.runs == 1
    info = json.loads((tmp_path / "info").read_text())
    assert (info["apiVersion"], info["kind"]) == (command.version, "ExecCredential")
    assert info["spec"]["cluster"]["server"] == api.url
    command.answer(token="t-2")
    api.token = "t-2"
    await asyncio.gather(
        *(kube.request("GET", NODE) for _ in range(20))
    )  # refused together, run once
    assert command.runs == 2


async def test_an_expired_token_is_not_used(tmp_path: Path) -> None:
    command = Exec(tmp_path)
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5))
    command.answer(token="t-1", expirationTimestamp=soon)
    connection = command.connection("http://h")
    assert await token_of(connection) == "t-1"
    command.answer(token="t-2")
    assert await token_of(connection) == "t-2"
    assert await token_of(connection) == "t-2"
    assert command.runs == 2


async def test_a_command_gives_a_certificate(tmp_path: Path, pki) -> None:
    command = Exec(tmp_path)
    command.answer(
        clientCertificateData=pki.client.read_text(), clientKeyData=pki.client_key.read_text()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server, pki.server_key)
    context.load_verify_locations(pki.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    async with apiserver.serve(context) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        config = command.connection(api.url)
        connection = client_config.ClientConfig(
            host=config.host, port=config.port, ca=pki.ca, credentials=config.credentials
        )
        kube = client.Client(connection, agent="test")
        await kube.request("GET", NODE)
        await kube.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("nonsense", "printed no ExecCredential of client.authentication.k8s.io/v1"),
        ('{"x":' * 20_000, "printed no ExecCredential of client.authentication.k8s.io/v1"),
        ('{"kind": "ExecCredential", "status": {}}', "printed neither token nor certificate"),
        ('{"kind": "ExecCredential", "status": {"token": "a b"}}', "one bearer token"),
        (None, r"ended with 3: no network"),
    ],
)
async def test_a_command_that_fails_fails_the_request(
    tmp_path: Path, answer: str | None, message: str
) -> None:
    command = Exec(tmp_path)
    if answer is None:
        (tmp_path / "fail").touch()
    else:
        (tmp_path / "answer").write_text(answer)
    with pytest.raises(errors.Unauthorized, match=message):
        await command.connection("http://h").credentials.get()


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match="'no-such-command' of the kubeconfig's user is not there; get it at example",
    ):
        Exec(tmp_path).connection(
            "http://h", command="no-such-command", installHint="get it at example"
        )


def test_a_command_that_wants_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="wants a terminal"):
        Exec(tmp_path).connection("http://h", interactiveMode="Always")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "/\0"}, r"exec says '/\\x00'; expected a text without NUL"),
        ({"args": ["a", "\0"]}, "expected a text without NUL"),
        ({"env": [{"name": "A", "value": "\0"}]}, "expected a text without NUL"),
        ({"env": [{"name": "A=B", "value": ""}]}, "exec sets 'A=B', which is no variable"),
    ],
)
def test_texts_that_the_kernel_cannot_pass_to_a_program(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Exec(tmp_path).connection("http://h", **settings)


async def test_a_command_that_is_gone_by_now_fails_the_request(tmp_path: Path) -> None:
    command = Exec(tmp_path)
    connection = command.connection("http://h")
    (tmp_path / "login").unlink()
    with pytest.raises(errors.Unauthorized, match="no credential: .* is not there"):
        await connection.credentials.get()


async def test_a_command_that_cannot_be_run_fails_the_request(tmp_path: Path) -> None:
    command = Exec(tmp_path)
    connection = command.connection("http://h")
    (tmp_path / "login").write_text("#!/nowhere/sh\n")
    with pytest.raises(errors.Unauthorized, match="login cannot be run: No such file"):
        await connection.credentials.get()
