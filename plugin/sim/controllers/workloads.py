"""Pods of Deployments and DaemonSets. A Deployment owns its pods itself: there are no replica sets
between them.

A new template replaces one pod at a time, the next when the one before is ready. Rollback and
history are not here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ... import timestamps
from ...api.document import Document
from .. import requests
from ..requests import Request
from .objects import (
    Objects,
    controller_reference,
    has_ended,
    is_controlled_by,
    is_terminating,
    is_tolerated,
    name_suffix,
    status_of,
)

TEMPLATE_HASH = "pod-template-hash"
_NAME_LIMIT = 240  # characters of a parent's name that its pods' names begin with
_ALWAYS_TOLERATED = (  # taints of nodes, by pods of a DaemonSet
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


def sync(objects: Objects, now: float) -> list[Request]:
    """Pods to make, pods to delete and statuses to write, of every Deployment and DaemonSet."""
    wanted: list[Request] = []
    for deployment in objects["deployments"].values():
        if _is_active(deployment):
            wanted += _sync_deployment(objects, deployment, now)
    for daemon_set in objects["daemonsets"].values():
        if _is_active(daemon_set):
            wanted += _sync_daemon_set(objects, daemon_set)
    return wanted


def _is_active(parent: Document) -> bool:
    """Neither on its way out nor without what its pods are to be."""
    template = (parent.get("spec") or {}).get("template") or {}
    return not is_terminating(parent) and "spec" in template


# ---------------------------------------------------------------- deployments


def _sync_deployment(objects: Objects, deployment: Document, now: float) -> Iterator[Request]:
    spec = deployment["spec"]
    replicas = spec.get("replicas", 1)
    digest = template_hash(spec["template"])
    pods = _pods_of(objects, deployment)

    # The first are those that stay: of the new template, ready, in the order of their names.
    alive = [pod for pod in pods if not has_ended(pod) and not is_terminating(pod)]
    alive.sort(key=lambda pod: (_hash_of(pod) != digest, not _is_ready(pod), _name_of(pod)))
    updated = [pod for pod in alive if _hash_of(pod) == digest]

    if len(alive) < replicas:
        taken = {_name_of(pod) for pod in pods}
        for name in _free_names(deployment, digest, replicas - len(alive), taken):
            yield _create_pod("Deployment", deployment, name, digest, {})
    elif len(alive) > replicas:
        for pod in alive[replicas:]:
            yield requests.delete("pods", pod)
    elif len(updated) < len(alive) and all(map(_is_ready, updated)):
        yield requests.delete("pods", alive[-1])

    for pod in pods:
        if has_ended(pod) and not is_terminating(pod):
            yield requests.delete("pods", pod)

    ready = sum(map(_is_ready, alive))
    counts = {
        "replicas": len(alive),
        "updatedReplicas": len(updated),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(replicas - ready, 0),
        "conditions": [_available_condition(deployment, ready >= replicas, now)],
    }
    yield from _update_status("deployments", deployment, counts)


def _free_names(deployment: Document, digest: str, count: int, taken: set[str]) -> Iterator[str]:
    """The first free ones of an endless row.

    They are the same again until something has come of them, and then others.
    """
    number = 0
    while count:
        suffix = name_suffix(f"{_revision(deployment)} {digest} {number}", 5)
        name = f"{_name_of(deployment)[:_NAME_LIMIT]}-{digest}-{suffix}"
        number += 1
        if name not in taken:
            count -= 1
            yield name


def _available_condition(deployment: Document, enough: bool, now: float) -> Document:
    """With the time of its last change."""
    status = "True" if enough else "False"
    for condition in status_of(deployment).get("conditions") or ():
        if condition["type"] == "Available" and condition["status"] == status:
            return condition  # type: ignore[no-any-return]

    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    has = "has" if enough else "does not have"
    moment = timestamps.rfc3339(now)
    return {
        "type": "Available",
        "status": status,
        "reason": reason,
        "message": f"Deployment {has} minimum availability.",
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }


# ---------------------------------------------------------------- daemon sets


def _sync_daemon_set(objects: Objects, daemon_set: Document) -> Iterator[Request]:
    digest = template_hash(daemon_set["spec"]["template"])
    pods = _pods_of(objects, daemon_set)
    by_node = {_node_of(pod): pod for pod in pods if not has_ended(pod)}
    nodes = [name for name, node in objects["nodes"].items() if _may_run_on(daemon_set, node)]

    # One pod for every node that has none. Its name is always the same, so that the one before it
    # has to be gone first.
    taken = {_name_of(pod) for pod in pods}
    for node in nodes:
        suffix = name_suffix(f"{_revision(daemon_set)} {digest} {node}", 5)
        name = f"{_name_of(daemon_set)[:_NAME_LIMIT]}-{suffix}"
        if node not in by_node and name not in taken:
            more = _only_on(node, daemon_set)
            yield _create_pod("DaemonSet", daemon_set, name, digest, more)

    # One pod of an old template goes when every node has one and those of the new one are ready.
    alive = [by_node[name] for name in nodes if name in by_node]
    alive = [pod for pod in alive if not is_terminating(pod)]
    outdated = [pod for pod in alive if _hash_of(pod) != digest]
    updated = [pod for pod in alive if _hash_of(pod) == digest]
    strategy = (daemon_set["spec"].get("updateStrategy") or {}).get("type")
    may_replace = len(alive) == len(nodes) and all(map(_is_ready, updated))
    if outdated and may_replace and strategy != "OnDelete":
        yield requests.delete("pods", outdated[0])

    misplaced = [pod for pod in by_node.values() if _is_misplaced(objects, daemon_set, pod)]
    ended = [pod for pod in pods if has_ended(pod)]
    for pod in (*ended, *misplaced):
        if not is_terminating(pod):
            yield requests.delete("pods", pod)

    ready = sum(map(_is_ready, alive))
    counts = {
        "desiredNumberScheduled": len(nodes),
        "currentNumberScheduled": len(alive),
        "updatedNumberScheduled": len(updated),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberMisscheduled": len(misplaced),
        "numberUnavailable": len(nodes) - ready,
    }
    yield from _update_status("daemonsets", daemon_set, counts)


def _is_misplaced(objects: Objects, daemon_set: Document, pod: Document) -> bool:
    """A pod that is on a node that does not exist is not ours to end."""
    node = objects["nodes"].get(_node_of(pod))
    if node is None:
        return not pod["spec"].get("nodeName")
    return not _may_run_on(daemon_set, node, present=True)


def _may_run_on(daemon_set: Document, node: Document, *, present: bool = False) -> bool:
    """By the template's nodeSelector and the node's taints; affinity is left to the scheduler.

    A pod that is `present` there has to leave only for a taint that evicts.
    """
    spec = daemon_set["spec"]["template"]["spec"]
    labels = node["metadata"].get("labels") or {}
    if is_terminating(node):
        return False
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False

    tolerations = [*(spec.get("tolerations") or ()), *_default_tolerations()]
    effects = ("NoExecute",) if present else ("NoSchedule", "NoExecute")
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") in effects and not is_tolerated(taint, tolerations):
            return False
    return True


def _default_tolerations() -> list[Document]:
    return [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        for name, effect in _ALWAYS_TOLERATED
    ]


def _only_on(node: str, daemon_set: Document) -> Document:
    """What the pod's spec has beside the template's: the scheduler is to put it on this node."""
    spec = daemon_set["spec"]["template"]["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "affinity": (spec.get("affinity") or {}) | {"nodeAffinity": required},
        "tolerations": [*(spec.get("tolerations") or ()), *_default_tolerations()],
    }


def _node_of(pod: Document) -> str:
    """The node that a DaemonSet's pod is on, or is to go to."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    try:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError):
        return ""


# ---------------------------------------------------------------- both


def _create_pod(kind: str, parent: Document, name: str, digest: str, more: Document) -> Request:
    template = parent["spec"]["template"]
    from_template = template.get("metadata") or {}
    reference = controller_reference("apps/v1", kind, parent)
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": parent["metadata"]["namespace"],
        "labels": (from_template.get("labels") or {}) | {TEMPLATE_HASH: digest},
        "ownerReferences": [reference | {"blockOwnerDeletion": True}],
    }
    if annotations := from_template.get("annotations"):
        metadata["annotations"] = annotations
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"] | more,
    }
    return Request(method="POST", resource="pods", namespace=metadata["namespace"], body=body)


def _update_status(resource: str, parent: Document, counts: Document) -> Iterator[Request]:
    """The parent's status, where it says something else now."""
    before = status_of(parent)
    status = counts | {"observedGeneration": parent["metadata"].get("generation", 0)}
    if any(before.get(name) != value for name, value in status.items()):
        yield requests.update(resource, parent | {"status": before | status}, "status")


def _revision(parent: Document) -> str:
    """What tells the parent as it is now from what it was or will be."""
    metadata = parent["metadata"]
    return f"{metadata['uid']} {metadata.get('resourceVersion', '')}"


def _pods_of(objects: Objects, parent: Document) -> Sequence[Document]:
    return [pod for pod in objects["pods"].values() if is_controlled_by(pod, parent)]


def _is_ready(pod: Document) -> bool:
    if is_terminating(pod):
        return False
    conditions = status_of(pod).get("conditions") or ()
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def template_hash(template: Document) -> str:
    """What tells pods of this template from others; their label `TEMPLATE_HASH` has it."""
    return name_suffix(json.dumps(template, sort_keys=True), 9)


def _hash_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH, ""))


def _name_of(obj: Document) -> str:
    return str(obj["metadata"]["name"])
