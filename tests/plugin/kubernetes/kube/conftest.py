"""Fixtures: certificates made by openssl, and clients of the test's API server."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from claimd.kubernetes.kube import client, client_config, credentials
from tests.support import apiserver


@dataclass(frozen=True)
class Pki:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    other_ca: Path


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


def authority(folder: Path, name: str) -> Path:
    path = folder / f"{name}.crt"
    run(
        *("openssl", "req", "-x509", "-days", "2", *NEW_KEY),
        *("-subj", f"/CN={name}", "-keyout", path.with_suffix(".key"), "-out", path),
    )
    return path


def trusting(ca: Path) -> ssl.SSLContext:
    """Returns a client's context that trusts `ca`.

    Python's default context demands more of an authority from 3.13 on.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context


def sign(folder: Path, ca: Path, name: str, names: str) -> Path:
    path = folder / f"{name}.crt"
    request, extensions = path.with_suffix(".csr"), path.with_suffix(".ext")
    extensions.write_text(f"subjectAltName={names}\n")
    run(
        *("openssl", "req", *NEW_KEY),
        *("-subj", f"/CN={name}", "-keyout", path.with_suffix(".key"), "-out", request),
    )
    run(
        *(
            "openssl",
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            request,
            "-CA",
            ca,
            "-CAkey",
            ca.with_suffix(".key"),
        ),
        *("-CAcreateserial", "-extfile", extensions, "-out", path),
    )
    return path


def server_context(certificate: object, key: object, clients: object = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate), str(key))
    if clients:
        context.load_verify_locations(str(clients))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("pki")
    ca, other = authority(folder, "ca"), authority(folder, "other")
    server = sign(folder, ca, "server", "DNS:kubernetes.test,IP:127.0.0.1")
    person = sign(folder, ca, "person", "DNS:person")
    return Pki(ca, server, server.with_suffix(".key"), person, person.with_suffix(".key"), other)


Connect = Callable[..., client.Client]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Yields a function that makes a client for a URL. All clients are closed at the end."""
    clients: list[client.Client] = []

    def make(url: str, limit: int = 8, **more: object) -> client.Client:
        parts = urlsplit(url)
        more.setdefault("credentials", credentials.StaticToken())
        config = client_config.ClientConfig(
            host=parts.hostname, port=parts.port, secure=parts.scheme == "https", **more
        )
        clients.append(client.Client(config, agent="test", limit=limit))
        return clients[-1]

    yield make
    for each in clients:
        await each.close()


@pytest.fixture
async def api() -> AsyncIterator[apiserver.ApiServer]:
    async with apiserver.serve() as server:
        yield server
