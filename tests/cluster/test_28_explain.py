"""Line 28: `claimd explain` says why a pod does not run that the scheduler has placed.

If EXPLAINED_IN is set, it names a file that gets each answer together with `kubectl describe`.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import ROOT
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, devices, pod, template

Situation = Callable[[str], list[Object]]


def alone(**container: Any) -> Situation:
    """Builds a pod without a claim. `container` replaces fields of its container."""

    def objects(node: str) -> list[Object]:
        pod_ = pod("stuck", node)
        pod_["spec"]["containers"][0] |= container
        return [pod_]

    return objects


def with_spec(**spec: Any) -> Situation:
    """Builds a pod with these fields in its spec."""

    def objects(node: str) -> list[Object]:
        pod_ = pod("stuck", node)
        pod_["spec"] |= spec
        return [pod_]

    return objects


def with_volume(**source: Any) -> Situation:
    """Builds a pod whose container mounts a volume."""

    def objects(node: str) -> list[Object]:
        [pod_] = with_spec(volumes=[{"name": "data", **source}])(node)
        pod_["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        return [pod_]

    return objects


def with_init(command: str) -> Situation:
    """Builds a pod with an init container."""
    script = ["sh", "-c", command]
    init = {"name": "load", "image": "busybox", "imagePullPolicy": "IfNotPresent"}
    return with_spec(initContainers=[init | {"command": script}])


def sh(script: str) -> Situation:
    return alone(command=["sh", "-c", script])


def with_refused_claim(node: str) -> list[Object]:
    """Builds a claim with a variable that only a class may set, which admission cannot refuse."""
    parameters = {
        "apiVersion": "claimd.dev/v1alpha1",
        "kind": "GpuConfig",
        "environment": {"LD_PRELOAD": "/x.so"},
    }
    opaque = {"driver": "gpu.claimd.dev", "parameters": parameters}
    refused = claim("gpu", devices(config=[{"opaque": opaque}]))
    return [refused, pod("stuck", node, {"gpu": "gpu"})]


def with_quota(node: str) -> list[Object]:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "0"}},
    }
    return [quota, template("gpu"), pod("stuck", node, {"gpu": "=gpu"})]


def on_node_by_name(node: str) -> list[Object]:
    """Builds a pod with a nodeName, which the scheduler does not place."""
    pod_ = pod("stuck", node)
    pod_["spec"]["nodeName"] = node
    pod_["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4000"}}
    return [pod_]


MISSING = {"name": "settings"}
# The pods that do not run, and a part of the answer's first line.
SITUATIONS: dict[str, tuple[Situation, str]] = {
    "an image that does not exist": (
        alone(image="localhost:9/none:1"),
        "container main does not start: ",
    ),
    "an image that may not be pulled": (
        alone(image="localhost/none:1", imagePullPolicy="Never"),
        'image "localhost/none:1" is not present',
    ),
    "an image name that is wrong": (alone(image="UPPER//CASE"), "must be lowercase"),
    "a ConfigMap for variables": (
        alone(envFrom=[{"configMapRef": MISSING}]),
        'configmap "settings" not found',
    ),
    "a Secret for variables": (
        alone(envFrom=[{"secretRef": MISSING}]),
        'secret "settings" not found',
    ),
    "a key of a Secret": (
        alone(env=[{"name": "A", "valueFrom": {"secretKeyRef": MISSING | {"key": "a"}}}]),
        'secret "settings" not found',
    ),
    "a ConfigMap for a volume": (with_volume(configMap=MISSING), 'configmap "settings" not found'),
    "a Secret for a volume": (
        with_volume(secret={"secretName": "settings"}),
        'secret "settings" not found',
    ),
    "a folder of the node": (
        with_volume(hostPath={"path": "/does/not/exist", "type": "Directory"}),
        'path "/does/not/exist" does not exist',
    ),
    "a program that does not exist": (alone(command=["/no/program"]), "/no/program"),
    "a program that ends with an error": (sh("exit 3"), "exit code 3"),
    "an image of root where root is forbidden": (
        alone(securityContext={"runAsNonRoot": True}),
        "runAsNonRoot",
    ),
    "an init container that fails": (with_init("exit 4"), "exit code 4"),
    "an init container that takes long": (
        with_init("sleep 600"),
        "init container load is still running",
    ),
    "a probe that fails": (
        alone(readinessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1}),
        "Readiness probe failed",
    ),
    "a configuration that claimd refuses": (with_refused_claim, "LD_PRELOAD"),
    "a quota": (with_quota, "exceeded quota: gpus"),
    "a node that is too small": (on_node_by_name, "OutOfcpu"),
    "a deadline": (
        with_spec(activeDeadlineSeconds=1, restartPolicy="Never"),
        "DeadlineExceeded",
    ),
    "a task that has failed": (
        lambda node: [
            document | {"spec": document["spec"] | {"restartPolicy": "Never"}}
            for document in sh("exit 5")(node)
        ],
        "exit code 5",
    ),
    "nothing": (alone(), "it runs on node"),
}


def explain(ns: Kubectl) -> str:
    command = [
        sys.executable,
        "-m",
        "claimd",
        "explain",
        "pod/stuck",
        f"--namespace={ns.namespace}",
    ]
    done = subprocess.run(
        [*command, f"--kubeconfig={ns.kubeconfig}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'plugin'}:{ROOT / 'devices'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.fixture
def ns(kube: Kubectl) -> Iterator[Kubectl]:
    """Makes a namespace with a short name, because the first line of the answer must stay short."""
    name = f"team-{secrets.token_hex(2)}"
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    inside = kube.within(name)
    wait_for("the default service account", lambda: inside.find("serviceaccount", "default"))
    yield inside
    inside("delete", "pods", "--all", seconds=180)
    kube.delete("namespace", name, wait=False)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_cause_is_in_the_first_line(ns: Kubectl, driver: Driver, situation: str) -> None:
    objects, cause = SITUATIONS[situation]
    ns.create(*objects(driver.node))

    def first_line() -> str:
        line, *_ = explain(ns).splitlines()
        assert cause in line, line
        return line

    line = wait_for(f"{cause!r} in the answer", first_line, seconds=90, every=1)
    assert line.startswith(f"pod {ns.namespace}/stuck: ")
    if place := os.environ.get("EXPLAINED_IN"):
        _, _, status = ns("describe", "pod", "stuck").partition("\nStatus:")
        with Path(place).open("a") as file:
            file.write(f"## {situation}\n\n{line}\n\n```\nStatus:{status}```\n\n")
