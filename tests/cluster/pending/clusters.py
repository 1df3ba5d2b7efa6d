"""Random clusters with a few nodes, and pods that arrive one after the other. Bound pods stay.

A seed determines its cluster.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.cluster.pending.documents import (
    NIC,
    READY,
    affinity,
    among,
    job,
    nic,
    nic_class,
    on,
    port,
    with_,
)
from tests.support.cluster_objects import (
    A100,
    DRIVER,
    H100,
    MI300X,
    NUMA,
    ROOT,
    claim,
    class_,
    gpu,
    node,
    rule,
    selector,
    slice_,
    taint,
)

Object = dict[str, Any]

PODS = 12
_TAINTS = (
    taint("drain", "NoExecute"),
    taint("old", "PreferNoSchedule"),
)
_TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "team", "operator": "Exists"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "drain", "operator": "Exists", "effect": "NoExecute"},
    {"key": "drain", "operator": "Exists", "effect": "NoSchedule"},
)
_SELECTORS = (
    f'device.attributes["{DRIVER}"].vendor == "nvidia"',
    f'device.attributes["{DRIVER}"].vendor == "amd"',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0',
    f'device.attributes["{DRIVER}"].?model.orValue("") == "x"',
    f'"{NUMA}" in device.attributes["resource.kubernetes.io"]',
)


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A pod, and the claims that are made for it."""

    claims: tuple[Object, ...]
    pod: Object


@dataclass(frozen=True, kw_only=True)
class Cluster:
    objects: tuple[Object, ...]
    arrivals: tuple[Arrival, ...]


def cluster(seed: int) -> Cluster:
    source = random.Random(seed)
    names = [f"node-{number}" for number in range(1, source.randint(3, 7) + 1)]
    objects = [
        class_(extendedResourceName="claimd.dev/gpu"),
        class_("large", f'device.driver == "{DRIVER}"', _SELECTORS[2]),
        nic_class(),
    ]
    for called in names:
        objects += _node(source, called)
    if source.random() < 0.2:
        pool = source.choice(names)
        objects.append(rule("maintenance", "maintenance", driver=DRIVER, pool=pool))
    arrivals = [_arrival(source, number, names) for number in range(PODS)]
    return Cluster(objects=tuple(objects), arrivals=tuple(arrivals))


# The objects that exist before the pods arrive


def _node(source: random.Random, called: str) -> list[Object]:
    labels = {}
    if source.random() < 0.7:
        labels["zone"] = source.choice("abc")
    if source.random() < 0.5:
        labels["gpus"] = source.choice(("2", "4", "8", "many"))
    node_ = node(called, cordoned=source.random() < 0.1, **labels)
    taints = [each for each in _TAINTS if source.random() < 0.08]
    if source.random() < 0.12:
        taints.append(taint("team", value=source.choice("ab")))
    if source.random() < 0.08:
        unready = "node.kubernetes.io/not-ready"
        taints += [taint(unready), taint(unready, "NoExecute")]
        node_["status"]["conditions"] = [READY | {"status": "False"}]
    if taints:
        node_["spec"]["taints"] = taints
    allocatable = node_["status"]["allocatable"]
    allocatable |= {
        "cpu": source.choice(("4", "16", "7500m", "64")),
        "memory": source.choice(("8Gi", "32Gi", "64Gi", "128Gi", "500M")),
        "pods": source.choice(("3", "5", "110", "110", "110")),
    }
    if source.random() < 0.3:
        allocatable["example.com/fpga"] = source.choice(("0", "1", "4"))
    if source.random() < 0.15:
        allocatable["claimd.dev/gpu"] = source.choice(("0", "2"))

    objects = [node_]
    if source.random() < 0.85:
        objects += _gpus(source, called)
    if source.random() < 0.4:
        devices = [nic(index, f"pci0000:{0x40 + 0x10 * index:x}") for index in range(2)]
        objects.append(slice_(devices, node=called, called=f"nics-{called}", driver=NIC))
    for number in range(source.randint(0, 2)):
        objects.append(on(called, _neighbour(source, f"{called}-pod-{number}")))
    return objects


def _gpus(source: random.Random, place: str) -> list[Object]:
    if source.random() < 0.2:
        return _parts(source, place)
    model = source.choice((H100, H100, A100, MI300X))
    devices = []
    for index in range(source.randint(2, 8)):
        device = gpu(index, model, per_root=source.choice((1, 2, 2)))
        if source.random() < 0.1:
            device["taints"] = [taint("hot", source.choice(("NoSchedule", "NoExecute", "None")))]
        if source.random() < 0.15:
            device["allowMultipleAllocations"] = True
        if source.random() < 0.02:
            del device["attributes"]["vendor"]
        devices.append(device)
    count = 2 if source.random() < 0.03 else 1
    published = slice_(devices, node=place, count=count)
    held = [device["name"] for device in devices if source.random() < 0.25]
    shared = {each["name"] for each in devices if each.get("allowMultipleAllocations")}
    held = [each for each in held if each not in shared]
    if not held:
        return [published]
    return [published, claim(f"held-{place}", held=held, on=place, pinned=place, reserved=["x"])]


def _parts(source: random.Random, place: str) -> list[Object]:
    """Builds the parts of a GPU, which share its counters."""
    total = source.choice(("4", "7"))
    counters = [{"name": "gpu-0", "counters": {"slices": {"value": total}}}]
    devices = []
    for index in range(source.randint(2, 6)):
        device = gpu(index, A100, per_root=8)
        size = str(source.choice((1, 2, 3, 4)))
        used = {"counterSet": "gpu-0", "counters": {"slices": {"value": size}}}
        devices.append(device | {"consumesCounters": [used]})
    return [
        slice_(devices, node=place, count=2),
        slice_([], node=place, count=2, called=f"counters-{place}", sharedCounters=counters),
    ]


def _neighbour(source: random.Random, called: str) -> Object:
    phase = source.choice(("Running", "Running", "Succeeded"))
    return job(called, requests=_requests(source), ports=_ports(source)) | {
        "status": {"phase": phase}
    }


def _requests(source: random.Random) -> Object:
    requests: Object = {}
    if source.random() < 0.8:
        requests["cpu"] = source.choice(("1", "500m", "1", "2", "4", "7500m", "20"))
    if source.random() < 0.6:
        requests["memory"] = source.choice(("1Gi", "500M", "2Gi", "4Gi", "12Gi", "100Gi"))
    if source.random() < 0.12:
        requests["example.com/fpga"] = source.choice(("1", "3"))
    return requests


def _ports(source: random.Random) -> list[Object]:
    if source.random() > 0.15:
        return []
    more = {"protocol": "UDP"} if source.random() < 0.3 else {}
    if source.random() < 0.4:
        more["hostIP"] = source.choice(("10.0.0.1", "10.0.0.2"))
    return [port(source.choice((80, 8080)), **more)]


# The pods that arrive


def _arrival(source: random.Random, number: int, nodes: list[str]) -> Arrival:
    called = f"job-{number}"
    requests = _requests(source)
    if source.random() < 0.12:
        requests["claimd.dev/gpu"] = source.choice(("1", "2"))
    claims = [
        _claim(source, f"{called}-claim-{index}")
        for index in range(source.choice((0, 0, 1, 1, 1, 2)))
    ]
    names = {f"c{index}": item["metadata"]["name"] for index, item in enumerate(claims)}
    if number and source.random() < 0.06:
        # If that pod was not bound, its claims are deleted, so this pod's claim is missing.
        names["shared"] = f"job-{source.randrange(number)}-claim-0"
    pod = job(called, requests, _ports(source), **names)

    spec: Object = {}
    tolerations = [each for each in _TOLERATIONS if source.random() < 0.15]
    if tolerations:
        spec["tolerations"] = tolerations
    if source.random() < 0.1:
        spec["nodeSelector"] = {"zone": source.choice("abc")}
    if source.random() < 0.15:
        spec["affinity"] = _affinity(source, nodes)
    if source.random() < 0.15:
        init = {"name": "init", "image": "busybox", "resources": {"requests": {"cpu": "6"}}}
        spec["initContainers"] = [
            init | ({"restartPolicy": "Always"} if source.random() < 0.5 else {})
        ]
    if source.random() < 0.03:
        spec["schedulingGates"] = [{"name": "example.com/quota"}]
    return Arrival(claims=tuple(claims), pod=with_(pod, **spec))


def _affinity(source: random.Random, nodes: list[str]) -> Object:
    if source.random() < 0.2:
        return affinity(fields=[among("metadata.name", "In", source.choice(nodes))])
    return affinity(
        source.choice(
            (
                among("zone", "In", *source.sample("abc", 2)),
                among("zone", "NotIn", source.choice("abc")),
                among("zone", "Exists"),
                among("zone", "DoesNotExist"),
                among("gpus", "Gt", "2"),
                among("gpus", "Lt", "8"),
            )
        )
    )


def _claim(source: random.Random, called: str) -> Object:
    requests = [_request(source, f"r{index}") for index in range(source.choice((1, 1, 1, 2)))]
    constraints = []
    if source.random() < 0.25:
        kind = source.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        constraints.append({kind: source.choice((ROOT, ROOT, NUMA))})
    return claim(called, *requests, constraints=constraints)


def _request(source: random.Random, called: str) -> Object:
    if source.random() < 0.15:
        first = {"name": "a", "deviceClassName": "large", "count": 2}
        return {
            "name": called,
            "firstAvailable": [first, {"name": "b", "deviceClassName": DRIVER}],
        }
    chosen = source.choice((DRIVER, DRIVER, DRIVER, DRIVER, "large", "nic"))
    exactly: Object = {"deviceClassName": chosen}
    if source.random() < 0.12:
        exactly = {"deviceClassName": chosen, "allocationMode": "All"}
    elif source.random() < 0.3:
        exactly["count"] = source.randint(2, 4)
    if chosen == DRIVER and source.random() < 0.35:
        exactly["selectors"] = [selector(source.choice(_SELECTORS))]
    if source.random() < 0.15:
        exactly["tolerations"] = [{"key": "hot", "operator": "Exists"}]
    if chosen == DRIVER and source.random() < 0.15:
        memory = source.choice(("10Gi", "40Gi", "100Gi"))
        exactly["capacity"] = {"requests": {"memory": memory}}
    return {"name": called, "exactly": exactly}
