"""Taints of nodes by what their kubelets say of them, and what is said of a kubelet that is silent.

No pod is to come to a node that is not ready, and those that are there have to leave after a while:
`taint_evictions` ends them. A node whose kubelet has never renewed its lease is taken at its word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import Objects, status_of

RECORDER = requests.EventRecorder("node-controller", "Watching")
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
EVICTING = frozenset((PREFIX + "not-ready", PREFIX + "unreachable"))


LEASES = "kube-node-lease"  # the namespace
MONITOR_PERIOD = 5.0  # seconds between two looks at the leases
GRACE = 50.0  # seconds without a sign of life after which nothing is known of a node
# Of a node that is silent, nobody knows how these are.
_KUBELETS_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def sync(objects: Objects, now: float) -> Iterator[Request]:
    """Adds and takes away the taints that are ours, and leaves those of others alone."""
    for node in objects["nodes"].values():
        spec = node.get("spec") or {}
        present = spec.get("taints") or []
        wanted = {(key, "NoSchedule") for key in _wanted_keys(node)}
        wanted |= {(key, "NoExecute") for key in _evicting_keys(node)}

        # A taint that stays keeps its place and what else it says, its time for one.
        taints = [taint for taint in present if not _is_ours(taint) or _identity(taint) in wanted]
        kept = {_identity(taint) for taint in taints if _is_ours(taint)}
        for key, effect in sorted(wanted - kept):
            taint = {"key": key, "effect": effect, "timeAdded": timestamps.rfc3339(now)}
            taints.append(taint)

        if taints != present:
            changed = {name: value for name, value in spec.items() if name != "taints"}
            if taints:
                changed["taints"] = taints
            yield requests.update("nodes", node | {"spec": changed})


def _is_ours(taint: Document) -> bool:
    if taint.get("effect") == "NoExecute":
        return taint["key"] in EVICTING
    return taint["key"] in OURS and taint.get("effect") == "NoSchedule"


def _identity(taint: Document) -> tuple[str, str]:
    return taint["key"], taint.get("effect", "")


def _evicting_keys(node: Document) -> Iterator[str]:
    """Of a node of which nothing was ever said, nothing has changed for its pods."""
    ready = _ready_status(node)
    if ready == "Unknown":
        yield PREFIX + "unreachable"
    elif ready == "False":
        yield PREFIX + "not-ready"


def _ready_status(node: Document) -> str | None:
    for condition in status_of(node).get("conditions") or ():
        if condition["type"] == "Ready":
            return str(condition["status"])
    return None


def _wanted_keys(node: Document) -> Iterator[str]:
    conditions = {
        condition["type"]: condition["status"]
        for condition in status_of(node).get("conditions") or ()
    }
    ready = conditions.get("Ready", "False")
    if ready == "Unknown":
        yield PREFIX + "unreachable"
    elif ready != "True":
        yield PREFIX + "not-ready"

    if (node.get("spec") or {}).get("unschedulable"):
        yield PREFIX + "unschedulable"

    for condition, name in PRESSURES.items():
        if conditions.get(condition) == "True":
            yield PREFIX + name


# ---------------------------------------------------------------- kubelets that are silent


def silences(
    objects: Objects, before: Mapping[str, tuple[object, float]], elapsed: float
) -> dict[str, tuple[object, float]]:
    """By node: the last sign of life, and the seconds for which there was no other.

    `before` is what the last look has found, `elapsed` the seconds since then. A look that comes
    late, as after this machine has slept, has not watched anybody be silent for so long.
    """
    watched = min(elapsed, 2 * MONITOR_PERIOD)
    found: dict[str, tuple[object, float]] = {}
    for name in objects["nodes"]:
        lease = objects["leases"].get(f"{LEASES}/{name}")
        if lease is None:
            continue
        sign = (lease.get("spec") or {}).get("renewTime")
        known, silent = before.get(name, (None, 0.0))
        found[name] = sign, silent + watched if sign == known else 0.0
    return found


def sync_silent(objects: Objects, silent: Collection[str], now: float) -> Iterator[Request]:
    """Of nodes that are silent nothing is known any more."""
    for name in sorted(silent):
        conditions = status_of(objects["nodes"][name]).get("conditions") or ()
        unknown = [
            condition
            | {
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": timestamps.rfc3339(now),
            }
            for condition in conditions
            if condition["type"] in _KUBELETS_CONDITIONS and condition["status"] != "Unknown"
        ]
        if unknown:
            node = objects["nodes"][name]
            yield requests.patch_status("nodes", node, {"conditions": unknown})


def sync_pods(objects: Objects, now: float) -> Iterator[Request]:
    """No pod is ready on a node that is not."""
    away = {name for name, node in objects["nodes"].items() if any(_evicting_keys(node))}
    for pod in objects["pods"].values():
        if pod["spec"].get("nodeName") not in away:
            continue
        for condition in status_of(pod).get("conditions") or ():
            if condition["type"] == "Ready" and condition["status"] == "True":
                changed = condition | {
                    "status": "False",
                    "lastTransitionTime": timestamps.rfc3339(now),
                }
                yield requests.patch_status("pods", pod, {"conditions": [changed]})
                yield requests.create_event(
                    pod, "Pod", "NodeNotReady", "Node is not ready", RECORDER, warning=True
                )
