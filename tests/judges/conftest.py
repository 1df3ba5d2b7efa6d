"""Clusters that differ in one thing: in one scheduler and controllers are ours, in another the
scheduler is Kubernetes' own, in a third the controllers are, too. A test leads all the same way, and
what becomes of each pod has to be the same.
"""

import asyncio
import itertools
import json
import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from claimd.kubernetes.kube import client, kubeconfig
from tests.cluster.rig import places

NODES = {
    "a": "nvidia:h100=2",
    "b": "amd:mi300x intel:flex170,vfs=4",
    "c": {"gpus": "nvidia:l4", "settings": {"share": "nvidia=shares:2"}},
}
PATIENCE = 60.0  # seconds: a kube-scheduler tries again what has failed after ten of them
AGREE_WITHIN = 20.0  # seconds in which both may think again
ADMIN = {"resource.kubernetes.io/admin-access": "true"}
_GLANCE = 0.2
_BRACKETS = re.compile(r" \([^()]*(\([^()]*\)[^()]*)*\)")
_AFTERWARDS = re.compile(r"( still not schedulable,| no new claims to deallocate,)* preemption: .*")
_WRONG_SELECTOR = re.compile(
    r"selector \S+ on device \S+: (?P<words>CEL runtime error: [\w ]+: \w+)"
)
_REASON = re.compile(r"(\d+) (.+?)(?:, (?=\d)|$)")
_numbers = itertools.count(1)


def program(name):
    """By its variable, $KUBE_SCHEDULER, or what the rig has built."""
    variable = name.upper().replace("-", "_")
    named = os.environ.get(variable)
    path = Path(named) if named else places.kube_binary(name, places.KUBE)
    if not path.exists():
        pytest.skip(f"no {name}: there is no {path}, and ${variable} names no other")
    return path


@pytest.fixture(scope="session")
def clusters(claimd_cluster_factory):
    """Each under the name of what is not ours in it. All are like $KUBE_PROFILE, by default 1.37."""
    scheduler, controllers = program("kube-scheduler"), program("kube-controller-manager")
    both = {"scheduler": scheduler, "controllers": controllers}
    profile = os.environ.get("KUBE_PROFILE", "")
    return {
        "nothing": claimd_cluster_factory(NODES, profile=profile),
        "scheduler": claimd_cluster_factory(NODES, profile=profile, scheduler=scheduler),
        "scheduler and controllers": claimd_cluster_factory(NODES, profile=profile, **both),
    }


@pytest.fixture
def judges(clusters):
    """In a namespace of the test's own, of which nothing is left."""
    judged = Judges(clusters, f"judged-{next(_numbers)}")
    yield judged
    judged.clear()


class Judges:
    """What is done is done to all clusters; what is asked is asked of all, and compared."""

    def __init__(self, clusters, namespace):
        self._clusters, self._namespace = clusters, namespace
        self._made = [("namespace", namespace)]
        metadata = {"name": namespace, "labels": ADMIN}
        self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def create(self, *objects):
        """Those of the cluster go at the end, as the namespace does."""
        for obj in objects:
            what = obj["kind"], obj["metadata"]["name"]
            is_inside = obj["kind"] in ("Pod", "ResourceClaim", "ResourceClaimTemplate")
            if not is_inside and what not in self._made:
                self._made.insert(0, what)
        self._apply(*objects)

    def delete(self, what):
        """Returns when it is gone."""
        for cluster in self._clusters.values():
            cluster.delete(what, namespace=self._namespace)
        self._wait(what, "gone")

    def gone(self, what):
        self._wait(what, "gone")

    def run(self, *pods):
        """They run, in all, and no device has been given twice."""
        for pod in pods:
            self._wait(f"pod/{pod}", "Running")
        for name, cluster in self._clusters.items():
            assert _given_twice(cluster) == [], name

    def place(self, pod):
        """It has a node; no driver is there for its devices, so that it does not run."""
        self._wait(f"pod/{pod}", {"status.conditions[type=PodScheduled].status": "True"})

    def wait(self, pod):
        """It finds no place, in any, and the same is said of it, which is given."""
        self._wait(f"pod/{pod}", {"status.conditions[type=PodScheduled].status": "False"})
        return self._agreed(lambda cluster: self._said(cluster, pod))

    def hold(self, claim, pool):
        """The claim has its device there, and is reserved for somebody."""
        place = {"status.allocation.devices.results[0].pool": pool}
        self._wait(f"resourceclaim/{claim}", place | {"status.reservedFor": {"count": 1}})

    def report(self, claim, driver, pool, device, type_):
        """A condition of the device is true, as a driver reports it."""
        condition = {"type": type_, "status": "True", "reason": "Judged", "message": "so it is"}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        entry = {"driver": driver, "pool": pool, "device": device, "conditions": [condition]}
        path = f"/apis/resource.k8s.io/v1/namespaces/{self._namespace}/resourceclaims/{claim}"
        body = json.dumps({"status": {"devices": [entry]}}).encode()
        for cluster in self._clusters.values():
            asyncio.run(_patch(cluster.kubeconfig, f"{path}/status", body))

    def explain(self, pod, words):
        """claimd explain has these words for it, in all."""
        for name, cluster in self._clusters.items():
            assert words in cluster.explain(pod, namespace=self._namespace), name

    def say_nothing(self, pod):
        """It waits for somebody else, and no scheduler has a word for it."""
        assert self._agreed(lambda cluster: self._said(cluster, pod)) == []

    def same(self, look):
        """What is seen in all, once it is the same: `look` is asked about a cluster's claims."""
        return self._agreed(
            lambda cluster: look(cluster.list("resourceclaim", namespace=self._namespace))
        )

    def clear(self):
        for kind, name in self._made:
            for cluster in self._clusters.values():
                cluster.delete(f"{kind}/{name}")
            self._wait(f"{kind}/{name}", "gone")

    def _apply(self, *objects):
        for cluster in self._clusters.values():
            cluster.apply(list(objects), namespace=self._namespace)

    def _wait(self, what, until):
        for cluster in self._clusters.values():
            cluster.wait(what, until, namespace=self._namespace, timeout=PATIENCE)

    def _said(self, cluster, pod):
        pod_ = cluster.get(f"pod/{pod}", namespace=self._namespace)
        for condition in pod_["status"].get("conditions") or ():
            if condition["type"] == "PodScheduled":
                return [condition.get("reason", ""), _words(condition.get("message", ""))]
        return []

    def _agreed(self, look):
        end = time.monotonic() + AGREE_WITHIN
        while True:
            first, *others = [look(cluster) for cluster in self._clusters.values()]
            if all(other == first for other in others):
                return first
            if time.monotonic() > end:
                assert [first] * len(others) == others
            time.sleep(_GLANCE)


async def _patch(path, target, body):
    client_ = client.Client(kubeconfig.load(path), agent="judge")
    form = "application/merge-patch+json"
    try:
        await client_.request("PATCH", target, body=body, content_type=form)
    finally:
        await client_.close()


def _words(message):
    """What keeps the pod waiting: not what making room for it would have helped, nor what ours adds
    in brackets, by which the same reason may come several times.
    """
    if match := _WRONG_SELECTOR.search(message):
        return match["words"]
    said = _AFTERWARDS.sub("", _BRACKETS.sub("", message)).rstrip(".")
    head, separator, reasons = said.partition(" nodes are available: ")
    if not separator:
        return said
    counts = Counter()
    for count, reason in _REASON.findall(reasons):
        counts[reason] += int(count)
    return f"{head}: {sorted(counts.items())}"


def _given_twice(cluster):
    """Devices of several claims that are no shares and nobody's to watch alone."""
    counts = Counter()
    for claim in cluster.list("resourceclaim", namespace=""):
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if not result.get("adminAccess") and not result.get("shareID"):
                counts[result["pool"], result["device"]] += 1

    # A GPU and a part of it exclude each other, as they rest on the same counters.
    for pool, device in list(counts):
        whole = re.sub(r"-vf-?\d+$", "", device)
        if whole != device and (pool, whole) in counts:
            counts[pool, whole] += 1
    return [device for device, count in counts.items() if count > 1]
