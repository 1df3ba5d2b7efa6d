"""Who we are and whom we trust, from files, the environment and a kubeconfig's command."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin.api import text
from plugin.errors import UsageError
from plugin.kube import auth, client, errors
from tests.support import apiserver

NODE = "/api/v1/nodes/n"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(autouse=True)
def node(api: apiserver.ApiServer) -> None:
    api.put("nodes", {"metadata": {"name": "n"}})


@pytest.fixture
def account(tmp_path: Path, pki) -> Path:
    (tmp_path / "token").write_text("t-1\n")
    (tmp_path / "ca.crt").write_bytes(pki.ca.read_bytes())
    return tmp_path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def write_kubeconfig(
    path: Path, cluster: dict[str, Any], user: dict[str, Any], *, as_yaml: bool = False
) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "preferences": {},
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(text.dump_yaml(document) if as_yaml else json.dumps(document))
    return str(path)


async def token_of(connection: auth.Connection) -> str:
    return (await connection.credentials.get()).token


async def test_in_a_pod(account: Path) -> None:
    found = auth.connect("", account, IN_POD)
    assert (found.address, found.ca, await token_of(found)) == (
        "https://10.96.0.1:443",
        account / "ca.crt",
        "t-1",
    )


async def test_in_a_pod_with_ipv6(account: Path) -> None:
    found = auth.connect("", account, IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert found.authority == "[fd00::1]:443"


@pytest.mark.parametrize(
    ("spoil", "environment", "message"),
    [
        (None, {}, "KUBERNETES_SERVICE_HOST is '' .*--kubeconfig"),
        ("token", IN_POD, "token should hold a bearer token, but cannot be read: No such file"),
        ("ca.crt", IN_POD, "ca.crt should hold the certificate authority"),
    ],
)
def test_in_a_pod_with_something_missing(
    account: Path, spoil: str | None, environment: dict[str, str], message: str
) -> None:
    if spoil:
        (account / spoil).unlink()
    with pytest.raises(UsageError, match=message):
        auth.connect("", account, environment)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("token", "", "is empty"),
        ("token", "a b\n", "one bearer token"),
        ("ca.crt", "-----BEGIN", "expected PEM: .*ca.crt"),
    ],
)
def test_in_a_pod_with_rubbish(account: Path, file: str, content: str, message: str) -> None:
    (account / file).write_text(content)
    with pytest.raises(UsageError, match=message):
        auth.connect("", account, IN_POD)


async def test_the_token_is_read_again_after_a_minute(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("t-1")
    tokens = auth.TokenFile(path, clock=lambda: now)
    first = await tokens.get()
    path.write_text("t-2")
    now = 59.0
    assert await tokens.get() == first
    now = 61.0
    assert (await tokens.get()).token == "t-2"
    path.unlink()
    now = 122.0
    assert (
        await tokens.get()
    ).token == "t-2"  # a moment without the file is no moment without a token


async def test_a_refused_token_is_read_again_at_once(
    api: apiserver.ApiServer, connect: Callable[..., client.Client], tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("t-1")
    api.token = "t-1"
    kube = connect(api.url, credentials=auth.TokenFile(path))
    await kube.request("GET", NODE)
    path.write_text("t-2")
    api.token = "t-2"
    await kube.request("GET", NODE)
    assert [r.headers["authorization"] for r in api.requests] == [
        "Bearer t-1",
        "Bearer t-1",
        "Bearer t-2",
    ]
    api.token = "t-3"
    with pytest.raises(errors.Unauthorized):
        await kube.request("GET", NODE)
    assert len(api.requests) == 4  # the same token again would be refused again


async def test_a_watch_renews_the_token_as_well(
    api: apiserver.ApiServer, connect: Callable[..., client.Client], tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("t-1")
    credentials = auth.TokenFile(path)
    await credentials.get()
    path.write_text("t-2")
    api.token = "t-2"
    kube = connect(api.url, credentials=credentials)
    lines = kube.lines("/apis/resource.k8s.io/v1/resourceslices", {"watch": "1"}, idle=5)
    first = asyncio.ensure_future(anext(lines))
    await apiserver.until(lambda: api.watches)
    api.end_watches()
    with pytest.raises(StopAsyncIteration):
        await first
    api.token = "t-3"
    with pytest.raises(errors.Unauthorized):
        await anext(kube.lines("/apis/resource.k8s.io/v1/resourceslices", {"watch": "1"}, idle=5))


@pytest.mark.parametrize("as_yaml", [False, True], ids=["json", "yaml"])
async def test_a_kubeconfig_with_data(tmp_path: Path, pki, as_yaml: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server, pki.server_key)
    context.load_verify_locations(pki.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    async with apiserver.serve(context) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        api.token = "tok"
        cluster = {
            "server": api.url,
            "certificate-authority-data": encoded(pki.ca),
            "tls-server-name": "kubernetes.test",
        }
        user = {
            "client-certificate-data": encoded(pki.client),
            "client-key-data": encoded(pki.client_key),
            "token": "tok",
        }
        config = write_kubeconfig(tmp_path / "config", cluster, user, as_yaml=as_yaml)
        kube = client.Client(auth.connect(config, tmp_path), agent="test")
        await kube.request("GET", NODE)
        await kube.close()


async def test_a_kubeconfig_with_files_relative_to_it(tmp_path: Path, pki) -> None:
    (tmp_path / "ca.crt").write_bytes(pki.ca.read_bytes())
    (tmp_path / "me.crt").write_bytes(pki.client.read_bytes())
    (tmp_path / "me.key").write_bytes(pki.client_key.read_bytes())
    (tmp_path / "tok").write_text("t-9")
    user = {"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "tok"}
    cluster = {"server": "https://h.test/k8s/clusters/c-1/", "certificate-authority": "ca.crt"}
    found = auth.connect(write_kubeconfig(tmp_path / "config", cluster, user), tmp_path)
    assert (found.host, found.port, found.prefix) == ("h.test", 443, "/k8s/clusters/c-1")
    assert (found.ca, found.certificate, found.key) == tuple(
        tmp_path / n for n in ("ca.crt", "me.crt", "me.key")
    )
    assert await token_of(found) == "t-9"


async def test_a_kubeconfig_without_tls_or_user(api: apiserver.ApiServer, tmp_path: Path) -> None:
    found = auth.connect(
        write_kubeconfig(tmp_path / "c", {"server": f"{api.url}/pre/fix"}, {}), tmp_path
    )
    kube = client.Client(found, agent="test")
    with pytest.raises(errors.NotFound):
        await kube.request("GET", NODE)
    assert api.requests[0].path == f"/pre/fix{NODE}"
    assert "authorization" not in api.requests[0].headers
    await kube.close()


def test_skipping_verification_is_honoured(tmp_path: Path) -> None:
    cluster = {"server": "https://h:6443", "insecure-skip-tls-verify": True}
    assert auth.connect(write_kubeconfig(tmp_path / "c", cluster, {}), tmp_path).verify is False


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": ""}, {}, "server '': expected https://HOST:PORT"),
        ({"server": "https://h:x"}, {}, "expected https://HOST:PORT"),
        ({"server": "https://h", "proxy-url": "http://p"}, {}, "proxy-url is not supported"),
        ({"server": "https://h"}, {"username": "me", "password": "x"}, "username is not supported"),
        ({"server": "https://h"}, {"as": "root"}, "as is not supported"),
        (
            {"server": "https://h"},
            {"auth-provider": {"name": "gcp"}},
            "auth-provider is not supported",
        ),
        (
            {"server": "https://h", "certificate-authority": "none.crt"},
            {},
            "No such file.*none.crt",
        ),
        (
            {"server": "https://h", "certificate-authority-data": "%%"},
            {},
            "certificate-authority-data is not base64",
        ),
        (
            {"server": "https://h"},
            {"client-certificate-data": "eHg=", "client-key-data": "eHg="},
            "cannot be used",
        ),
        (
            {"server": "https://h"},
            {"exec": {"command": "no-such-command", "apiVersion": "x"}},
            "exec says apiVersion 'x'",
        ),
        ({"server": ["https://h"]}, {}, "is not a kubeconfig: .*clusters"),
    ],
)
def test_a_kubeconfig_that_we_cannot_use(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    config = write_kubeconfig(tmp_path / "config", cluster, user)
    with pytest.raises(UsageError, match=message):
        auth.connect(config, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the kubeconfig .*: No such file"),
        ("{a: [", "neither JSON nor YAML"),
        ("", "is not a kubeconfig"),
        ("{}", "names no current-context"),
        (
            '{"current-context": "x", "contexts": [{"name": "y", "context": {}}]}',
            "has no context 'x'; it has: y",
        ),
        (
            '{"current-context": "y", "contexts": [{"name": "y", "context": {"cluster": "c"}}]}',
            "has no cluster 'c'",
        ),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=message):
        auth.connect(str(path), tmp_path)


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

    def connection(self, server: str, **more: Any) -> auth.Connection:
        exec_ = {
            "apiVersion": self.version,
            "command": "./login",
            "args": None,
            "env": [{"name": "FOLDER", "value": str(self.folder)}],
            "interactiveMode": "Never",
        }
        config = write_kubeconfig(
            self.folder / "config", {"server": server}, {"exec": exec_ | more}
        )
        return auth.connect(config, self.folder)


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
        found = command.connection(api.url)
        connection = auth.Connection(
            host=found.host, port=found.port, ca=pki.ca, credentials=found.credentials
        )
        kube = client.Client(connection, agent="test")
        await kube.request("GET", NODE)
        await kube.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("nonsense", "printed no ExecCredential of client.authentication.k8s.io/v1"),
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


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
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


def test_secrets_do_not_show(tmp_path: Path) -> None:
    credential = auth.Credential(token="s3cret", certificate="c", key="s3cret")
    assert "s3cret" not in repr(credential)
