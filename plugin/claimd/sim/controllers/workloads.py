"""The DaemonSet controller, and the round over all workloads.

After a change of the template one pod of a DaemonSet is replaced at a time, and the next one when
its successor is ready. The hash of the template labels the pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.scheduling import daemon_sets

from ..requests import Request
from . import deployments, replica_sets
from .objects import Objects, has_ended, is_terminating, is_tolerated, name_suffix
from .templates import (
    NAME_LIMIT,
    children,
    create_pod,
    delete_pod,
    has_template,
    is_ready,
    name_of,
    revision,
    template_hash,
    update_status,
)

# The label of a pod that has the hash of its template.
POD_LABEL = "controller-revision-hash"


def sync(objects: Objects, now: float) -> list[Request]:
    """Returns all requests for all workloads, including their statuses."""
    wanted = [*deployments.sync(objects, now), *replica_sets.sync(objects, now)]
    for daemon_set in objects["daemonsets"].values():
        if not is_terminating(daemon_set) and has_template(daemon_set):
            wanted += _sync_daemon_set(objects, daemon_set)
    return wanted


def next_look(objects: Objects, now: float) -> float | None:
    """Returns the seconds until something is due without any change of objects, or None."""
    waits = [deployments.next_deadline(objects, now), replica_sets.next_available(objects, now)]
    return min((wait for wait in waits if wait is not None), default=None)


def _sync_daemon_set(objects: Objects, daemon_set: Document) -> Iterator[Request]:
    digest = template_hash(daemon_set["spec"]["template"])
    pods = children(objects, "pods", daemon_set)
    by_node = {_node_of(pod): pod for pod in pods if not has_ended(pod)}
    nodes = [name for name, node in objects["nodes"].items() if _may_run_on(daemon_set, node)]

    # Create a pod for every node without one. Its name is always the same, so its predecessor must
    # be gone first.
    taken = {name_of(pod) for pod in pods}
    for node in nodes:
        suffix = name_suffix(f"{revision(daemon_set)} {digest} {node}", 5)
        name = f"{name_of(daemon_set)[:NAME_LIMIT]}-{suffix}"
        if node not in by_node and name not in taken:
            more = _only_on(node, daemon_set)
            yield create_pod("DaemonSet", daemon_set, name, {POD_LABEL: digest}, more)

    # Replace one outdated pod, once every node has a pod and all updated pods are ready.
    alive = [by_node[name] for name in nodes if name in by_node]
    alive = [pod for pod in alive if not is_terminating(pod)]
    outdated = [pod for pod in alive if _label_of(pod) != digest]
    updated = [pod for pod in alive if _label_of(pod) == digest]
    strategy = (daemon_set["spec"].get("updateStrategy") or {}).get("type")
    may_replace = len(alive) == len(nodes) and all(map(is_ready, updated))
    if outdated and may_replace and strategy != "OnDelete":
        yield delete_pod("DaemonSet", daemon_set, outdated[0])

    # Ended pods are replaced under the same name, so delete them as well as the misplaced ones.
    misplaced = [pod for pod in by_node.values() if _is_misplaced(objects, daemon_set, pod)]
    ended = [pod for pod in pods if has_ended(pod)]
    for pod in (*ended, *misplaced):
        if not is_terminating(pod):
            yield delete_pod("DaemonSet", daemon_set, pod)

    ready = sum(map(is_ready, alive))
    counts = {
        "desiredNumberScheduled": len(nodes),
        "currentNumberScheduled": len(alive),
        "updatedNumberScheduled": len(updated),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberMisscheduled": len(misplaced),
        "numberUnavailable": len(nodes) - ready,
    }
    yield from update_status("daemonsets", daemon_set, counts)


def _is_misplaced(objects: Objects, daemon_set: Document, pod: Document) -> bool:
    """Returns True if the pod's node may not run it.

    A pod on a node that does not exist is left to the pod GC.
    """
    node = objects["nodes"].get(_node_of(pod))
    if node is None:
        return not pod["spec"].get("nodeName")
    return not _may_run_on(daemon_set, node, present=True)


def _may_run_on(daemon_set: Document, node: Document, *, present: bool = False) -> bool:
    """Checks the template's nodeSelector and the node's taints; affinity is left to the scheduler.

    A pod that is already `present` on the node leaves only for a NoExecute taint.
    """
    spec = daemon_set["spec"]["template"]["spec"]
    labels = node["metadata"].get("labels") or {}
    if is_terminating(node):
        return False
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False

    tolerations = daemon_sets.pod_tolerations(spec)
    effects = ("NoExecute",) if present else ("NoSchedule", "NoExecute")
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") in effects and not is_tolerated(taint, tolerations):
            return False
    return True


def _only_on(node: str, daemon_set: Document) -> Document:
    """Returns the fields of the pod's spec that make the scheduler choose this node."""
    spec = daemon_set["spec"]["template"]["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "affinity": (spec.get("affinity") or {}) | {"nodeAffinity": required},
        "tolerations": daemon_sets.pod_tolerations(spec),
    }


def _label_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_LABEL, ""))


def _node_of(pod: Document) -> str:
    """Returns the node that the DaemonSet's pod is on or is meant for."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    try:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError):
        return ""
