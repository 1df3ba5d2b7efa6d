"""Line 17: GPUs that several claims share.

Ten pods of three namespaces share two GPUs, by memory and by count. The scheduler refuses what does
not fit. If the API server drops the fields for sharing, each GPU goes to one claim.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster import driver as drivers
from tests.cluster.__main__ import OVERLAY
from tests.cluster.conftest import ROOT, Rig
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, is_ready, phase, variables
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import DRIVER, devices, pod, request, template

# The second feature gate needs the first.
GATE = "DRAConsumableCapacity=false,DRAFractionalCapacityRange=false"
# The first release with the feature gate on by default.
SINCE = (1, 36)
# Seconds until the DaemonSet is rolled out.
ROLLOUT = 90.0
# Seconds until a pod runs, which is long enough for a second try of the kubelet.
START = 110.0
GI = 1 << 30


class Shared(NamedTuple):
    """The addresses of two shared GPUs: one is shared by memory, one by count."""

    by_memory: str
    by_count: str

    @property
    def rules(self) -> str:
        return f"{self.by_memory}=memory:4Gi:1Gi,{self.by_count}=shares:4"


def apply(kube: Kubectl, share: str) -> None:
    """Applies the suite's overlay with this setting for sharing, and waits for the rollout."""
    variable = {"name": "CLAIMD_SHARE", "value": share}
    addition = {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": variable}
    there = kube.within(drivers.NAMESPACE)
    with tempfile.TemporaryDirectory(prefix="claimd-test-") as folder:
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{os.path.relpath(ROOT, Path(folder).resolve())}/{OVERLAY}"],
            "patches": [{"target": {"kind": "DaemonSet"}, "patch": json.dumps([addition])}]
            if share
            else [],
        }
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(document))
        there("apply", "--server-side", "--force-conflicts", f"--kustomize={folder}")
    there("rollout", "status", "daemonset/claimd", f"--timeout={ROLLOUT:g}s")


def sharing(driver: Driver) -> dict[str, tuple[str, bool]]:
    """Returns the sharing attribute of each published device and whether it may be shared."""
    return {
        address: (
            device["attributes"]["sharing"]["string"],
            device.get("allowMultipleAllocations", False),
        )
        for address, device in driver.published().items()
    }


@pytest.fixture(scope="module")
def shared(kube: Kubectl, driver: Driver, rig: Rig) -> Iterator[Shared]:
    if driver.kubelet() < SINCE:
        pytest.skip(f"{driver.older_kubelet()} has DRAConsumableCapacity off by default")
    published = driver.published()
    first: dict[str, str] = {}
    for address, device in sorted(published.items()):
        first.setdefault(device["attributes"]["vendor"]["string"], address)
    chosen = Shared(first["nvidia"], first["amd"])
    apply(kube, chosen.rules)
    try:
        yield chosen
    finally:
        apply(kube, "")
        wait_for("one pod of claimd", lambda: [is_ready(p) for p in driver.pods()] == [True], 60)


@pytest.fixture
def spaces(kube: Kubectl) -> Iterator[list[Kubectl]]:
    """Makes three namespaces, and deletes them after the test."""
    word = secrets.token_hex(3)
    names = [f"sharing-{number}-{word}" for number in range(3)]
    for name in names:
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    inside = [kube.within(name) for name in names]
    for each in inside:
        wait_for(
            "the default service account",
            lambda each=each: each.find("serviceaccount", "default"),  # type: ignore[misc]
        )
    yield inside
    for each in inside:
        each("delete", "pods", "--all", seconds=180)
        each("delete", "resourceclaims", "--all", seconds=60)
        kube.delete("namespace", each.namespace, wait=False)


def at(address: str, **capacity: str) -> Object:
    """Builds a request for this capacity of the GPU at this address."""
    expression = f'device.attributes["resource.kubernetes.io"].pciBusID == "{address}"'
    more: Object = {"capacity": {"requests": capacity}} if capacity else {}
    return request(
        device_class=f"any.{DRIVER}", selectors=[{"cel": {"expression": expression}}], **more
    )


def refusal(ns: Kubectl, name: str) -> str:
    for condition in ns.get("pod", name).get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def running(ns: Kubectl, name: str) -> Object:
    def look() -> Object:
        pod_ = ns.get("pod", name)
        assert is_ready(pod_), f"{phase(pod_)} {refusal(ns, name)}"
        return pod_

    return wait_for(f"pod {name} to run", look, START)


def claim_of(ns: Kubectl, name: str) -> Object:
    [status] = ns.get("pod", name)["status"]["resourceClaimStatuses"]
    return ns.get("resourceclaim", status["resourceClaimName"])


def consumed(ns: Kubectl, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the capacity that the claim consumes, by its allocation and by claimd's report."""
    claim = claim_of(ns, name)
    [result] = claim["status"]["allocation"]["devices"]["results"]

    def reported() -> Object:
        devices_ = claim_of(ns, name)["status"].get("devices", [])
        assert devices_, "no status yet"
        [entry] = devices_
        return dict(entry)

    entry = wait_for(f"the status of the claim of {name}", reported, 30)
    assert entry["shareID"] == result["shareID"]
    scheduled = {key: value for key, value in result["consumedCapacity"].items() if value != "0"}
    return scheduled, entry["data"].get("consumedCapacity", {})


def told(ns: Kubectl, name: str, ending: str) -> list[str]:
    variables_ = variables(ns, name)
    return [
        value
        for key, value in variables_.items()
        if key.startswith("CLAIMD_GPU_") and key.endswith(ending)
    ]


def test_ten_pods_of_three_namespaces_share_two_gpus(
    spaces: list[Kubectl], shared: Shared, driver: Driver
) -> None:
    wait_for(
        "two shared GPUs",
        lambda: (
            sharing(driver)[shared.by_memory] == ("memory", True)
            and sharing(driver)[shared.by_count] == ("shares", True)
        ),
        30,
    )
    for ns in spaces:
        ns.create(
            template("memory", devices(at(shared.by_memory, memory="13Gi"))),
            template("share", devices(at(shared.by_count))),
        )
    by_memory = [(spaces[number % 3], f"m{number}") for number in range(6)]
    by_count = [(spaces[number % 3], f"s{number}") for number in range(4)]
    for ns, name in by_memory:
        ns.create(pod(name, driver.node, {"gpu": "=memory"}))
    for ns, name in by_count:
        ns.create(pod(name, driver.node, {"gpu": "=share"}))

    for ns, name in by_memory:
        running(ns, name)
        assert consumed(ns, name) == ({"memory": "13Gi"}, {"memory": "13Gi"})
        assert told(ns, name, "_MEMORY") == [str(13 * GI)]
    for ns, name in by_count:
        running(ns, name)
        assert consumed(ns, name) == ({"shares": "1"}, {"shares": "1"})
        assert told(ns, name, "_SHARES") == ["1"]

    # 78Gi of 80Gi and all four shares are in use.
    late = [(spaces[0], "late-m", "memory"), (spaces[1], "late-s", "share")]
    for ns, name, wanted in late:
        ns.create(pod(name, driver.node, {"gpu": f"={wanted}"}))
    for ns, name, _ in late:
        wait_for(
            f"the scheduler's no to {name}",
            lambda ns=ns, name=name: "cannot allocate all claims" in refusal(ns, name),  # type: ignore[misc]
            30,
        )

    # A pod that ends makes room for a pod of the same size.
    for ns, name in (by_memory[1], by_count[2]):
        ns("delete", "pod", name, seconds=60)
    for ns, name, _ in late:
        running(ns, name)


def test_who_asks_for_nothing_gets_all_of_it(
    spaces: list[Kubectl], shared: Shared, driver: Driver
) -> None:
    ns = spaces[0]
    ns.create(
        template("all", devices(at(shared.by_memory))), pod("all", driver.node, {"gpu": "=all"})
    )
    running(ns, "all")
    # This is what programs can use of 80Gi, in steps of 1Gi.
    assert consumed(ns, "all") == ({"memory": "78Gi"}, {"memory": "78Gi"})
    ns.create(
        template("least", devices(at(shared.by_memory, memory="1Gi"))),
        pod("least", driver.node, {"gpu": "=least"}),
    )
    wait_for("the scheduler's no", lambda: "cannot allocate all claims" in refusal(ns, "least"), 30)
    ns("delete", "pod", "all", seconds=60)
    running(ns, "least")
    assert consumed(ns, "least") == ({"memory": "4Gi"}, {"memory": "4Gi"}), (
        "rounded up to the least"
    )


def test_an_update_of_claimd_leaves_shares_as_they_are(
    spaces: list[Kubectl], shared: Shared, driver: Driver
) -> None:
    ns = spaces[0]
    ns.create(template("some", devices(at(shared.by_memory, memory="20Gi"))))
    for name in ("a", "b"):
        ns.create(pod(name, driver.node, {"gpu": "=some"}))
    for name in ("a", "b"):
        running(ns, name)
    before = {name: driver.cdi_file(claim_of(ns, name)["metadata"]["uid"]) for name in ("a", "b")}
    driver.kube("rollout", "restart", "daemonset/claimd")
    driver.kube("rollout", "status", "daemonset/claimd", f"--timeout={ROLLOUT:g}s")
    for name in ("a", "b"):
        assert driver.cdi_file(claim_of(ns, name)["metadata"]["uid"]) == before[name]
        assert consumed(ns, name) == ({"memory": "20Gi"}, {"memory": "20Gi"})


def test_without_the_feature_everything_is_exclusive(
    spaces: list[Kubectl], shared: Shared, driver: Driver, kube: Kubectl, rig: Rig
) -> None:
    """Turns the feature off in the API server and in claimd, which restarts."""
    ns = spaces[0]
    rig("apiserver", "restart", "--feature-gates", GATE)
    try:
        driver.kube("rollout", "restart", "daemonset/claimd")
        driver.kube("rollout", "status", "daemonset/claimd", f"--timeout={ROLLOUT:g}s")
        wait_for(
            "exclusive GPUs",
            lambda: set(sharing(driver).values()) == {("exclusive", False)},
            60,
        )
        capacities = [d["capacity"] for d in driver.published().values()]
        assert not [each for each in capacities if "shares" in each]
        assert not [each for each in capacities if "requestPolicy" in each["memory"]]
        log = driver.kube("logs", driver.pod()["metadata"]["name"], "--container=claimd")
        assert log.count("no GPU is shared, each is published as exclusive") == 1

        ns.create(template("some", devices(at(shared.by_memory, memory="10Gi"))))
        ns.create(pod("first", driver.node, {"gpu": "=some"}))
        running(ns, "first")
        [result] = claim_of(ns, "first")["status"]["allocation"]["devices"]["results"]
        assert "shareID" not in result
        ns.create(pod("second", driver.node, {"gpu": "=some"}))
        wait_for(
            "the scheduler's no", lambda: "cannot allocate all claims" in refusal(ns, "second"), 30
        )
        ns("delete", "pod", "first", seconds=60)
        running(ns, "second")
    finally:
        rig("apiserver", "restart", "--feature-gates", "")
        wait_for("an API server", lambda: kube.list("nodes"), 60)
