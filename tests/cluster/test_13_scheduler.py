"""Line 13: the scheduler and claimd's allocator choose the same devices in the same worlds, or both
choose none. `claimd explain` names the cause.

The worlds' node is an object without a kubelet, so no pod ever starts. Each world has its own driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimd.kubernetes import allocator
from tests.cluster import objects
from tests.cluster.conftest import ROOT
from tests.cluster.deadline import wait_for
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.worlds import NODE, OTHER, WORLDS, World
from tests.support import allocating

KEPT = (
    "request",
    "driver",
    "pool",
    "device",
    "adminAccess",
    "consumedCapacity",
    "tolerations",
    "bindingConditions",
)


@pytest.fixture(scope="module")
def nodes(kube: Kubectl) -> Iterator[None]:
    ample = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Suite", "message": "no kubelet"}
    for name in (NODE, OTHER):
        kube.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": ample, "allocatable": ample, "conditions": [ready]},
            }
        )
    yield
    kube.delete("node", NODE, OTHER, wait=False)


@pytest.fixture
def worlds(kube: Kubectl, ns: Kubectl, nodes: None) -> Iterator[None]:
    """Creates all worlds at once, because the scheduler needs some time for each."""
    everywhere = [document for world in WORLDS for document in (*world.classes, *world.slices)]
    kube.create(*everywhere)
    ns.create(*[claim for world in WORLDS for claim in world.claims])
    ns.create(*[pod(world) for world in WORLDS])
    yield
    ns.delete("pods", *[world.name for world in WORLDS], force=True)
    for kind in ("deviceclass", "resourceslice"):
        names = [
            document["metadata"]["name"]
            for document in everywhere
            if document["kind"].lower() == kind
        ]
        kube.delete(kind, *names, wait=False)


def pod(world: World) -> Object:
    names = [claim["metadata"]["name"] for claim in world.claims]
    pod_ = objects.pod(world.name, world.node, {name: name for name in names})
    pod_["spec"]["tolerations"] = [{"operator": "Exists"}]
    return pod_


def all_decided(ns: Kubectl) -> bool:
    """Returns True if the scheduler has decided about each pod. Raises AssertionError otherwise.

    A pod that fits may be refused at first, while the scheduler has not seen all objects.
    """
    fits = {world.name for world in WORLDS if world.fits}
    for pod_ in ns.list("pods"):
        name = pod_["metadata"]["name"]
        said = [
            each
            for each in pod_.get("status", {}).get("conditions", [])
            if each["type"] == "PodScheduled"
        ]
        assert said, f"nothing is said about {name}"
        assert name not in fits or said[0]["status"] == "True", f"{name}: {said[0].get('message')}"
    return True


def theirs(claims: list[Object]) -> list[object] | None:
    if not all(claim.get("status", {}).get("allocation") for claim in claims):
        return None
    return [told(claim["status"]["allocation"]) for claim in claims]


def told(allocation: Object) -> object:
    devices = allocation["devices"]
    results = [
        {name: result[name] for name in KEPT if name in result} for result in devices["results"]
    ]
    shared = ["shareID" in result for result in devices["results"]]
    return results, shared, devices.get("config", []), allocation.get("nodeSelector")


def ours(world: World, everything: Object, claims: list[Object]) -> list[object] | None:
    """Returns the allocations of claimd's allocator, from the objects as the API server has them."""
    waiting = [
        {name: value for name, value in claim.items() if name != "status"} for claim in claims
    ]
    (node,) = [each for each in everything["nodes"] if each["metadata"]["name"] == world.node]
    try:
        decision = allocating.decide(
            allocating.parse(everything | {"node": node, "claims": waiting})
        )
    except allocator.AllocationError:
        return None
    return None if decision is None else [told(allocating.plain(each)) for each in decision]


def test_the_scheduler_decides_the_same(
    kube: Kubectl, ns: Kubectl, worlds: None, tmp_path: Path
) -> None:
    wait_for("the scheduler to decide", lambda: all_decided(ns), 60)
    kinds = {"nodes": "nodes", "classes": "deviceclasses", "slices": "resourceslices"}
    everything = {name: kube.list(kind) for name, kind in kinds.items()}
    claims = {claim["metadata"]["name"]: claim for claim in ns.list("resourceclaims")}
    for world in WORLDS:
        of_world = [claims[claim["metadata"]["name"]] for claim in world.claims]
        expected = theirs(of_world)
        assert (expected is not None) is world.fits, world.name
        assert ours(world, everything, of_world) == expected, world.name
    out = explained(ns, tmp_path, "pod/small-roots", f"--node={NODE}")
    assert out.startswith(f"pod {ns.namespace}/small-roots: 0 of 1 nodes could run it: ")
    assert " with one root are needed, only " in out and " exist with root r" in out
    assert "not allowed" not in out


def explained(ns: Kubectl, folder: Path, *words: str) -> str:
    """Returns the answer of `claimd explain` for a person who has the shipped role."""
    ns("apply", "--kustomize", str(ROOT / "deploy/explain"))
    ns("create", "serviceaccount", "person")
    binding = f"suite-explain-{ns.namespace}"
    person = f"--serviceaccount={ns.namespace}:person"
    ns("create", "clusterrolebinding", binding, "--clusterrole=claimd-explain", person)
    try:
        config = json.loads(ns("config", "view", "--raw", "--minify", "--flatten", "--output=json"))
        config["users"] = [
            {"name": "person", "user": {"token": ns("create", "token", "person").strip()}}
        ]
        config["contexts"][0]["context"]["user"] = "person"
        path = folder / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        command = [sys.executable, "-m", "claimd", "explain", *words, f"--namespace={ns.namespace}"]
        done = subprocess.run(
            [*command, f"--kubeconfig={path}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        ns.delete("clusterrolebinding", binding)
    assert done.returncode == 3, done.stderr
    return done.stdout
