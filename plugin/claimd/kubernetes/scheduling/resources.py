"""What pods ask of a node's cpu, memory and the like, in billionths. Devices are the allocator's."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ..allocator import amounts

if TYPE_CHECKING:
    from .objects import Node, Pod

Amounts = dict[str, int]  # by the resource's name

PODS = "pods"
_OF_PODS = ("cpu", "memory")  # that a pod may request as a whole, beside huge pages


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortage:
    """A resource of which a node has too little; amounts in billionths."""

    resource: str
    requested: int
    used: int
    allocatable: int

    @property
    def is_resolvable(self) -> bool:
        """Whether the node would have enough without the pods that are there."""
        return self.resource == PODS or self.requested <= self.allocatable

    @property
    def message(self) -> str:
        """As the scheduler words it."""
        return "Too many pods" if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def detail(self) -> str:
        whole = amounts.text_of(self.allocatable)
        if self.resource == PODS:
            return f"it runs {amounts.text_of(self.used)} pods and may run {whole}"
        if not self.allocatable:
            return f"it has no {self.resource}, the pod requests {amounts.text_of(self.requested)}"
        left = amounts.text_of(max(self.allocatable - self.used, 0))
        requested = amounts.text_of(self.requested)
        return f"{self.resource}: the pod requests {requested}, {left} of {whole} are left"


def pod_requests(pod: Pod) -> Amounts:
    """The most that the pod asks for at one time, and its one place among the node's pods.

    Init containers run one after the other, each beside the sidecars that were started before it.
    So the most is the largest of those moments, or of the moment when all containers run. What the
    pod requests as a whole counts instead of what its containers do.
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
    for name, amount in _parse(pod.spec.resources.requests).items():
        if name in _OF_PODS or name.startswith("hugepages-"):
            peak[name] = amount
    return _sum(peak, _parse(pod.spec.overhead), {PODS: amounts.WHOLE})


def shortages(
    pod: Pod, node: Node, used: Mapping[str, int], others: Collection[str]
) -> Iterator[Shortage]:
    """What the node has too little of for the pod.

    `used` is what the node's pods request; `others` are resources that are not the node's to give.
    """
    allocatable = _parse(node.status.allocatable)
    for name, amount in pod_requests(pod).items():
        if not amount or name in others:
            continue
        if used.get(name, 0) + amount > allocatable.get(name, 0):
            yield Shortage(
                resource=name,
                requested=amount,
                used=used.get(name, 0),
                allocatable=allocatable.get(name, 0),
            )


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
