"""The visible state of a cluster at one moment: nodes, GPUs, pods and claims.

This module decides which facts are visible, without I/O, and `picture` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FREE, HELD, SICK = "free", "held", "sick"

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    state: str  # FREE, HELD or SICK
    note: str = ""  # its user, or what is wrong with it


@dataclass(frozen=True, kw_only=True)
class Node:
    name: str
    product: str = ""
    plugin: str = ""  # the state of its `claimd run`
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A pod and its claims, or a claim without a pod."""

    pod: str = ""
    phase: str = ""
    node: str = ""
    claim: str = ""
    devices: tuple[str, ...] = ()
    waits_for: str = ""  # why it is not running


@dataclass(frozen=True, kw_only=True)
class Scene:
    nodes: tuple[Node, ...] = ()
    rows: tuple[Row, ...] = ()


def build(
    nodes: Iterable[Object],
    slices: Iterable[Object],
    claims: Iterable[Object],
    pods: Iterable[Object],
    plugins: Mapping[str, str],
) -> Scene:
    """Builds the scene. `plugins` maps each node to the state of its `claimd run`.

    It shows only pods of the namespace `default`.
    """
    shown_pods = [pod for pod in pods if _meta(pod, "namespace") == "default"]
    sorted_claims = sorted(claims, key=_name)
    users = _users(sorted_claims, shown_pods)
    all_slices = list(slices)
    return Scene(
        nodes=tuple(
            _build_node(_name(node), all_slices, users, plugins)
            for node in sorted(nodes, key=_name)
        ),
        rows=tuple(_build_rows(sorted_claims, shown_pods)),
    )


def _build_node(
    name: str,
    slices: Iterable[Object],
    users: Mapping[tuple[str, str], str],
    plugins: Mapping[str, str],
) -> Node:
    gpus: list[Gpu] = []
    products: set[str] = set()
    for slice_ in slices:
        spec = slice_["spec"]
        if spec.get("nodeName") != name:
            continue
        for device in spec.get("devices") or ():
            user = users.get((spec["pool"]["name"], device["name"]), "")
            gpus.append(_build_gpu(device, user))
            products.add(_product(device))
    return Node(
        name=name,
        product=", ".join(sorted(products - {""})),
        plugin=plugins.get(name, ""),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.name)),
    )


def _build_gpu(device: Object, user: str) -> Gpu:
    """Builds a GPU, whose taints are more important than its user."""
    taints = [taint["key"].rpartition("/")[2] for taint in device.get("taints") or ()]
    if taints:
        notes = [*taints, user] if user else taints
        return Gpu(name=device["name"], state=SICK, note=", ".join(notes))
    return Gpu(name=device["name"], state=HELD if user else FREE, note=user)


def _users(claims: Iterable[Object], pods: Sequence[Object]) -> dict[tuple[str, str], str]:
    """Returns the pods that use each (pool, device), or the claim that holds it if no pod does."""
    users: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        name = _name(claim)
        pod_names = {_name(pod) for pod in pods if name in _claims_of(pod)}
        for device in _devices(claim):
            users.setdefault(device, set()).update(pod_names or {name})
    return {device: ", ".join(sorted(names)) for device, names in users.items()}


def _build_rows(claims: list[Object], pods: list[Object]) -> Iterator[Row]:
    by_name = {_name(claim): claim for claim in claims}
    used: set[str] = set()
    for pod in sorted(pods, key=_name):
        names = [name for name in _claims_of(pod) if name in by_name]
        used.update(names)
        devices: list[str] = []
        for name in names:
            devices += [device for _, device in _devices(by_name[name])]

        status = pod.get("status") or {}
        phase = status.get("phase") or "Pending"
        if pod["metadata"].get("deletionTimestamp"):
            phase = "Terminating"
        yield Row(
            pod=_name(pod),
            phase=phase,
            node=(pod.get("spec") or {}).get("nodeName", ""),
            claim=", ".join(names),
            devices=tuple(devices),
            waits_for=_waits_for(status),
        )

    for name in sorted(by_name.keys() - used):
        held = _devices(by_name[name])
        node = held[0][0] if held else ""  # a pool has its node's name
        yield Row(claim=name, node=node, devices=tuple(device for _, device in held))


def _waits_for(status: Object) -> str:
    """Returns the scheduler's message about a pod without a node."""
    if status.get("phase") not in (None, "Pending"):
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message", ""))
    return ""


def _claims_of(pod: Object) -> list[str]:
    """Returns the names of the pod's claims, also those from templates and extended resources."""
    status = pod.get("status") or {}
    created = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in status.get("resourceClaimStatuses") or ()
    }
    names = []
    for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
        names.append(entry.get("resourceClaimName") or created.get(entry["name"]))
    extended = status.get("extendedResourceClaimStatus") or {}
    names.append(extended.get("resourceClaimName"))
    return [name for name in names if name]


def _devices(claim: Object) -> list[tuple[str, str]]:
    """Returns pool and name of each device allocated to the claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(result["pool"], result["device"]) for result in results]


def _product(device: Object) -> str:
    attribute = (device.get("attributes") or {}).get("productName", {})
    return str(attribute.get("string", ""))


def _name(obj: Object) -> str:
    return _meta(obj, "name")


def _meta(obj: Object, field: str) -> str:
    return str(obj["metadata"].get(field, ""))
