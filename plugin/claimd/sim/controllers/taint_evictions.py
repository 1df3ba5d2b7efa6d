"""The taint eviction controller: finds pods that do not tolerate a NoExecute taint of their node.

The functions only compute requests, and `loops` sends them. The module `evictions` handles taints
of devices, and the module `nodes` adds the taints that follow from a node's conditions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import Objects, is_terminating, tolerates

RECORDER = requests.EventRecorder("taint-eviction-controller", "Evicting")
REASON = "TaintManagerEviction"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Review:
    """The result of one round. Pods are marked before they are deleted."""

    due: Mapping[str, float]  # by a pod's uid, when it has to go, in seconds since 1970
    marks: Sequence[Request]
    deletes: Sequence[Request]
    next_look: float | None  # seconds until the next pod's time


def review(objects: Objects, due: Mapping[str, float], now: float) -> Review:
    """Returns the pods to evict now and those to evict later. `due` comes from the previous round."""
    tainted = {name: _evicting(node) for name, node in objects["nodes"].items()}
    still_due: dict[str, float] = {}
    marks: list[Request] = []
    deletes: list[Request] = []
    for pod in objects["pods"].values():
        uid = pod["metadata"]["uid"]
        if is_terminating(pod):
            continue

        taints = tainted.get(pod["spec"].get("nodeName") or "", ())
        tolerated_for = toleration_time(taints, pod["spec"].get("tolerations") or ())
        if uid in due and tolerated_for in (None, math.inf):
            marks.append(_event(pod, "Cancelling deletion of Pod"))
        if tolerated_for == math.inf:
            continue

        # A running countdown is not restarted by another taint or toleration.
        at = now if tolerated_for is None else due.get(uid, now + tolerated_for)
        still_due[uid] = at
        if at <= now:
            marks += [_event(pod, "Marking for deletion Pod"), _condition(pod, now)]
            deletes.append(requests.delete("pods", pod))

    waits = [at - now for at in still_due.values() if at > now]
    return Review(
        due={uid: at for uid, at in still_due.items() if at > now},
        marks=marks,
        deletes=deletes,
        next_look=min(waits, default=None),
    )


def toleration_time(taints: Sequence[Document], tolerations: Sequence[Document]) -> float | None:
    """Returns the seconds for which a pod may stay; None if a taint is not tolerated.

    The time is infinite if the pod may stay for ever. If several tolerations match one taint, the
    first counts.
    """
    shortest = math.inf
    for taint in taints:
        for toleration in tolerations:
            if tolerates(toleration, taint):
                break
        else:
            return None
        seconds = toleration.get("tolerationSeconds")
        if seconds is not None:
            shortest = min(shortest, max(seconds, 0))
    return shortest


def _evicting(node: Document) -> list[Document]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == "NoExecute"]


def _event(pod: Document, note: str) -> Request:
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    return requests.create_event(pod, "Pod", REASON, f"{note} {name}", RECORDER)


def _condition(pod: Document, now: float) -> Request:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": timestamps.rfc3339(now),
    }
    return requests.patch_status("pods", pod, {"conditions": [condition]})
