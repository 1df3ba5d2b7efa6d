"""Metrics over TLS, and for those alone who may: the component metrics-tls."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import driver as drivers
from tests.cluster.__main__ import OVERLAY
from tests.cluster.conftest import ROOT, Rig
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl
from tests.cluster.test_16_components import apply, kustomization, wait_for_one_pod

NAME = "claimd-metrics.claimd-system.svc"
READER = "claimd-metrics-reader"


@pytest.fixture(scope="module")
def certificate(kube: Kubectl, driver: Driver, rig: Rig) -> Iterator[Path]:
    """claimd runs with the component, and with a certificate that this folder has as well."""
    there = kube.within(drivers.NAMESPACE)
    with tempfile.TemporaryDirectory(prefix="claimd-test-") as name:
        folder = Path(name)
        make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
        words = ["-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt", "-subj", "/CN=claimd"]
        subprocess.run(
            [*make.split(), *words, "-addext", f"subjectAltName=DNS:{NAME}"],
            check=True,
            capture_output=True,
        )
        there(
            *("create", "secret", "tls", "claimd-metrics-tls"),
            *(f"--cert={folder}/tls.crt", f"--key={folder}/tls.key"),
        )
        kustomization(("metrics-tls",), folder)
        apply(kube, folder)
        wait_for_one_pod(driver)
        yield folder / "tls.crt"
        apply(kube, ROOT / OVERLAY)
        for kind in ("secret", "clusterrolebinding", "clusterrole"):
            there.delete(kind, "claimd-metrics-tls")
        there.delete("clusterrole", READER)
        wait_for_one_pod(driver)


def scrape(certificate: Path, token: str = "", scheme: str = "https") -> tuple[str, str]:
    """Status and body, as curl of this machine gets them: its network is the pod's."""
    words = ["--silent", "--cacert", certificate, "--connect-to", "::127.0.0.1"]
    words += ["--write-out", "\\n%{http_code}", f"{scheme}://{NAME}:8082/metrics"]
    if token:
        words += ["--header", f"Authorization: Bearer {token}"]
    done = subprocess.run(["curl", *words], capture_output=True, text=True, check=False)
    body, _, code = done.stdout.rpartition("\n")
    return code, body


def test_who_is_bound_to_the_role_reads_and_others_do_not(
    kube: Kubectl, ns: Kubectl, certificate: Path
) -> None:
    tokens = {}
    for account in ("allowed", "forbidden"):
        ns("create", "serviceaccount", account)
        tokens[account] = ns("create", "token", account).strip()
    kube(
        *("create", "clusterrolebinding", READER, f"--clusterrole={READER}"),
        f"--serviceaccount={ns.namespace}:allowed",
    )

    try:

        def allowed() -> str:
            code, body = scrape(certificate, tokens["allowed"])
            assert code == "200", (code, body)
            return body

        assert "claimd_build_info" in wait_for("a scrape that is allowed", allowed, 60)
        code, body = scrape(certificate, tokens["forbidden"])
        assert (code, f"{ns.namespace}:forbidden" in body) == ("403", True), body
        assert scrape(certificate, "wrong")[0] == "401"
        assert scrape(certificate)[0] == "401"
        assert scrape(certificate, scheme="http")[0] == "400"
        refused = allowed()
        assert 'claimd_scrapes_refused_total{reason="forbidden"} 1' in refused
    finally:
        kube.delete("clusterrolebinding", READER)
