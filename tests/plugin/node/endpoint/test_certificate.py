"""The certificate that is served, as its files come, change and are spoilt."""

import os
import shutil
import ssl

import pytest

from claimd.node.endpoint import certificate as serving_certificate
from tests.plugin.kubernetes.kube import conftest as pki


@pytest.fixture(scope="module")
def pki_folder(tmp_path_factory):
    """A folder with two certificates of one authority, as NAME.crt and NAME.key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("pki")
    ca = pki.authority(folder, "ca")
    for name in ("one", "two"):
        pki.sign(folder, ca, name, f"DNS:{name}.test")
    return folder


@pytest.fixture
def mounted(pki_folder, tmp_path):
    """Puts a certificate where a Secret is mounted, all at once as a kubelet does it."""

    def put(certificate, key=None):
        version = tmp_path / f"..{len(list(tmp_path.iterdir()))}"
        version.mkdir()
        shutil.copy(pki_folder / f"{certificate}.crt", version / "tls.crt")
        shutil.copy(pki_folder / f"{key or certificate}.key", version / "tls.key")
        link = tmp_path / "..new"
        link.symlink_to(version.name)
        link.rename(tmp_path / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (tmp_path / name).is_symlink():
                (tmp_path / name).symlink_to(f"..data/{name}")

    serving = serving_certificate.ServingCertificate(tmp_path)
    serving.put = put
    return serving


def served_name(certificate, pki_folder):
    """The name in the certificate that a client is shown, who trusts the authority."""
    client = pki.trusting(pki_folder / "ca.crt")
    client.check_hostname = False
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificate.context().wrap_bio(theirs, ours, server_side=True)
    asking = client.wrap_bio(ours, theirs)
    for _ in range(10):
        for side in (asking, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ((_, name),) = asking.getpeercert()["subjectAltName"]
    return name


def test_a_new_certificate_is_served_without_a_restart(pki_folder, mounted, monkeypatch, caplog):
    monkeypatch.setattr(serving_certificate, "LOOK_INTERVAL", 0.0)
    assert mounted.context() is None, "a Secret may come after us"
    mounted.put("one")
    assert served_name(mounted, pki_folder) == "one.test"
    before = mounted.context()
    assert mounted.context() is before, "a context is made after a change alone"
    mounted.put("two")
    assert served_name(mounted, pki_folder) == "two.test"
    [record] = caplog.records
    assert "not served: " in record.getMessage()
    assert "No such file" in record.getMessage()


def test_what_cannot_be_used_leaves_the_one_from_before(pki_folder, mounted, monkeypatch, caplog):
    monkeypatch.setattr(serving_certificate, "LOOK_INTERVAL", 0.0)
    mounted.put("one")
    assert served_name(mounted, pki_folder) == "one.test"
    mounted.put("two", key="one")
    for _ in range(5):
        assert served_name(mounted, pki_folder) == "one.test"
    [record] = caplog.records
    assert "serving with the certificate from before: " in record.getMessage()
    mounted.put("two")
    assert served_name(mounted, pki_folder) == "two.test"


def test_a_key_with_a_password_does_not_ask_for_it(pki_folder, mounted, tmp_path, caplog):
    mounted.put("one")
    key = (tmp_path / "tls.key").resolve()
    locked = ("-aes256", "-passout", "pass:secret")
    pki.run("openssl", "pkey", "-in", key, *locked, "-out", f"{key}.locked")
    os.replace(f"{key}.locked", key)
    assert mounted.context() is None
    assert "without a password" in caplog.text


def test_many_who_connect_do_not_mean_many_looks(mounted):
    assert mounted.context() is None
    mounted.put("one")
    assert mounted.context() is None, "the last look was less than a second ago"


def test_nothing_is_resumed_or_renegotiated(mounted):
    mounted.put("one")
    context, off = mounted.context(), ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    assert context.options & off == off
    assert context.num_tickets == 0
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
