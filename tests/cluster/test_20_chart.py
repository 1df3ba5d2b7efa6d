"""Line 20: the Helm chart by the steps of docs/install.md.

The tests move from kustomize to the chart, upgrade, roll back, remove and install again. Pods with
GPUs keep running, and new pods get their GPUs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import driver as drivers
from tests.cluster.__main__ import OVERLAY
from tests.cluster.conftest import ROOT, Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given, is_ready, nodes
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod
from tests.cluster.rig import build
from tests.cluster.rig.places import IMAGE

REPOSITORY, TAG = IMAGE.rsplit(":", 1)
# The settings of tests/cluster/overlay as values. One setting is left out, so that the chart must
# remove it.
VALUES = {
    "image": {"repository": REPOSITORY, "tag": TAG, "pullPolicy": "Never"},
    "components": ["fake"],
    "settings": {"taint-failed": "NoExecute"},
    "hostNetwork": True,
}

RULE = "verbs: [own]"
LATER_RULE = "verbs: [own, later]"


class Helm:
    """Runs Helm as a person does, from the repository's root, and returns what it prints."""

    def __init__(self, kube: Kubectl, values: Path) -> None:
        self._program = build.helm()
        self._options = (f"--kubeconfig={kube.kubeconfig}", f"--namespace={drivers.NAMESPACE}")
        self._values = values

    def __call__(self, verb: str, *words: str) -> str:
        command = [str(self._program), verb, *words, *self._options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"helm {verb} {' '.join(words)}: {done.stderr}"
        return done.stdout

    def put(self, verb: str, *words: str, chart: str = "deploy/chart") -> str:
        """Installs or upgrades the chart and waits until its pods are ready."""
        values = f"--values={self._values}"
        return self(verb, "claimd", chart, values, "--wait", "--timeout=240s", *words)

    def releases(self) -> list[str]:
        return [release["name"] for release in json.loads(self("list", "--output=json"))]


@pytest.fixture(scope="module")
def helm(
    kube: Kubectl, driver: Driver, rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Helm]:
    """Returns Helm, and applies the suite's own overlay again after the last test."""
    if not shutil.which("go"):
        pytest.skip("no Go, with which Helm is built")
    values = tmp_path_factory.mktemp("chart") / "values.json"
    values.write_text(json.dumps(VALUES))
    program = Helm(kube, values)
    yield program
    if "claimd" in program.releases():
        program("uninstall", "claimd", "--wait")
    driver.kube("apply", "--server-side", "--force-conflicts", f"--kustomize={ROOT / OVERLAY}")
    settle(driver)


def settle(driver: Driver) -> None:
    driver.kube("rollout", "status", "daemonset/claimd", "--timeout=240s")
    wait_for("one pod of claimd", lambda: [is_ready(each) for each in driver.pods()] == [True], 60)


def start(ns: Kubectl, driver: Driver, running: Running, name: str) -> Object:
    ns.create(claim(name), pod(name, driver.node, {"gpu": name}))
    started = running(name)
    assert len(given(ns, name)) == 1
    return started


def has(ns: Kubectl, name: str) -> tuple[object, ...]:
    """Returns what must not change for a pod with a GPU."""
    pod = ns.get("pod", name)
    restarts = [status["restartCount"] for status in pod["status"]["containerStatuses"]]
    return pod["metadata"]["uid"], restarts, given(ns, name), nodes(ns, name)


def settings(driver: Driver) -> dict[str, str]:
    containers = driver.pod()["spec"]["containers"]
    return {variable["name"]: variable.get("value") for variable in containers[0]["env"]}


def published(driver: Driver) -> list[tuple[str, str]]:
    return [(each["metadata"]["name"], each["metadata"]["uid"]) for each in driver.slices()]


@pytest.fixture
def later_chart(tmp_path: Path) -> str:
    """Copies the chart and adds a rule to the ClusterRole, as a later release may."""
    chart = tmp_path / "chart"
    shutil.copytree(ROOT / "deploy/chart", chart)
    roles = chart / "base/rbac.yaml"
    assert roles.read_text().count(RULE) == 1
    roles.write_text(roles.read_text().replace(RULE, LATER_RULE))
    return str(chart)


def has_later_rule(driver: Driver) -> bool:
    rules = driver.kube.get("clusterrole", "claimd")["rules"]
    return any(rule["verbs"] == ["own", "later"] for rule in rules)


def install_by_kustomize(driver: Driver) -> None:
    """Installs claimd on the client's side, as docs/install.md does."""
    overlay = f"--kustomize={ROOT / OVERLAY}"
    driver.kube("delete", "--wait", overlay)
    driver.kube("apply", overlay)
    settle(driver)


def test_from_kustomize_to_the_chart_and_through_upgrades(
    ns: Kubectl, driver: Driver, helm: Helm, running: Running, later_chart: str
) -> None:
    assert helm.releases() == []
    install_by_kustomize(driver)
    start(ns, driver, running, "by-kustomize")
    kept, slices = has(ns, "by-kustomize"), published(driver)
    assert "CLAIMD_ABSENT_GRACE" in settings(driver)

    # Helm becomes the manager of the fields that kubectl wrote. Otherwise each later change of them
    # would be a conflict.
    take = ("--server-side", "--force-conflicts", "--field-manager=helm")
    driver.kube("apply", *take, f"--kustomize={ROOT / OVERLAY}")

    # The release adopts the objects of kustomize. The new DaemonSet adopts the old one's pods, which
    # are up to date for it, because both DaemonSets are in their first generation.
    driver.kube("delete", "daemonset", "claimd", "--cascade=orphan")
    told = helm.put("install", "--take-ownership", "--force-conflicts")
    driver.kube("rollout", "restart", "daemonset/claimd")
    settle(driver)
    assert "serves the driver gpu.claimd.dev in the namespace claimd-system" in told
    assert (has(ns, "by-kustomize"), published(driver)) == (kept, slices)
    assert "CLAIMD_ABSENT_GRACE" not in settings(driver)
    labels = driver.kube.get("daemonset", "claimd")["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "Helm"

    # Under the first revision of the release, one pod ends and another one starts.
    ns.delete("pod", "by-kustomize")
    ns.delete("resourceclaim", "by-kustomize")
    start(ns, driver, running, "by-helm")
    kept = has(ns, "by-helm")

    helm.put("upgrade", "--set=settings.log-level=debug", "--set=components={fake,nvidia}")
    settle(driver)
    assert settings(driver)["CLAIMD_LOG_LEVEL"] == "debug"
    assert settings(driver)["CLAIMD_HOST_ROOT"] == "/host"
    assert (has(ns, "by-helm"), published(driver)) == (kept, slices)
    start(ns, driver, running, "while-upgraded")

    helm.put("upgrade", chart=later_chart)
    settle(driver)
    assert has_later_rule(driver)
    helm("rollback", "claimd", "1", "--wait", "--timeout=240s")
    settle(driver)
    assert not has_later_rule(driver)
    assert not {"CLAIMD_LOG_LEVEL", "CLAIMD_HOST_ROOT"} & set(settings(driver))
    assert (has(ns, "by-helm"), published(driver)) == (kept, slices)
    start(ns, driver, running, "rolled-back")


def test_what_the_api_server_has_is_what_the_chart_says(helm: Helm, driver: Driver) -> None:
    if "claimd" not in helm.releases():
        helm.put("install")
        settle(driver)
    manifest = helm("get", "manifest", "claimd")
    changes = driver.kube("diff", "--server-side", "--force-conflicts", "-f", "-", text=manifest)
    assert changes == ""


def test_removed_and_installed_again(
    kube: Kubectl, ns: Kubectl, driver: Driver, helm: Helm, running: Running
) -> None:
    if "claimd" not in helm.releases():
        helm.put("install")
    settle(driver)
    start(ns, driver, running, "last")
    ns.delete("pod", "last")
    wait_for("its claim to be given back", lambda: driver.cdi_files() == [])

    helm("uninstall", "claimd", "--wait")
    kinds = (
        "daemonsets,serviceaccounts,clusterroles,clusterrolebindings,deviceclasses,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    label = "--selector=app.kubernetes.io/name=claimd"
    assert kube.within(drivers.NAMESPACE).list(kinds, label) == []
    # The kubelet deletes the slices half a minute after the driver has gone.
    wait_for("the slices to go", lambda: driver.slices() == [], 90)

    helm.put("install")
    settle(driver)
    start(ns, driver, running, "again")
