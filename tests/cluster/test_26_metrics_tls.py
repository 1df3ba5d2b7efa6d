"""Line 26: the component metrics-tls serves metrics over TLS, to scrapers that have the right."""

import concurrent.futures
import http.client
import re
import secrets
import socket
import ssl
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import driver as drivers
from tests.cluster.__main__ import OVERLAY
from tests.cluster.conftest import ROOT, Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl
from tests.cluster.objects import claim, pod
from tests.cluster.test_16_components import apply, kustomization, wait_for_one_pod

NAME = "claimd-metrics.claimd-system.svc"
READER = "claimd-metrics-reader"


@pytest.fixture(scope="module")
def certificate(kube: Kubectl, driver: Driver, rig: Rig) -> Iterator[Path]:
    """Deploys claimd with the component, and returns a copy of its certificate in a folder."""
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
    """Returns status and body that curl gets on this machine, which shares the pod's network."""
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


# ---------------------------------------------------------------- a flood of wrong tokens

WRONG_TOKENS = 500
# The number of groups of addresses, and claimd's limits of TokenReviews per group: the reviews at
# once, and those per second.
GROUPS, BURST, RATE = 16, 3, 0.2


class _Connection(http.client.HTTPSConnection):
    """A connection from a loopback address, which checks the certificate's name."""

    def __init__(self, source: str, certificate: Path) -> None:
        self._tls = ssl.create_default_context(cafile=str(certificate))
        self._source = source
        super().__init__(NAME, 8082, timeout=60)

    def connect(self) -> None:
        dialled = socket.create_connection(("127.0.0.1", 8082), 60, (self._source, 0))
        self.sock = self._tls.wrap_socket(dialled, server_hostname=NAME)


def ask_with(token: str, source: str, certificate: Path) -> int:
    """Returns the status that a scraper with this token gets, or 0 if the connection is closed."""
    connection = _Connection(source, certificate)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def reviews(kube: Kubectl) -> float:
    """Returns the number of TokenReviews that the API server has answered."""
    pattern = r'apiserver_request_total\{.*resource="tokenreviews".*verb="POST".*\} (\S+)'
    return sum(map(float, re.findall(pattern, kube("get", "--raw=/metrics"))))


def value(body: str, name: str) -> float:
    """Returns the sum of a metric over all its labels."""
    lines = [line for line in body.splitlines() if re.match(rf"{name}(\{{| )", line)]
    return sum(float(line.split()[-1]) for line in lines)


def test_a_flood_of_wrong_tokens_costs_neither_the_api_server_nor_a_scraper(
    kube: Kubectl, ns: Kubectl, driver: Driver, certificate: Path, running: Running
) -> None:
    """Checks claimd under 500 wrong tokens, from one address and from many, on a real API server."""
    ns("create", "serviceaccount", "scraper")
    token = ns("create", "token", "scraper").strip()
    kube(
        *("create", "clusterrolebinding", READER, f"--clusterrole={READER}"),
        f"--serviceaccount={ns.namespace}:scraper",
    )
    try:

        def allowed() -> str:
            code, body = scrape(certificate, token)
            assert code == "200", (code, body)
            return body

        resident = value(
            wait_for("a scrape that is allowed", allowed, 60), "process_resident_memory_bytes"
        )
        for addresses in (1, 250):
            asked_before, began = reviews(kube), time.monotonic()
            scrapes, answers = [], Counter[int]()
            sources = [f"127.0.1.{1 + number % addresses}" for number in range(WRONG_TOKENS)]
            with concurrent.futures.ThreadPoolExecutor(16) as threads:
                flood = [
                    threads.submit(ask_with, secrets.token_hex(20), source, certificate)
                    for source in sources
                ]
                if addresses == 1:
                    ns.create(claim("one"), pod("held", driver.node, {"gpu": "one"}))
                while not all(asked.done() for asked in flood):
                    begun = time.monotonic()
                    resident_now = value(allowed(), "process_resident_memory_bytes")
                    scrapes.append(time.monotonic() - begun)
                answers.update(asked.result() for asked in flood)
            seconds = time.monotonic() - began

            asked = reviews(kube) - asked_before
            groups = min(GROUPS, addresses)
            print(
                f"{WRONG_TOKENS} wrong tokens from {addresses} addresses in {seconds:.1f} s: answers "
                f"{dict(answers)}, {asked:.0f} TokenReviews, {len(scrapes)} scrapes of at most "
                f"{max(scrapes):.2f} s, memory {resident / 2**20:.1f} to {resident_now / 2**20:.1f} MiB"
            )
            # Other callers such as `kubectl exec` cause TokenReviews too.
            assert asked <= groups * (BURST + RATE * seconds) + 10
            assert set(answers) <= {0, 401, 429}
            assert max(scrapes) < 10
            assert resident_now - resident < 16 << 20

        # claimd has answered the kubelet's calls meanwhile.
        running("held")
    finally:
        kube.delete("clusterrolebinding", READER)
