"""The fixtures of the cluster suite: the cluster, a namespace per test, the driver, and the rig.

`python -m tests.cluster` starts a cluster with claimd and runs the suite. On another cluster that
has claimd, set KUBECONFIG and run pytest.
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
        pytest.skip("there is no cluster; set KUBECONFIG, or run `python -m tests.cluster`")
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
    """Returns kubectl for a new namespace. Its pods and claims are deleted after the test."""
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
    """Returns a function that waits until all containers of a pod are ready, and returns the pod.

    It waits long enough for a second try of the kubelet, which comes 60 to 90 s after the first. On
    a busy machine the first try may fail, because the API server's authorizer does not know about
    the pod's claim yet.
    """

    def wait(name: str, seconds: float = 110) -> Object:
        def look() -> Object:
            pod = ns.get("pod", name)
            assert is_ready(pod), phase(pod)
            return pod

        return wait_for(f"pod {name} to run", look, seconds)

    return wait


class Rig:
    """Runs the rig's command line, and fails the test if the command fails."""

    def __call__(self, *words: str) -> str:
        command = [sys.executable, "-m", "tests.cluster.rig", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"rig {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def rig(kube: Kubectl) -> Rig:
    if kube.kubeconfig != places.STATE / "admin.kubeconfig":
        pytest.skip("this test needs the rig, because it stops parts of the cluster")
    return Rig()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds pods, claims, slices, Events and claimd's logs to the report of a failed test."""
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
