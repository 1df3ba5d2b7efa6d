"""Line 10: the rights that the DaemonSet's token has, and those that it does not have."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.objects import API, DRIVER

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"

RESOURCE = "resource.k8s.io"
MAY = [
    ("get", f"{RESOURCE}/resourceclaims"),
    ("patch", f"{RESOURCE}/resourceclaims/status"),
    ("associated-node:patch", f"{RESOURCE}/resourceclaims/driver", DRIVER),
    ("get", f"{RESOURCE}/resourceslices"),
    ("list", f"{RESOURCE}/resourceslices"),
    ("watch", f"{RESOURCE}/resourceslices"),
    ("create", f"{RESOURCE}/resourceslices"),
    ("update", f"{RESOURCE}/resourceslices"),
    ("delete", f"{RESOURCE}/resourceslices"),
    ("get", "/nodes"),
    ("create", "events.k8s.io/events"),
]
MAY_NOT = [
    ("list", f"{RESOURCE}/resourceclaims"),
    ("create", f"{RESOURCE}/resourceclaims"),
    ("update", f"{RESOURCE}/resourceclaims"),
    ("patch", f"{RESOURCE}/resourceclaims"),
    ("delete", f"{RESOURCE}/resourceclaims"),
    ("update", f"{RESOURCE}/resourceclaims/status"),
    ("patch", f"{RESOURCE}/resourceclaims/binding"),
    ("associated-node:patch", f"{RESOURCE}/resourceclaims/driver", "gpu.example.com"),
    ("arbitrary-node:patch", f"{RESOURCE}/resourceclaims/driver", DRIVER),
    ("deletecollection", f"{RESOURCE}/resourceslices"),
    ("update", f"{RESOURCE}/deviceclasses"),
    ("list", "/nodes"),
    ("patch", "/nodes"),
    ("patch", "/nodes/status"),
    ("get", "/pods"),
    ("create", "/pods"),
    ("get", "/secrets"),
    ("get", "/configmaps"),
    ("create", "/events"),
    ("get", "events.k8s.io/events"),
    ("patch", "events.k8s.io/events"),
    ("delete", "events.k8s.io/events"),
    ("create", "/serviceaccounts/token"),
]


@pytest.fixture(scope="module")
def as_driver(kube: Kubectl, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Returns kubectl with the token of the running pod."""
    config = json.loads(kube("config", "view", "--raw", "--minify", "--flatten", "--output=json"))
    config["users"] = [{"name": "claimd", "user": {"token": driver.read(TOKEN).strip()}}]
    config["contexts"][0]["context"]["user"] = "claimd"
    path: Path = tmp_path_factory.mktemp("as-driver") / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return Kubectl(kubeconfig=path)


def test_token_is_the_driver_on_its_node(as_driver: Kubectl, driver: Driver) -> None:
    told = json.loads(as_driver("auth", "whoami", "--output=json"))["status"]["userInfo"]
    assert told["username"] == "system:serviceaccount:claimd-system:claimd"
    assert told["extra"]["authentication.kubernetes.io/node-name"] == [driver.node]


@pytest.mark.parametrize("words", MAY, ids=" ".join)
def test_rbac_allows_what_it_needs(as_driver: Kubectl, words: tuple[str, ...]) -> None:
    assert as_driver.may(*words)


@pytest.mark.parametrize("words", MAY_NOT, ids=" ".join)
def test_rbac_denies_what_it_need_not_do(as_driver: Kubectl, words: tuple[str, ...]) -> None:
    assert not as_driver.may(*words)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodeName": "somewhere-else"}, "may not write a slice of node somewhere-else"),
        ({"nodeName": None, "allNodes": True}, "may not write a slice of no single node"),
        (
            {"pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}},
            "may not write a slice of another pool",
        ),
        ({"driver": "gpu.example.com"}, "may not write a slice of driver gpu.example.com"),
    ],
    ids=["another node", "all nodes", "another pool", "another driver"],
)
def test_policy_denies_to_create(
    as_driver: Kubectl, driver: Driver, change: Object, reason: str
) -> None:
    with pytest.raises(KubectlError, match="denied request") as denied:
        as_driver.create(_slice(driver.node, change))
    assert reason in str(denied.value)


def test_policy_denies_to_change_and_delete_a_slice_of_another_node(
    kube: Kubectl, as_driver: Kubectl, driver: Driver
) -> None:
    foreign = _slice("somewhere-else", {})
    kube.create(foreign)
    try:
        stored = kube.get("resourceslice", foreign["metadata"]["name"])
        stored["spec"]["pool"]["generation"] = 2
        with pytest.raises(KubectlError, match="may not write a slice of node somewhere-else"):
            as_driver("replace", "--filename=-", text=json.dumps(stored))
        with pytest.raises(KubectlError, match="may not write a slice of node somewhere-else"):
            as_driver.delete("resourceslice", foreign["metadata"]["name"])
    finally:
        kube.delete("resourceslice", foreign["metadata"]["name"])


def test_policy_allows_its_own_node(as_driver: Kubectl, driver: Driver) -> None:
    as_driver(
        "create", "--dry-run=server", "--filename=-", text=json.dumps(_slice(driver.node, {}))
    )


def test_policy_leaves_others_alone(kube: Kubectl) -> None:
    kube(
        "create", "--dry-run=server", "--filename=-", text=json.dumps(_slice("somewhere-else", {}))
    )


def test_slices_wait_in_a_line_of_their_own(kube: Kubectl, driver: Driver) -> None:
    """Checks by the API server's metrics that the flow schema matches claimd's requests."""
    lines = kube("get", "--raw=/metrics").splitlines()
    dispatched = [
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("apiserver_flowcontrol_dispatched_requests_total{")
        and 'flow_schema="claimd-resourceslices"' in line
    ]
    assert sum(dispatched) > 0, "no request about slices has gone by it"


def _slice(node: str, change: Object) -> Object:
    spec = {
        "driver": DRIVER,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "nodeName": node,
        "devices": [],
    }
    spec.update(change)
    spec = {key: value for key, value in spec.items() if value is not None}
    name = f"suite-{time.monotonic_ns()}"
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
