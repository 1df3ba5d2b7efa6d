"""Tests of the written form of an API server's address."""

import pytest

from claimd.kubernetes.kube.client_config import ClientConfig, Credential
from claimd.kubernetes.kube.credentials import StaticToken


@pytest.mark.parametrize(
    ("fields", "authority", "address"),
    [
        ({"host": "h", "port": 6443}, "h:6443", "https://h:6443"),
        ({"host": "h", "port": 80, "secure": False}, "h:80", "http://h:80"),
        ({"host": "fd00::1", "port": 443}, "[fd00::1]:443", "https://[fd00::1]:443"),
        ({"host": "h", "port": 1, "prefix": "/k8s/c"}, "h:1", "https://h:1/…"),
    ],
)
def test_addresses(fields: dict[str, object], authority: str, address: str) -> None:
    config = ClientConfig(credentials=StaticToken(), **fields)  # type: ignore[arg-type]
    assert (config.authority, config.address) == (authority, address)


def test_secrets_do_not_show() -> None:
    for field in ("token", "key"):
        credential = Credential(**{field: "s3cret"}, certificate="c")
        assert "s3cret" not in repr(credential)
        assert "certificate='c'" in repr(credential)


def test_the_defaults_are_the_safe_side() -> None:
    config = ClientConfig(host="h", port=1, credentials=StaticToken())
    assert (config.secure, config.verify) == (True, True)
