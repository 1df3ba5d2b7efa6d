"""Tests of the configuration from a pod's service account, and of the order that kubectl uses."""

from pathlib import Path

import pytest

from claimd.common.errors import UsageError
from claimd.kubernetes.kube import auth, client_config
from tests.support import kubeconfigs

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path, pki) -> Path:
    (tmp_path / "token").write_text("t-1\n")
    (tmp_path / "ca.crt").write_bytes(pki.ca.read_bytes())
    return tmp_path


async def token_of(connection: client_config.ClientConfig) -> str:
    return (await connection.credentials.get()).token


async def test_in_a_pod(account: Path) -> None:
    config = auth.client_config("", account, IN_POD)
    assert (config.address, config.ca, await token_of(config)) == (
        "https://10.96.0.1:443",
        account / "ca.crt",
        "t-1",
    )


async def test_in_a_pod_with_ipv6(account: Path) -> None:
    config = auth.client_config("", account, IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert config.authority == "[fd00::1]:443"


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
        auth.client_config("", account, environment)


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
        auth.client_config("", account, IN_POD)


def test_the_configuration_is_looked_for_in_the_order_of_kubectl(
    tmp_path: Path, account: Path
) -> None:
    """The order is: --kubeconfig, $KUBECONFIG, ~/.kube/config, the pod's service account."""

    def address(named: str = "", context: str = "", **environment: str) -> str:
        environment |= {"HOME": str(tmp_path)}
        return auth.as_kubectl(named, context, account, environment).address

    config = tmp_path / ".kube/config"
    assert address(**IN_POD) == "https://10.96.0.1:443"
    with pytest.raises(UsageError, match="no cluster is known: there is no .*/.kube/config, where"):
        address()
    with pytest.raises(UsageError, match="no cluster is known"):
        address(context="here", **IN_POD)  # a pod has no contexts

    config.parent.mkdir()
    kubeconfigs.write(config, {"server": "http://home:1"}, {})
    assert address(**IN_POD) == "http://home:1"
    with pytest.raises(UsageError, match="has no context 'there'; it has: here"):
        address(context="there")

    variable = kubeconfigs.write(tmp_path / "variable", {"server": "http://variable:1"}, {})
    assert address(KUBECONFIG=f"/nowhere:{variable}:{config}") == "http://variable:1"
    with pytest.raises(UsageError, match="there is no /nowhere and no /neither"):
        address(KUBECONFIG="/nowhere:/neither")

    named = kubeconfigs.write(tmp_path / "named", {"server": "http://named:1"}, {})
    assert address(str(named), KUBECONFIG=str(variable)) == "http://named:1"
    with pytest.raises(UsageError, match="cannot read the kubeconfig /nowhere: No such file"):
        address("/nowhere", KUBECONFIG=str(variable))


def test_a_kubeconfig_that_is_named_comes_before_the_pod(tmp_path: Path, account: Path) -> None:
    named = kubeconfigs.write(tmp_path / "named", {"server": "http://named:1"}, {})
    assert auth.client_config(str(named), account, IN_POD).address == "http://named:1"


def test_the_environment_is_that_of_the_process(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in IN_POD.items():
        monkeypatch.setenv(name, value)
    assert auth.client_config("", account).address == "https://10.96.0.1:443"


@pytest.mark.parametrize(
    "wrong", [{"KUBERNETES_SERVICE_PORT": "https"}, {"KUBERNETES_SERVICE_HOST": ""}]
)
def test_a_pod_needs_both_host_and_port(account: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="no API server is known"):
        auth.client_config("", account, IN_POD | wrong)
