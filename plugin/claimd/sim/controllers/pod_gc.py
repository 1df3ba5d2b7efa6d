"""The pod garbage collector: ends pods whose node no longer exists.

No kubelet will ever end these pods, so this controller does it.
"""

from __future__ import annotations

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import Request
from .objects import Objects, has_ended

ORPHAN_GRACE = 40.0  # seconds that a node may be away before its pods count as lost


def missing_nodes(objects: Objects) -> set[str]:
    """Returns the names of nodes that pods are on but the cache does not have: gone, or too new."""
    names = {pod["spec"].get("nodeName") for pod in objects["pods"].values()}
    return {name for name in names if name and name not in objects["nodes"]}


def sync(objects: Objects, gone: frozenset[str], now: float) -> tuple[list[Request], list[Request]]:
    """Returns requests that mark pods of gone nodes as failed, and requests that then delete them."""
    marks = []
    deletes = []
    for pod in objects["pods"].values():
        if pod["spec"].get("nodeName") not in gone:
            continue
        if not has_ended(pod):
            marks.append(requests.patch_status("pods", pod, _failed_status(now)))
        deletes.append(requests.delete("pods", pod, gracePeriodSeconds=0))
    return marks, deletes


def _failed_status(now: float) -> Document:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": timestamps.rfc3339(now),
    }
    return {"phase": "Failed", "conditions": [condition]}
