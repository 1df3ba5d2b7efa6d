"""The ReplicaSet controller: keeps the wanted number of pods alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from claimd.kubernetes.api.document import Document

from ..requests import Request
from .objects import Objects, has_ended, is_terminating, name_suffix, status_of
from .templates import (
    NAME_LIMIT,
    children,
    create_pod,
    delete_pod,
    has_template,
    is_ready,
    name_of,
    ready_since,
    revision,
    update_status,
)

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"  # annotation


def sync(objects: Objects, now: float) -> Iterator[Request]:
    """Yields requests for pods to create and delete, then the status of each ReplicaSet.

    A pod that has ended is replaced but stays, so that users can look at it.
    """
    for replica_set in objects["replicasets"].values():
        if not is_terminating(replica_set) and has_template(replica_set):
            yield from _sync(objects, replica_set, now)


def next_available(objects: Objects, now: float) -> float | None:
    """Returns the seconds until the next ready pod becomes available, or None."""
    waits = []
    for replica_set in objects["replicasets"].values():
        seconds = _min_ready_seconds(replica_set)
        if not seconds:
            continue
        for pod in children(objects, "pods", replica_set):
            since = ready_since(pod)
            if since is not None and since + seconds > now:
                waits.append(since + seconds - now)
    return min(waits, default=None)


def _sync(objects: Objects, replica_set: Document, now: float) -> Iterator[Request]:
    spec = replica_set["spec"]
    replicas = spec.get("replicas", 1)
    pods = children(objects, "pods", replica_set)
    alive = [pod for pod in pods if not has_ended(pod) and not is_terminating(pod)]

    if len(alive) < replicas:
        taken = {name_of(pod) for pod in pods}
        for name in _free_names(replica_set, replicas - len(alive), taken):
            yield create_pod("ReplicaSet", replica_set, name, {}, {})
    for pod in _in_order_of_deletion(alive)[: max(len(alive) - replicas, 0)]:
        yield delete_pod("ReplicaSet", replica_set, pod)

    # The status counts the pods from before these writes.
    labels = ((spec["template"].get("metadata") or {}).get("labels") or {}).items()
    labelled = [pod for pod in alive if labels <= (pod["metadata"].get("labels") or {}).items()]
    seconds = _min_ready_seconds(replica_set)
    available = [pod for pod in alive if _is_available(pod, seconds, now)]
    counts = {
        "replicas": len(alive),
        "fullyLabeledReplicas": len(labelled),
        "readyReplicas": sum(map(is_ready, alive)),
        "availableReplicas": len(available),
    }
    yield from update_status("replicasets", replica_set, counts)


def _min_ready_seconds(replica_set: Document) -> float:
    return float(replica_set["spec"].get("minReadySeconds") or 0)


def _is_available(pod: Document, seconds: float, now: float) -> bool:
    since = ready_since(pod)
    return since is not None and (not seconds or since + seconds <= now)


def _free_names(replica_set: Document, count: int, taken: set[str]) -> Iterator[str]:
    """Yields the first unused names of an endless, repeatable sequence.

    The sequence depends on the ReplicaSet's resource version. A retry yields the same names, and
    after a change the names are new.
    """
    number = 0
    while count > 0:
        suffix = name_suffix(f"{revision(replica_set)} {number}", 5)
        name = f"{name_of(replica_set)[:NAME_LIMIT]}-{suffix}"
        number += 1
        if name not in taken:
            count -= 1
            yield name


def _in_order_of_deletion(pods: Sequence[Document]) -> list[Document]:
    """Sorts the pods so that those whose deletion costs least come first.

    These are pods without a node, not running, not ready, with a low deletion cost, on a node
    with many ready pods, or young.
    """
    ready_on = Counter(pod["spec"].get("nodeName") for pod in pods if is_ready(pod))

    def loss(pod: Document) -> tuple[bool, int, bool, int, int, float, str, str]:
        node = pod["spec"].get("nodeName")
        phase = _PHASES.get(status_of(pod).get("phase", ""), 0)
        return (
            bool(node),
            phase,
            is_ready(pod),
            _deletion_cost(pod),
            -ready_on[node],
            -(ready_since(pod) or 0.0),
            # RFC 3339 times sort as text; the youngest pod comes first.
            _reverse_order(pod["metadata"].get("creationTimestamp") or ""),
            name_of(pod),
        )

    return sorted(pods, key=loss)


def _reverse_order(text: str) -> str:
    """Returns a text that sorts in the opposite order."""
    return "".join(chr(0x10FFFF - ord(letter)) for letter in text)


def _deletion_cost(pod: Document) -> int:
    try:
        return int((pod["metadata"].get("annotations") or {}).get(_DELETION_COST, 0))
    except ValueError:
        return 0
