"""Tests of TLS contexts, which follow their files, and of the resumption of TLS sessions."""

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path

import pytest

from claimd.common import errors
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import tls
from claimd.kubernetes.kube.client_config import ClientConfig, Credential
from claimd.kubernetes.kube.credentials import StaticToken
from tests.plugin.kubernetes.kube.conftest import Connect, server_context
from tests.support import apiserver

NOBODY = Credential()
NODE = "/api/v1/nodes/n"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


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


def test_verification_can_be_turned_off(pki) -> None:
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
def test_the_earlier_context_is_used_if_the_files_are_damaged(
    pki, tmp_path: Path, caplog, trouble
) -> None:
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


def test_missing_files_are_called_none(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="client certificate none, key none"):
        tls.check(config(ca=tmp_path / "none"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file", "/ca"), "/ca: No such file"),
        (OSError(5, "it fails"), "[Errno 5] it fails"),
        (ValueError("no PEM"), "no PEM"),
    ],
)
def test_why_certificates_cannot_be_used(error: Exception, text: str) -> None:
    assert tls.reason(error) == text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_second_connection_resumes_the_session_of_the_first(
    pki, connect: Connect, version: ssl.TLSVersion
) -> None:
    context = server_context(pki.server, pki.server_key)
    context.maximum_version = context.minimum_version = version
    async with apiserver.serve(context) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca)
        await kube.request("GET", NODE)
        assert context.session_stats()["hits"] == 0
        for again in (1, 2, 3):  # a watch, a connection in place of one that was cut, and a third
            if again == 1:
                api.silent_watches = True
                async with contextlib.aclosing(
                    kube.lines(SLICES, {"watch": "true"}, idle=0.1)
                ) as lines:
                    with pytest.raises(kube_errors.Unreachable, match="silent"):
                        await anext(lines)
            else:
                await api.cut()
                await kube.request("GET", NODE)
            assert context.session_stats()["hits"] == again
        await kube.close()


async def test_a_server_that_has_forgotten_the_session(pki, connect: Connect) -> None:
    """A server that was restarted does a full handshake."""
    async with apiserver.serve(server_context(pki.server, pki.server_key)) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca)
        await kube.request("GET", NODE)
        await api.stop()
        api.tls = server_context(pki.server, pki.server_key)
        await api.start()
        assert kube._tls.session is not None, "which it is shown"
        await kube.request("GET", NODE)
        assert api.tls.session_stats()["hits"] == 0
        await kube.close()


async def test_now_and_then_the_server_shows_its_certificate_again(
    pki, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise sessions could be resumed without end, even after the certificate has expired."""
    context = server_context(pki.server, pki.server_key)
    async with apiserver.serve(context) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca)
        hits = []
        for hour in (3600.0, 3600.0, 0.0, 3600.0):
            monkeypatch.setattr(tls, "SESSION_SECONDS", hour)
            await kube.request("GET", NODE)
            hits.append(context.session_stats()["hits"])
            await api.cut()
        assert hits == [0, 1, 1, 2]
        await kube.close()


@pytest.mark.parametrize(("listens", "hits"), [(True, 0), (False, 1)])
async def test_after_a_failed_handshake_the_next_one_uses_no_session(
    pki, connect: Connect, listens: bool, hits: int
) -> None:
    """A server that refused the connection is no reason to forget the session."""
    context = server_context(pki.server, pki.server_key)
    async with apiserver.serve(context) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca)
        await kube.request("GET", NODE)
        await api.stop()
        async with contextlib.AsyncExitStack() as stack:
            if listens:
                hangs_up = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", api.port)
                await stack.enter_async_context(hangs_up)
            with pytest.raises(kube_errors.Unreachable):
                await kube.request("GET", NODE)
        await api.start()
        await kube.request("GET", NODE)
        assert context.session_stats()["hits"] == hits
        await kube.close()


@contextlib.asynccontextmanager
async def serve_client_certificate(pki, connect: Connect, certificate: Path):
    """Yields a server that asks for a certificate, and a client that reads it from a file."""
    certificate.write_bytes(pki.client.read_bytes())
    async with apiserver.serve(server_context(pki.server, pki.server_key, clients=pki.ca)) as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        kube = connect(api.url, ca=pki.ca, certificate=certificate, key=pki.client_key)
        yield api, kube
        await kube.close()


async def test_a_session_of_an_older_context_is_not_kept(pki, connect: Connect, tmp_path) -> None:
    """The connection is older than the change of our certificate, its response is newer."""
    certificate = tmp_path / "tls.crt"
    async with serve_client_certificate(pki, connect, certificate) as (api, kube):
        api.gate.clear()
        slow = asyncio.create_task(kube.request("GET", NODE))
        await apiserver.until(lambda: len(api.requests) == 1)
        certificate.write_bytes(pki.client.read_bytes() + b"\n")
        kube._tls.context(Credential())
        api.gate.set()
        await slow
        await api.cut()
        await kube.request("GET", NODE)
        assert api.tls.session_stats()["hits"] == 0


async def test_another_certificate_of_ours_needs_a_full_handshake(
    pki, connect: Connect, tmp_path
) -> None:
    """A session carries the identity of the certificate with which it began."""
    certificate = tmp_path / "tls.crt"
    async with serve_client_certificate(pki, connect, certificate) as (api, kube):
        await kube.request("GET", NODE)
        for hits in (1, 1):
            await api.cut()
            await kube.request("GET", NODE)
            assert api.tls.session_stats()["hits"] == hits
            certificate.write_bytes(pki.client.read_bytes() + b"\n")
