"""Pods on nodes that do not exist any more: no kubelet will ever end them, so that this has to be
done for it.
"""

from __future__ import annotations

from ... import timestamps
from ...api.document import Document
from .. import client
from ..client import Call
from .objects import World, has_ended

PATIENCE = 40.0  # seconds that a node may be away before its pods count as lost


def homeless(world: World) -> set[str]:
    """Names of nodes that pods are on and that our copy does not have: gone, or not seen yet."""
    nodes = {pod["spec"].get("nodeName") for pod in world["pods"].values()}
    return {name for name in nodes if name and name not in world["nodes"]}


def decide(world: World, gone: frozenset[str], now: float) -> tuple[list[Call], list[Call]]:
    """What marks the pods of nodes that are gone, and what deletes them."""
    lost = [pod for pod in world["pods"].values() if pod["spec"].get("nodeName") in gone]
    marks = [client.patch_status("pods", pod, _failed(now)) for pod in lost if not has_ended(pod)]
    return marks, [client.delete("pods", pod, gracePeriodSeconds=0) for pod in lost]


def _failed(now: float) -> Document:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": timestamps.rfc3339(now),
    }
    return {"phase": "Failed", "conditions": [condition]}
