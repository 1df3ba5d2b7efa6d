"""The node controller: taints nodes by their conditions, and marks nodes whose kubelet is silent.

No pod may be scheduled to a node that is not ready, and after a while `taint_evictions` evicts the
pods that are on it. If the kubelet of a node has never renewed a lease, the node's conditions are
believed.
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
MONITOR_PERIOD = 5.0  # seconds between two checks of the leases
GRACE = 50.0  # seconds without a lease renewal until a node counts as silent
# The conditions that only the kubelet can know; they become Unknown when it is silent.
_KUBELETS_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def sync(objects: Objects, now: float) -> Iterator[Request]:
    """Yields node updates that add and remove this controller's taints; other taints stay."""
    for node in objects["nodes"].values():
        spec = node.get("spec") or {}
        present = spec.get("taints") or []

        wanted = {(key, "NoSchedule") for key in _wanted_keys(node)}
        wanted |= {(key, "NoExecute") for key in _evicting_keys(node)}

        # A taint that stays keeps its place and its other fields, such as its time.
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
    """Yields the NoExecute taint for a node that is not ready.

    A node without a Ready condition gets no taint.
    """
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
    """Returns for each node its last sign of life and the seconds since then.

    `before` is the result of the last round, and `elapsed` the seconds since that round. A late
    round, for example after this machine has slept, counts only part of the gap: nothing was
    watched meanwhile.
    """
    watched = min(elapsed, 2 * MONITOR_PERIOD)
    result: dict[str, tuple[object, float]] = {}
    for name in objects["nodes"]:
        lease = objects["leases"].get(f"{LEASES}/{name}")
        if lease is None:
            continue

        sign = (lease.get("spec") or {}).get("renewTime")
        known, silent = before.get(name, (None, 0.0))
        result[name] = sign, silent + watched if sign == known else 0.0
    return result


def sync_silent(objects: Objects, silent: Collection[str], now: float) -> Iterator[Request]:
    """Yields patches that set the conditions of silent nodes to Unknown."""
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
    """Yields patches and events that mark pods on not-ready nodes as not ready."""
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
