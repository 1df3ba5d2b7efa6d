"""The fixtures of the cluster suite: the cluster, a namespace for each test, the driver, and the
rig where there is one. `python -m tests.cluster` sets all of it up; KUBECONFIG alone is enough for
a cluster that has claimd.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster import driver as drivers
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, is_ready, phase
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.rig import places

ROOT = Path(__file__).resolve().parents[2]

Running = Callable[..., Object]


@pytest.fixture(scope="session")
def kube() -> Kubectl:
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not kubeconfig:
        pytest.skip("no cluster: set KUBECONFIG, or say `python -m tests.cluster`")
    return Kubectl(kubeconfig=Path(kubeconfig))


@pytest.fixture(scope="session")
def driver(kube: Kubectl) -> Driver:
    """Returns the driver on one node that has it. All pods of the suite go there."""
    there = kube.within(drivers.NAMESPACE)
    pods = wait_for(
        "a claimd pod that is ready",
        lambda: [p for p in there.list("pods", f"--selector={drivers.SELECTOR}") if is_ready(p)],
        seconds=90,
    )
    return Driver(kube=there, node=pods[0]["spec"]["nodeName"])


@pytest.fixture
def ns(kube: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own. Pods and claims are gone before the next test
    begins.
    """
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{words[:40].strip('-')}-{secrets.token_hex(3)}"
    labels = {"resource.kubernetes.io/admin-access": "true"} if "admin" in name else {}
    kube.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    inside = kube.within(name)
    wait_for("the default service account", lambda: inside.find("serviceaccount", "default"))
    yield inside
    inside("delete", "pods", "--all", seconds=180)
    inside("delete", "resourceclaims", "--all", seconds=60)
    kube.delete("namespace", name, wait=False)


@pytest.fixture
def running(ns: Kubectl) -> Running:
    """Waits until a pod runs, all its containers ready, and gives it back. Long enough for one more
    try of the kubelet (60 to 90 s): on a busy machine its first may come before the API server's
    authorizer knows of the pod's claim.
    """

    def wait(name: str, seconds: float = 110) -> Object:
        def look() -> Object:
            pod = ns.get("pod", name)
            assert is_ready(pod), phase(pod)
            return pod

        return wait_for(f"pod {name} to run", look, seconds)

    return wait


class Rig:
    """The rig's verbs, as they are called by hand."""

    def __call__(self, *words: str) -> str:
        command = [sys.executable, "-m", "tests.cluster.rig", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"rig {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def rig(kube: Kubectl) -> Rig:
    if kube.kubeconfig != places.STATE / "admin.kubeconfig":
        pytest.skip("needs the rig: it stops parts of the cluster")
    return Rig()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of a failed test what a person would look at first."""
    report = yield
    kubeconfig = os.environ.get("KUBECONFIG")
    if (
        report.when == "call"
        and report.failed
        and kubeconfig
        and "kube" in getattr(item, "fixturenames", ())
    ):
        report.sections.append(("the cluster", _look_around(Kubectl(kubeconfig=Path(kubeconfig)))))
    return report


def _look_around(kube: Kubectl) -> str:
    driver = kube.within(drivers.NAMESPACE)
    looks = [
        (kube, "get pods --all-namespaces --output=wide"),
        (kube, "get resourceclaims,resourceslices --all-namespaces"),
        (kube, "get events --all-namespaces --sort-by=.lastTimestamp"),
        (driver, f"logs --selector={drivers.SELECTOR} --all-containers --tail=40 --prefix"),
    ]
    told = []
    for who, words in looks:
        try:
            told += [f"$ kubectl {words}", *who(*words.split()).splitlines()[-40:]]
        except KubectlError as error:
            told.append(str(error))
    return "\n".join(told)
