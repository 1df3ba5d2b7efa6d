"""What there is to see of a cluster at one moment: nodes, their GPUs, pods and claims. Pure:
objects in, a Scene out.

How it looks on a terminal is the picture's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FREE, HELD, SICK = "free", "held", "sick"

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    state: str  # FREE, HELD or SICK
    note: str = ""  # who holds it, or what is wrong with it


@dataclass(frozen=True, kw_only=True)
class Node:
    name: str
    product: str = ""
    plugin: str = ""  # how its `claimd run` is
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A pod and its claims, or a claim that no pod has."""

    pod: str = ""
    phase: str = ""
    node: str = ""
    claim: str = ""
    devices: tuple[str, ...] = ()
    waits: str = ""  # why it is not running


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
    """`plugins` says of each node how its `claimd run` is. Pods of the namespace `default` alone
    are shown.
    """
    pods = [one for one in pods if _meta(one, "namespace") == "default"]
    claims = sorted(claims, key=lambda one: _meta(one, "name"))
    users = _users(claims, pods)
    found = list(slices)
    return Scene(
        nodes=tuple(
            _node(_meta(node, "name"), found, users, plugins)
            for node in sorted(nodes, key=lambda one: _meta(one, "name"))
        ),
        rows=tuple(_rows(claims, pods)),
    )


def _node(
    name: str,
    slices: Iterable[Object],
    users: Mapping[tuple[str, str], str],
    plugins: Mapping[str, str],
) -> Node:
    devices = [
        (one["spec"]["pool"]["name"], device)
        for one in slices
        if one["spec"].get("nodeName") == name
        for device in one["spec"].get("devices") or ()
    ]
    products = {_text(device, "productName") for _, device in devices} - {""}
    gpus = (_gpu(device, users.get((pool, device["name"]), "")) for pool, device in devices)
    return Node(
        name=name,
        product=", ".join(sorted(products)),
        plugin=plugins.get(name, ""),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.name)),
    )


def _gpu(device: Object, user: str) -> Gpu:
    taints = [taint["key"].rpartition("/")[2] for taint in device.get("taints") or ()]
    if taints:
        return Gpu(
            name=device["name"], state=SICK, note=", ".join(taints) + (f", {user}" if user else "")
        )
    return Gpu(name=device["name"], state=HELD if user else FREE, note=user)


def _users(claims: Iterable[Object], pods: Iterable[Object]) -> dict[tuple[str, str], str]:
    """By pool and device: the pods that use it, or else the claim that holds it."""
    found: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        names = {_meta(pod, "name") for pod in pods if _meta(claim, "name") in _claims_of(pod)}
        for pool, device in _devices(claim):
            found.setdefault((pool, device), set()).update(names or {_meta(claim, "name")})
    return {key: ", ".join(sorted(names)) for key, names in found.items()}


def _rows(claims: list[Object], pods: list[Object]) -> Iterable[Row]:
    by_name = {_meta(one, "name"): one for one in claims}
    used: set[str] = set()
    for pod in sorted(pods, key=lambda one: _meta(one, "name")):
        names = [name for name in _claims_of(pod) if name in by_name]
        used.update(names)
        status = pod.get("status") or {}
        ending = pod["metadata"].get("deletionTimestamp")
        yield Row(
            pod=_meta(pod, "name"),
            phase="Terminating" if ending else status.get("phase") or "Pending",
            node=(pod.get("spec") or {}).get("nodeName", ""),
            claim=", ".join(names),
            devices=tuple(device for name in names for _, device in _devices(by_name[name])),
            waits=_waits(status),
        )
    for name in sorted(by_name.keys() - used):
        devices = _devices(by_name[name])
        node = devices[0][0] if devices else ""
        yield Row(claim=name, node=node, devices=tuple(device for _, device in devices))


def _waits(status: Object) -> str:
    if status.get("phase") not in (None, "Pending"):
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message", ""))
    return ""


def _claims_of(pod: Object) -> list[str]:
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    entries = (pod.get("spec") or {}).get("resourceClaims") or ()
    names = [one.get("resourceClaimName") or made.get(one["name"]) for one in entries]
    extended = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get(
        "resourceClaimName"
    )
    return [name for name in (*names, extended) if name]


def _devices(claim: Object) -> list[tuple[str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [
        (one["pool"], one["device"])
        for one in (allocation.get("devices") or {}).get("results") or ()
    ]


def _text(device: Object, attribute: str) -> str:
    return str((device.get("attributes") or {}).get(attribute, {}).get("string", ""))


def _meta(obj: Object, name: str) -> str:
    return str(obj["metadata"].get(name, ""))
