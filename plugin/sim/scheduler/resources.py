"""What pods ask of a node's cpu, memory and the like, in billionths. Devices are the allocator's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...allocator import amounts

if TYPE_CHECKING:
    from .objects import Node, Pod

Amounts = dict[str, int]  # by the resource's name

PODS = "pods"


def of_pod(pod: Pod) -> Amounts:
    """The most that the pod asks for at one time, and its one place among the node's pods."""
    lasting: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers:
        asked = _parsed(container.resources.requests)
        if container.restart_policy == "Always":
            add(lasting, asked)
        else:
            _raise(peak, _sum(lasting, asked))
    for container in pod.spec.containers:
        add(lasting, _parsed(container.resources.requests))
    _raise(peak, lasting)
    return _sum(peak, _parsed(pod.spec.overhead), {PODS: amounts.WHOLE})


def lacking(pod: Pod, node: Node, used: Mapping[str, int], others: Collection[str]) -> list[str]:
    """What the node has too little of, as the scheduler words it. `others` are not the node's to
    give.
    """
    offered = _parsed(node.status.allocatable)
    asked = of_pod(pod)
    short = [
        name
        for name, amount in asked.items()
        if amount and name not in others and used.get(name, 0) + amount > offered.get(name, 0)
    ]
    return ["Too many pods" if name == PODS else f"Insufficient {name}" for name in short]


def add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(*parts: Mapping[str, int]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        add(total, part)
    return total


def _raise(peak: Amounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        peak[name] = max(peak.get(name, 0), amount)


def _parsed(texts: Mapping[str, str]) -> Amounts:
    return {name: amounts.parse(text).billionths for name, text in texts.items()}
