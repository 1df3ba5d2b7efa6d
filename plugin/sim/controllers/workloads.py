"""Pods of Deployments and DaemonSets. A Deployment owns its pods itself: there are no replica sets
between them.

A new template replaces one pod at a time, the next when the one before is ready. Rollback and
history are not here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ... import timestamps
from ...api.document import Document
from .. import client
from ..client import Call
from .objects import World, has_ended, owned_by, owner

HASH = "pod-template-hash"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
EVERYWHERE = (  # taints of nodes that pods of a DaemonSet always tolerate
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


def decide(world: World, now: float) -> list[Call]:
    calls: list[Call] = []
    for deployment in filter(_is_whole, world["deployments"].values()):
        calls += _deployment(world, deployment, now)
    for daemons in filter(_is_whole, world["daemonsets"].values()):
        calls += _daemon_set(world, daemons)
    return calls


def _is_whole(parent: Document) -> bool:
    """Neither on its way out nor without what its pods are to be."""
    return not _is_leaving(parent) and "spec" in ((parent.get("spec") or {}).get("template") or {})


# ---------------------------------------------------------------- deployments


def _deployment(world: World, deployment: Document, now: float) -> Iterator[Call]:
    spec = deployment["spec"]
    wanted = spec.get("replicas", 1)
    digest = digest_of_template(spec["template"])
    pods = _pods_of(world, deployment)
    alive = sorted(
        (pod for pod in pods if not has_ended(pod) and not _is_leaving(pod)),
        key=lambda pod: (_digest_of(pod) != digest, not _is_ready(pod), pod["metadata"]["name"]),
    )
    fresh = [pod for pod in alive if _digest_of(pod) == digest]
    if len(alive) < wanted:
        taken = {pod["metadata"]["name"] for pod in pods}
        yield from (
            _made("Deployment", deployment, name, digest, {})
            for name in _names(deployment, digest, wanted - len(alive), taken)
        )
    elif len(alive) > wanted:
        yield from (client.delete("pods", pod) for pod in alive[wanted:])
    elif len(fresh) < len(alive) and all(map(_is_ready, fresh)):
        yield client.delete("pods", alive[-1])
    yield from (
        client.delete("pods", pod) for pod in pods if has_ended(pod) and not _is_leaving(pod)
    )
    ready = sum(map(_is_ready, alive))
    counts = {
        "replicas": len(alive),
        "updatedReplicas": len(fresh),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(wanted - ready, 0),
        "conditions": [_available(deployment, ready >= wanted, now)],
    }
    yield from _told("deployments", deployment, counts)


def _names(deployment: Document, digest: str, count: int, taken: set[str]) -> Iterator[str]:
    """The first free ones of an endless row: the same again until something has come of them, and
    then others.
    """
    number = 0
    while count:
        salt = _letters(f"{_state(deployment)} {digest} {number}", 5)
        name = f"{deployment['metadata']['name'][:240]}-{digest}-{salt}"
        number += 1
        if name not in taken:
            count -= 1
            yield name


def _available(deployment: Document, enough: bool, now: float) -> Document:
    """With the time of its last change."""
    state = "True" if enough else "False"
    old = [
        one
        for one in (deployment.get("status") or {}).get("conditions") or ()
        if one["type"] == "Available"
    ]
    if old and old[0]["status"] == state:
        return old[0]  # type: ignore[no-any-return]
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    moment = timestamps.rfc3339(now)
    times = {"lastUpdateTime": moment, "lastTransitionTime": moment}
    return {"type": "Available", "status": state, "reason": reason, "message": message} | times


# ---------------------------------------------------------------- daemon sets


def _daemon_set(world: World, daemons: Document) -> Iterator[Call]:
    digest = digest_of_template(daemons["spec"]["template"])
    pods = _pods_of(world, daemons)
    by_node = {_node_of(pod): pod for pod in pods if not has_ended(pod)}
    nodes = [name for name, node in world["nodes"].items() if _runs_on(daemons, node)]
    for name in nodes:
        if name not in by_node:
            salt = _letters(f"{_state(daemons)} {digest} {name}", 5)
            pod_name = f"{daemons['metadata']['name'][:240]}-{salt}"
            if all(pod["metadata"]["name"] != pod_name for pod in pods):
                yield _made("DaemonSet", daemons, pod_name, digest, _only_on(name, daemons))
    here = [by_node[name] for name in nodes if name in by_node]
    alive = [pod for pod in here if not _is_leaving(pod)]
    old = [pod for pod in alive if _digest_of(pod) != digest]
    by_hand = (daemons["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"
    if (
        old
        and not by_hand
        and len(alive) == len(nodes)
        and all(_is_ready(pod) for pod in alive if pod not in old)
    ):
        yield client.delete("pods", old[0])
    misplaced = [pod for pod in by_node.values() if _is_misplaced(world, daemons, pod)]
    gone = [pod for pod in pods if has_ended(pod)] + misplaced
    yield from (client.delete("pods", pod) for pod in gone if not _is_leaving(pod))
    ready = sum(map(_is_ready, alive))
    counts = {
        "desiredNumberScheduled": len(nodes),
        "currentNumberScheduled": len(alive),
        "updatedNumberScheduled": len(alive) - len(old),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberMisscheduled": len(misplaced),
        "numberUnavailable": len(nodes) - ready,
    }
    yield from _told("daemonsets", daemons, counts)


def _is_misplaced(world: World, daemons: Document, pod: Document) -> bool:
    """A pod that is on a node that does not exist is not ours to end."""
    node = world["nodes"].get(_node_of(pod))
    if node is None:
        return not pod["spec"].get("nodeName")
    return not _runs_on(daemons, node, evicting=True)


def _runs_on(daemons: Document, node: Document, *, evicting: bool = False) -> bool:
    """By the template's nodeSelector and the node's taints, for a pod that is there only by those
    that evict.

    Affinity is left to the scheduler.
    """
    spec = daemons["spec"]["template"]["spec"]
    labels = node["metadata"].get("labels") or {}
    if (
        node["metadata"].get("deletionTimestamp")
        or not (spec.get("nodeSelector") or {}).items() <= labels.items()
    ):
        return False
    tolerations = [*(spec.get("tolerations") or ()), *_tolerations()]
    effects = ("NoExecute",) if evicting else ("NoSchedule", "NoExecute")
    return all(
        taint.get("effect") not in effects or any(_tolerates(one, taint) for one in tolerations)
        for taint in (node.get("spec") or {}).get("taints") or ()
    )


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or bool(
        toleration.get("value", "") == taint.get("value", "")
    )


def _tolerations() -> list[Document]:
    return [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        for name, effect in EVERYWHERE
    ]


def _only_on(node: str, daemons: Document) -> Document:
    """What the pod's spec has beside the template's: the scheduler is to put it on this node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = (daemons["spec"]["template"]["spec"].get("affinity") or {}) | {
        "nodeAffinity": required
    }
    own = daemons["spec"]["template"]["spec"].get("tolerations") or []
    return {"affinity": affinity, "tolerations": [*own, *_tolerations()]}


def _node_of(pod: Document) -> str:
    """Where it is, or is to go."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    try:
        required = pod["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
    except (KeyError, IndexError):
        return ""


# ---------------------------------------------------------------- both


def _made(kind: str, parent: Document, name: str, digest: str, more: Document) -> Call:
    template = parent["spec"]["template"]
    head = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": parent["metadata"]["namespace"],
        "labels": (head.get("labels") or {}) | {HASH: digest},
        "ownerReferences": [owner("apps/v1", kind, parent) | {"blockOwnerDeletion": True}],
    }
    if annotations := head.get("annotations"):
        metadata["annotations"] = annotations
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"] | more,
    }
    return Call(method="POST", kind="pods", namespace=metadata["namespace"], body=body)


def _told(kind: str, parent: Document, counts: Document) -> Iterator[Call]:
    status = counts | {"observedGeneration": parent["metadata"].get("generation", 0)}
    known = parent.get("status") or {}
    if any(known.get(name) != value for name, value in status.items()):
        yield client.put(kind, parent | {"status": known | status}, "status")


def _state(parent: Document) -> str:
    return f"{parent['metadata']['uid']} {parent['metadata'].get('resourceVersion', '')}"


def _pods_of(world: World, parent: Document) -> Sequence[Document]:
    return [pod for pod in world["pods"].values() if owned_by(pod, parent)]


def _is_leaving(obj: Document) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _is_ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    ) and not _is_leaving(pod)


def digest_of_template(template: Document) -> str:
    """What tells pods of this template from those of another; it is their label `HASH`."""
    return _letters(json.dumps(template, sort_keys=True), 9)


def _digest_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH, ""))


def _letters(text: str, count: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
    return "".join(
        LETTERS[number // len(LETTERS) ** place % len(LETTERS)] for place in range(count)
    )
