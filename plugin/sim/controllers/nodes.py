"""Taints of nodes by what their kubelets say of them: no pod is to come to a node that is not
ready.

Not here: that a kubelet has fallen silent, and the end of pods on a node that is not ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...api.document import Document
from .. import client
from ..client import Call
from .objects import World

PREFIX = "node.kubernetes.io/"
PRESSURES = {
    "MemoryPressure": "memory-pressure",
    "DiskPressure": "disk-pressure",
    "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network-unavailable",
}
OURS = frozenset(
    PREFIX + name for name in (*PRESSURES.values(), "not-ready", "unreachable", "unschedulable")
)


def decide(world: World) -> Iterator[Call]:
    for node in world["nodes"].values():
        spec = node.get("spec") or {}
        old = spec.get("taints") or []
        wanted = set(_wanted(node))
        kept = [one for one in old if not _is_ours(one) or one["key"] in wanted]
        missing = wanted - {one["key"] for one in kept if _is_ours(one)}
        new = kept + [{"key": key, "effect": "NoSchedule"} for key in sorted(missing)]
        if new != old:
            rest = {name: value for name, value in spec.items() if name != "taints"}
            yield client.put("nodes", node | {"spec": rest | ({"taints": new} if new else {})})


def _is_ours(taint: Document) -> bool:
    return taint["key"] in OURS and taint.get("effect") == "NoSchedule"


def _wanted(node: Document) -> Iterator[str]:
    conditions = {
        one["type"]: one["status"] for one in (node.get("status") or {}).get("conditions") or ()
    }
    ready = conditions.get("Ready", "False")
    if ready != "True":
        yield PREFIX + ("unreachable" if ready == "Unknown" else "not-ready")
    if (node.get("spec") or {}).get("unschedulable"):
        yield PREFIX + "unschedulable"
    yield from (
        PREFIX + name
        for condition, name in PRESSURES.items()
        if conditions.get(condition) == "True"
    )
