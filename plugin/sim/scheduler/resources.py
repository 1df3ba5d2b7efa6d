"""What pods ask of a node's cpu, memory and the like, in billionths. Devices are the allocator's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...allocator import amounts

if TYPE_CHECKING:
    from .objects import Node, Pod

Amounts = dict[str, int]  # by the resource's name

PODS = "pods"


def pod_requests(pod: Pod) -> Amounts:
    """The most that the pod asks for at one time, and its one place among the node's pods.

    Init containers run one after the other, each beside the sidecars that were started before it.
    So the most is the largest of those moments, or of the moment when all containers run.
    """
    lasting: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers:
        requests = _parse(container.resources.requests)
        if container.restart_policy == "Always":
            add(lasting, requests)
        else:
            _raise_to(peak, _sum(lasting, requests))

    for container in pod.spec.containers:
        add(lasting, _parse(container.resources.requests))
    _raise_to(peak, lasting)
    return _sum(peak, _parse(pod.spec.overhead), {PODS: amounts.WHOLE})


def insufficient(
    pod: Pod, node: Node, used: Mapping[str, int], others: Collection[str]
) -> list[str]:
    """What the node has too little of, as the scheduler words it.

    `used` is what the node's pods have; `others` are resources that are not the node's to give.
    """
    allocatable = _parse(node.status.allocatable)
    reasons = []
    for name, amount in pod_requests(pod).items():
        if not amount or name in others:
            continue
        if used.get(name, 0) + amount > allocatable.get(name, 0):
            reasons.append("Too many pods" if name == PODS else f"Insufficient {name}")
    return reasons


def add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(*parts: Mapping[str, int]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        add(total, part)
    return total


def _raise_to(peak: Amounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        peak[name] = max(peak.get(name, 0), amount)


def _parse(quantities: Mapping[str, str]) -> Amounts:
    return {name: amounts.parse(text).billionths for name, text in quantities.items()}
