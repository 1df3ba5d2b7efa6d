"""Two clusters that differ in one thing: the scheduler of one is ours, that of the other Kubernetes'
own. A test leads both the same way, and what becomes of each pod has to be the same.
"""

import itertools
import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

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
_numbers = itertools.count(1)


def program():
    """$KUBE_SCHEDULER, or what the rig has built."""
    named = os.environ.get("KUBE_SCHEDULER")
    return Path(named) if named else places.kube_binary("kube-scheduler", places.KUBE)


@pytest.fixture(scope="session")
def clusters(claimd_cluster_factory):
    """Each under the name of its scheduler."""
    path = program()
    if not path.exists():
        pytest.skip(f"no kube-scheduler: there is no {path}, and KUBE_SCHEDULER names no other")
    return {
        "ours": claimd_cluster_factory(NODES),
        "kube-scheduler": claimd_cluster_factory(NODES, scheduler=path),
    }


@pytest.fixture
def both(clusters):
    """In a namespace of the test's own, of which nothing is left."""
    judged = Both(clusters, f"judged-{next(_numbers)}")
    yield judged
    judged.clear()


class Both:
    """What is done is done to both clusters; what is asked is asked of both, and compared."""

    def __init__(self, clusters, namespace):
        self._clusters, self._namespace = clusters, namespace
        self._made = [("namespace", namespace)]
        metadata = {"name": namespace, "labels": ADMIN}
        self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def create(self, *objects):
        """Those of the cluster go at the end, as the namespace does."""
        for obj in objects:
            if obj["kind"] not in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
                self._made.insert(0, (obj["kind"], obj["metadata"]["name"]))
        self._apply(*objects)

    def delete(self, what):
        """Returns when it is gone."""
        for cluster in self._clusters.values():
            cluster.delete(what, namespace=self._namespace)
        self._wait(what, "gone")

    def gone(self, what):
        self._wait(what, "gone")

    def run(self, *pods):
        """They run, in both, and no device has been given twice."""
        for pod in pods:
            self._wait(f"pod/{pod}", "Running")
        for name, cluster in self._clusters.items():
            assert _given_twice(cluster) == [], name

    def wait(self, *pods):
        """They find no place, in both, and the same is said of them, which is given."""
        said = {}
        for pod in pods:
            self._wait(f"pod/{pod}", {"status.conditions[type=PodScheduled].status": "False"})
            said = self._agreed(lambda cluster, pod=pod: self._said(cluster, pod))
        return said

    def same(self, look):
        """What is seen in both, once it is the same: `look` is asked about a cluster's claims."""
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
        found = cluster.get(f"pod/{pod}", namespace=self._namespace)
        for condition in found["status"].get("conditions") or ():
            if condition["type"] == "PodScheduled":
                return [condition.get("reason", ""), _words(condition.get("message", ""))]
        return []

    def _agreed(self, look):
        end = time.monotonic() + AGREE_WITHIN
        while True:
            ours, theirs = (look(cluster) for cluster in self._clusters.values())
            if ours == theirs:
                return ours
            if time.monotonic() > end:
                assert ours == theirs
            time.sleep(_GLANCE)


def _words(message):
    """What is said of the pod alone: not what making room for it would have helped."""
    return re.sub(
        r"[.,]?( still not schedulable,?| no new claims to deallocate,?)* preemption: .*",
        "",
        message,
    ).rstrip(".")


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
