"""Builds the objects of situations: pods, nodes, claims and devices."""

from __future__ import annotations

from typing import Any

from tests.support import alloc_hard
from tests.support.cluster_objects import (
    DRIVER,
    ROOT,
    claim,
    class_,
    gpu,
    name,
    node,
    slice_,
)

Object = dict[str, Any]

SUBJECT = "job"
NIC = "nic.example.com"
READY = {"type": "Ready", "status": "True", "reason": "Recorded", "message": "ready"}
COUNTERS = [{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]


def job(
    called: str = SUBJECT, requests: Object | None = None, ports: Any = (), **claims: str
) -> Object:
    """Builds a pod with one container. A claim that begins with = is made from a template."""
    entries = []
    for key, value in claims.items():
        field = "resourceClaimTemplateName" if value.startswith("=") else "resourceClaimName"
        entries.append({"name": key, field: value.lstrip("=")})
    main: Object = {"name": "main", "image": "busybox", "resources": {}}
    if requests:
        # Resources other than cpu and memory must have a limit equal to the request.
        main["resources"] = {"requests": requests}
        same = {key: value for key, value in requests.items() if key not in ("cpu", "memory")}
        main["resources"] |= {"limits": same} if same else {}
    if ports:
        main["ports"] = list(ports)
    if entries:
        main["resources"]["claims"] = [{"name": entry["name"]} for entry in entries]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": called, "namespace": "default"},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
            **({"resourceClaims": entries} if entries else {}),
        },
    }


def with_(pod: Object, **spec: Any) -> Object:
    return pod | {"spec": pod["spec"] | spec}


def labelled(pod: Object, **labels: str) -> Object:
    return pod | {"metadata": pod["metadata"] | {"labels": labels}}


def on(place: str, pod: Object, phase: str = "Running") -> Object:
    return with_(pod, nodeName=place) | {"status": {"phase": phase}}


def port(number: int, **more: Any) -> Object:
    return {"containerPort": number, "hostPort": number, **more}


def tainted(called: str, *taints: Object, ready: str = "True", **labels: str) -> Object:
    document = node(called, **labels)
    document["spec"]["taints"] = list(taints)
    why = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    condition = READY if ready == "True" else READY | {"status": ready} | why
    document["status"]["conditions"] = [condition]
    return document


def sized(called: str, **allocatable: str) -> Object:
    document = node(called)
    document["status"]["allocatable"] |= {
        key.replace("__", "/").replace("_", "-"): value for key, value in allocatable.items()
    }
    return document


def held(called: str, *devices: str, **more: Any) -> Object:
    """Builds a claim that has these devices of node-1, for a pod that does not exist."""
    more.setdefault("reserved", ["somebody"])
    more.setdefault("pinned", "node-1")
    return claim(called, held=list(devices), **more)


def by_template(called: str, uid: str) -> Object:
    """Builds a claim that was made for a pod from a template."""
    document = claim(called)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": SUBJECT, "uid": uid, "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    return document


def affinity(*expressions: Object, fields: Any = ()) -> Object:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    required = {"nodeSelectorTerms": [{key: value for key, value in term.items() if value}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def among(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def near(kind: str, key: str, **labels: str) -> Object:
    """Builds the affinity to pods with these labels. `kind` is podAffinity or podAntiAffinity."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def request_of_all() -> Object:
    exactly = {"deviceClassName": DRIVER, "allocationMode": "All"}
    return {"name": "gpus", "exactly": exactly}


def nic(index: int, root: str) -> Object:
    return {"name": f"nic-{index}", "attributes": {ROOT: {"string": root}}}


def nics(*devices: Object) -> Object:
    return slice_(devices, called="nics", driver=NIC)


def nic_class() -> Object:
    return class_("nic", f'device.driver == "{NIC}"')


def with_fpgas(count: str) -> Object:
    document = node("node-1")
    document["status"]["allocatable"]["example.com/fpga"] = count
    return document


def init(requests: Object, **more: Any) -> Object:
    return {"name": "init", "image": "busybox", "resources": {"requests": requests}, **more}


def parts(*sizes: int) -> list[Object]:
    return [
        {
            "name": f"part-{index}",
            "attributes": {"profile": {"string": f"{size}g"}},
            "consumesCounters": [
                {"counterSet": "gpu-0", "counters": {"slices": {"value": str(size)}}}
            ],
        }
        for index, size in enumerate(sizes)
    ]


def shared(**policy: Any) -> Object:
    device = gpu(0, allowMultipleAllocations=True)
    device["capacity"]["memory"] |= {"requestPolicy": policy} if policy else {}
    return device


def sharer(called: str, memory: str) -> Object:
    document = held(called, name(0), capacity={"requests": {"memory": memory}})
    (result,) = document["status"]["allocation"]["devices"]["results"]
    share = "11111111-2222-3333-4444-555555555555"
    result |= {"shareID": share, "consumedCapacity": {"memory": memory}}
    return document


def with_plugin(count: str) -> Object:
    """Builds a node whose device plugin offers the extended resource of a class."""
    document = node("node-1")
    document["status"]["allocatable"]["claimd.dev/gpu"] = count
    return document


def watching(called: str, device: str) -> Object:
    document = held(called, device, adminAccess=True)
    document["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    return document


def puzzle() -> tuple[Object, ...]:
    """Builds parts: any twelve fit by memory, any twelve fit by cores, but no twelve fit by both."""
    slices = alloc_hard.opposing()["slices"]
    devices, counters = slices[0]["spec"]["devices"], slices[1]["spec"]["sharedCounters"]
    return (
        slice_(devices, count=2),
        slice_([], count=2, called="counters", sharedCounters=counters),
        claim(count=12),
    )
