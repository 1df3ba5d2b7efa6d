"""Objects of a small cluster, as its API server has them: nodes with GPUs, pods, claims, templates."""

import itertools
from datetime import datetime, timedelta

from claimd.kubernetes.scheduling.objects import Claim, Class, Node, Pod, Rule, Slice
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from tests.support.allocating import read

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
_NUMBERS = itertools.count(1)
_BEGINNING = datetime(2026, 1, 1)  # what is made later is younger, however many there are


def meta(name, namespace="default", **more):
    number = next(_NUMBERS)
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(number)}
    metadata["creationTimestamp"] = (_BEGINNING + timedelta(seconds=number)).strftime("%FT%TZ")
    return metadata | ({"namespace": namespace} if namespace else {}) | more


def node(name, labels=None, taints=(), unschedulable=False, **allocatable):
    ample = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, "", labels={"kubernetes.io/hostname": name} | (labels or {})),
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "allocatable": ample | allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name, claims=(), templates=(), on="", requests=None, **spec):
    """`claims` and `templates`: names of both sorts, each under itself as reference."""
    entries = [{"name": claim_name, "resourceClaimName": claim_name} for claim_name in claims]
    entries += [
        {"name": claim_name, "resourceClaimTemplateName": claim_name} for claim_name in templates
    ]
    container = {"name": "main", "image": "demo", "resources": {"requests": requests or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name),
        "spec": {"containers": [container], "resourceClaims": entries}
        | ({"nodeName": on} if on else {})
        | spec,
        "status": {"phase": "Running" if on else "Pending"},
    }


def request(name="gpu", count=1, **more):
    return {
        "name": name,
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        | more,
    }


def claim(name, *requests, devices=(), node="node-1", pods=(), **metadata):
    """Allocated where it has devices, and reserved for the pods."""
    document = {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": meta(name, **metadata),
        "spec": {"devices": {"requests": list(requests) or [request()]}},
    }
    if devices:
        results = [
            result(device, node) if isinstance(device, str) else device for device in devices
        ]
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        where = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        document["status"] = {
            "allocation": {"devices": {"results": results}, "nodeSelector": where}
        }
        document["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    if pods:
        entries = [
            {"resource": "pods", "name": pod_name, "uid": f"uid-{pod_name}"} for pod_name in pods
        ]
        document.setdefault("status", {})["reservedFor"] = entries
    return document


def result(device, node="node-1", **more):
    return {"request": "gpu", "driver": DRIVER, "pool": node, "device": device} | more


def template(name, *requests, **head):
    spec = {"spec": {"devices": {"requests": list(requests) or [request()]}}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": meta(name),
        "spec": spec | head,
    }


def slice_(node, count=2, driver=DRIVER, **devices):
    """`devices`: more of single ones, by name with underscores."""
    devices_ = [
        {"name": f"gpu-{n}", "attributes": {"index": {"int": n}}} | devices.get(f"gpu_{n}", {})
        for n in range(count)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": meta(f"{node}-{driver}", ""),
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices_},
    }


def class_(name="gpu", driver=DRIVER, **spec):
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": meta(name, ""),
        "spec": {"selectors": [selector]} | spec,
    }


def rule(name, taint, generation=1, **selector):
    return {
        "apiVersion": API,
        "kind": "DeviceTaintRule",
        "metadata": meta(name, "", generation=generation),
        "spec": {"deviceSelector": selector, "taint": taint},
    }


def snapshot(nodes=(), pods=(), claims=(), slices=(), classes=None, rules=()):
    """Returns the objects as the scheduler gets them."""
    published = PublishedDevices(
        read(list(slices), list[Slice]),
        read(list(rules), list[Rule]),
        read([class_()] if classes is None else list(classes), list[Class]),
    )
    return Snapshot.from_objects(
        read(list(nodes), list[Node]), parsed(*pods), read(list(claims), list[Claim]), published
    )


def parsed(*pods):
    return read(list(pods), list[Pod])


def copies(**collections):
    """Returns the objects as controllers get them; a kind that is not given has no objects."""
    kinds = (
        "pods",
        "nodes",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourceslices",
        "devicetaintrules",
    )
    kinds += ("deployments", "replicasets", "daemonsets", "namespaces", "leases")
    kinds += ("jobs", "podgroups")
    copies_ = {kind: {} for kind in kinds}
    for kind, objects in collections.items():
        for document in objects:
            metadata = document["metadata"]
            key = (
                f"{metadata['namespace']}/{metadata['name']}"
                if "namespace" in metadata
                else metadata["name"]
            )
            copies_[kind][key] = document
    return copies_
