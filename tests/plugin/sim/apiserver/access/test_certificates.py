"""Tests of the derived certificates, which Python's ssl verifies, and openssl if present."""

import shutil
import ssl
import subprocess

import pytest

from claimd.sim.apiserver.access import certificates
from claimd.sim.apiserver.access.p256 import ORDER, PrivateKey

HOST = "127.0.0.1"


def met(material, ca, name):
    """Returns the error of a client that trusts `ca` and connects to `name`, or ""."""
    of_client = ssl.create_default_context(cadata=ca)
    of_client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificates.context(material).wrap_bio(to_server, to_client, server_side=True)
    client = of_client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return client.version() and ""


@pytest.mark.parametrize("name", [HOST, "localhost", "kubernetes.default.svc"])
def test_a_client_that_has_the_ca_trusts_the_server(name):
    material = certificates.make(b"secret", HOST)
    assert met(material, material.ca, name) == ""


def test_who_is_not_to_be_trusted():
    material = certificates.make(b"secret", HOST)
    assert "127.0.0.2" in met(material, material.ca, "127.0.0.2")
    # A CA of the same name with another key.
    assert "issuer" in met(material, certificates.make(b"other", HOST).ca, HOST)


def test_the_same_secret_makes_the_same_certificates():
    assert certificates.make(b"secret", HOST) == certificates.make(b"secret", HOST)
    first, second = certificates.make(b"secret", HOST), certificates.make(b"secret", "127.0.0.2")
    assert first.ca == second.ca, "clients trust it at whatever address it listens"
    assert first.certificate != second.certificate


def test_a_signature_is_of_its_message_alone():
    """Verifies signatures by the equation of ECDSA."""
    key = PrivateKey(b"seed")
    signatures = {key.sign(bytes([number])) for number in range(8)}
    assert len({r for r, _ in signatures}) == 8, "a number that comes twice gives the key away"
    assert all(0 < part < ORDER for signature in signatures for part in signature)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize("number", range(4))
def test_openssl_finds_nothing_wrong(tmp_path, number):
    material = certificates.make(bytes([number]), HOST)
    (tmp_path / "ca").write_text(material.ca)
    (tmp_path / "certificate").write_text(material.certificate)
    (tmp_path / "key").write_text(material.key)
    verify = "verify -x509_strict -check_ss_sig -purpose sslserver -CAfile ca certificate"
    for words in (verify, "ec -in key -check -noout"):
        said = subprocess.run(
            ["openssl", *words.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stderr
