"""Tests of the kubeconfigs that we support and of those that we refuse."""

import base64
import json
import ssl
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


def encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def token_of(connection: client_config.ClientConfig) -> str:
    return (await connection.credentials.get()).token


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
            "certificate-authority-data": encode(pki.ca),
            "tls-server-name": "kubernetes.test",
        }
        user = {
            "client-certificate-data": encode(pki.client),
            "client-key-data": encode(pki.client_key),
            "token": "tok",
        }
        config = kubeconfigs.write(tmp_path / "config", cluster, user, as_yaml=as_yaml)
        kube = client.Client(kubeconfig.load(config), agent="test")
        await kube.request("GET", NODE)
        await kube.close()


async def test_a_kubeconfig_with_files_relative_to_it(tmp_path: Path, pki) -> None:
    (tmp_path / "ca.crt").write_bytes(pki.ca.read_bytes())
    (tmp_path / "me.crt").write_bytes(pki.client.read_bytes())
    (tmp_path / "me.key").write_bytes(pki.client_key.read_bytes())
    (tmp_path / "tok").write_text("t-9")
    user = {"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "tok"}
    cluster = {"server": "https://h.test/k8s/clusters/c-1/", "certificate-authority": "ca.crt"}
    config = kubeconfig.load(kubeconfigs.write(tmp_path / "config", cluster, user))
    assert (config.host, config.port, config.prefix) == ("h.test", 443, "/k8s/clusters/c-1")
    assert (config.ca, config.certificate, config.key) == tuple(
        tmp_path / n for n in ("ca.crt", "me.crt", "me.key")
    )
    assert await token_of(config) == "t-9"


async def test_a_kubeconfig_without_tls_or_user(api: apiserver.ApiServer, tmp_path: Path) -> None:
    config = kubeconfig.load(
        kubeconfigs.write(tmp_path / "c", {"server": f"{api.url}/pre/fix"}, {})
    )
    kube = client.Client(config, agent="test")
    with pytest.raises(errors.NotFound):
        await kube.request("GET", NODE)
    assert api.requests[0].path == f"/pre/fix{NODE}"
    assert "authorization" not in api.requests[0].headers
    await kube.close()


def test_skipping_verification_is_honoured(tmp_path: Path) -> None:
    cluster = {"server": "https://h:6443", "insecure-skip-tls-verify": True}
    assert kubeconfig.load(kubeconfigs.write(tmp_path / "c", cluster, {})).verify is False


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": ""}, {}, "server '': expected https://HOST:PORT"),
        ({"server": "https://h:x"}, {}, "expected https://HOST:PORT"),
        ({"server": "https://["}, {}, "expected https://HOST:PORT"),
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
            "none.crt: No such file or directory; expected PEM",
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
        ({"server": "https://h"}, {"tokenFile": "a\0b"}, r"tokenFile 'a\\x00b' is no path"),
        ({"server": ["https://h"]}, {}, "is not a kubeconfig: .*clusters"),
    ],
)
def test_a_kubeconfig_that_we_cannot_use(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    config = kubeconfigs.write(tmp_path / "config", cluster, user)
    with pytest.raises(UsageError, match=message):
        kubeconfig.load(config)


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
        kubeconfig.load(path)


def entry(name: str, kind: str, **content: object) -> dict[str, Any]:
    return {"name": name, kind: content}


async def test_several_files_are_one_and_the_first_word_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
        (folder / "tok").write_text(f"token of {folder.name}".replace(" ", "-"))
    (first / "config").write_text(
        json.dumps(
            {
                "contexts": [entry("a", "context", cluster="shared", user="of-two")],
                "clusters": [entry("shared", "cluster", server="http://one:1")],
            }
        )
    )
    (second / "config").write_text(
        json.dumps(
            {
                "current-context": "a",
                "contexts": [
                    entry("a", "context", cluster="no-such"),
                    entry("b", "context", cluster="own", user="of-two"),
                ],
                "clusters": [
                    entry("shared", "cluster", server="http://two:2"),
                    entry("own", "cluster", server="http://own:3"),
                ],
                "users": [entry("of-two", "user", tokenFile="tok")],
            }
        )
    )
    files = (first / "config", second / "config")
    current = kubeconfig.load(*files)
    assert current.address == "http://one:1"
    assert await token_of(current) == "token-of-two", "a path is relative to its own file"
    assert kubeconfig.load(*files, context="b").address == "http://own:3"
    with pytest.raises(
        UsageError, match="one/config, .*two/config has no context 'c'; it has: a, b"
    ):
        kubeconfig.load(*files, context="c")


def test_where_kubectl_looks(tmp_path: Path) -> None:
    home = {"HOME": "/home/me"}
    assert kubeconfig.default_files(home) == [Path("/home/me/.kube/config")]
    assert kubeconfig.default_files(home | {"KUBECONFIG": ""}) == [Path("/home/me/.kube/config")]
    assert kubeconfig.default_files(home | {"KUBECONFIG": "a::/b"}) == [Path("a"), Path("/b")]
