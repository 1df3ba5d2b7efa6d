"""Random clusters for `claimd explain`, some of them damaged: no input ends in a traceback.

`python -m tests.support.damaged_worlds --count 100000` is the campaign; each number is a seed, and
the same number the same cluster. It prints what went wrong, and how long the slowest answers took.
"""

import argparse
import copy
import json
import random
import resource
import sys
import time
import traceback
from collections import Counter

from claimd.common import errors
from claimd.tools.explain import manifests, objects, pending, text
from tests.support import alloc_worlds

# Values that stand where others belong.
_ODD = (
    *(None, True, 0, -1, 1e30, 1.5, 2**70, "", "x", "All", "é" * 5),
    *("0", "-5", "1e30", "1e2000000000", "Infinity", "nan", "0x10", "9223372036854775807"),
    *([], {}, [None], ["a"], {"a": 1}, [[]]),
    *("device.x", "[].flatten(dyn('1')) == []", "[1].all(x, '1'.matches('('))"),
)
_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
MEMORY = 2 << 30
TIME_LIMIT = 1.0  # for one answer; a busy machine takes several times as long


def documents(seed):
    """The objects of a cluster as kubectl writes them, with a pod or two that wait."""
    source = random.Random(seed)
    world = alloc_worlds.numbered(seed)
    cluster = [{"apiVersion": "v1", "kind": "Node", **world["node"]}]
    for kind, items in (
        ("DeviceClass", world["classes"]),
        ("ResourceSlice", world["slices"]),
        ("ResourceClaim", world["claims"] + world["taken"]),
    ):
        cluster += [{"apiVersion": "resource.k8s.io/v1", "kind": kind, **item} for item in items]
    cluster = copy.deepcopy(cluster)
    _furnish(source, cluster)
    if source.random() < 0.7:
        cluster.append(_pod(source, world))
    return cluster


def _furnish(source, cluster):
    """What nodes and claims have besides devices."""
    node = cluster[0]
    node["spec"] = {"unschedulable": source.random() < 0.1}
    if source.random() < 0.2:
        node["spec"]["taints"] = [{"key": "k", "effect": source.choice(("NoSchedule", "None"))}]
    if source.random() < 0.7:
        allocatable = {"cpu": "8", "memory": "32Gi", "pods": 110}
        node.setdefault("status", {})["allocatable"] = allocatable
    for item in cluster:
        if item["kind"] == "ResourceClaim" and source.random() < 0.1:
            item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            item.setdefault("status", {})["reservedFor"] = [{"name": "other", "uid": "u"}] * 300


def _pod(source, world):
    """A pod with the claims, or something that makes such pods."""
    names = [claim["metadata"]["name"] for claim in world["claims"]]
    resources = {
        "requests": {"cpu": source.choice((1, "2", 0.5, "100"))},
        "limits": {"memory": source.choice(("1Gi", 1024)), "example.com/x": 1},
    }
    if source.random() < 0.3:
        resources["requests"]["deviceclass.resource.kubernetes.io/any"] = "1"
    spec = {
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in names],
        "containers": [{"name": "c", "resources": resources, "ports": [{"hostPort": 80}]}],
        "nodeSelector": {"zone": "a"} if source.random() < 0.2 else {},
        "schedulingGates": [{"name": "g"}] if source.random() < 0.1 else [],
    }
    metadata = {"name": "job", "namespace": "default"}
    if source.random() < 0.7:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    kind = source.choice(_KINDS)
    template = {"template": {"spec": spec}}
    if kind == "CronJob":
        template = {"jobTemplate": {"spec": template}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": template}


def damage(seed, cluster):
    """Take away one value or two anywhere, or put something odd in the place."""
    source = random.Random(seed)
    for _ in range(source.choice((1, 1, 2))):
        document = source.choice(cluster)
        places = [place for place in _places(document) if place not in ((), ("kind",))]
        if not places:
            continue
        place = source.choice(places)
        parent = document
        for step in place[:-1]:
            parent = parent[step]
        if source.random() < 0.2:
            del parent[place[-1]]
        else:
            parent[place[-1]] = copy.deepcopy(source.choice(_ODD))


def _places(value, place=()):
    yield place
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*place, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*place, index))


def explain(cluster):
    """Everything that waits, as text and as JSON; the seconds that the slowest answer took."""
    known = objects.Objects()
    for document in cluster:
        try:
            workload = manifests.parse_workload(document)
        except TypeError as error:
            raise errors.Fatal(str(error)) from error
        known.add(workload.pod if workload else document)
    slowest = 0.0
    for subject in (*known.claims, *known.pods):
        began = time.perf_counter()
        answer = pending.report(known, subject, time_limit=TIME_LIMIT)
        text.as_text(answer)
        json.dumps(text.as_data(answer))
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def run(first, count):
    kinds = Counter()
    slow = []
    for seed in range(first, first + count):
        cluster = documents(seed)
        if seed % 3:
            damage(seed, cluster)
        try:
            seconds = explain(cluster)
            kinds["answered"] += 1
            if seconds > TIME_LIMIT:
                slow.append((round(seconds, 1), seed))
        except errors.Fatal:
            kinds["cannot be read"] += 1
        except Exception:  # noqa: BLE001  # the very thing that is looked for
            kinds["TRACEBACK"] += 1
            print(f"{seed}: {traceback.format_exc()}", flush=True)
        if (seed + 1 - first) % 10_000 == 0 or seed + 1 == first + count:
            print(f"{first} to {seed}: {dict(kinds)}, slowest {sorted(slow)[-3:]}", flush=True)
    return kinds["TRACEBACK"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    # What takes all memory of the machine is a finding, too, and not the machine's end.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.exit(1 if run(arguments.first, arguments.count) else 0)
