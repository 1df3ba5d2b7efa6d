"""TLS contexts: from which files, and when they are made anew."""

import logging
import ssl
from pathlib import Path

import pytest

from plugin import errors
from plugin.kube import tls
from plugin.kube.client_config import ClientConfig, Credential
from plugin.kube.credentials import StaticToken

NOBODY = Credential()


def config(**more: object) -> ClientConfig:
    return ClientConfig(host="h", port=1, credentials=StaticToken(), **more)  # type: ignore[arg-type]


def authorities(context: ssl.SSLContext | None) -> int:
    assert context is not None
    return len(context.get_ca_certs())


def test_plain_http_needs_none() -> None:
    contexts = tls.TlsContexts(config(secure=False, ca="rubbish"))
    assert contexts.context(NOBODY) is None


def test_without_an_authority_the_system_is_trusted() -> None:
    context = tls.TlsContexts(config()).context(NOBODY)
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_nothing_is_verified_only_if_it_is_said(pki) -> None:
    context = tls.TlsContexts(config(ca=pki.ca, verify=False)).context(NOBODY)
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


def test_a_context_is_kept_until_a_file_changes(pki, tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    ca.write_bytes(pki.ca.read_bytes())
    contexts = tls.TlsContexts(config(ca=ca))
    first = contexts.context(NOBODY)
    assert authorities(first) == 1
    assert contexts.context(NOBODY) is first
    ca.write_bytes(pki.ca.read_bytes() + pki.other_ca.read_bytes())
    assert authorities(contexts.context(NOBODY)) == 2


@pytest.mark.parametrize("trouble", ["half a file", "no file"])
def test_the_context_from_before_is_better_than_none(pki, tmp_path: Path, caplog, trouble) -> None:
    ca = tmp_path / "ca"
    ca.write_bytes(pki.ca.read_bytes())
    contexts = tls.TlsContexts(config(ca=ca))
    first = contexts.context(NOBODY)
    with caplog.at_level(logging.WARNING):
        if trouble == "no file":
            ca.unlink()
        else:
            ca.write_text("-----BEGIN")
        assert contexts.context(NOBODY) is first
        assert contexts.context(NOBODY) is first
    assert len(caplog.records) == 1, "once for each change"
    ca.write_bytes(pki.other_ca.read_bytes())
    assert contexts.context(NOBODY) is not first


def test_a_credential_may_bring_a_certificate(pki) -> None:
    contexts = tls.TlsContexts(config(ca=pki.ca, certificate=pki.other_ca, key=pki.other_ca))
    brought = Credential(certificate=pki.client.read_text(), key=pki.client_key.read_text())
    first = contexts.context(brought)
    assert first is not None
    assert contexts.context(brought) is first
    other = Credential(certificate=pki.server.read_text(), key=pki.server_key.read_text())
    assert contexts.context(other) is not first


def test_a_key_of_another_certificate_is_found_at_the_start(pki) -> None:
    with pytest.raises(errors.UsageError) as raised:
        tls.check(config(ca=pki.ca.read_text(), certificate=pki.client, key=pki.server_key))
    message = str(raised.value)
    assert message.startswith("the certificates for https://h:1 cannot be used: ")
    assert f"authority inline, client certificate {pki.client}, key {pki.server_key}" in message
    tls.check(config(ca=pki.ca, certificate=pki.client, key=pki.client_key))
    tls.check(config(secure=False))


def test_what_was_not_given_is_called_none(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="client certificate none, key none"):
        tls.check(config(ca=tmp_path / "none"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file", "/ca"), "/ca: No such file"),
        (OSError(5, "it fails"), "[Errno 5] it fails"),
        (ValueError("no PEM"), "no PEM"),
    ],
)
def test_why_certificates_cannot_be_used(error: Exception, said: str) -> None:
    assert tls.reason(error) == said
