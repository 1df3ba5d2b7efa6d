"""Requests for cpu, memory and other resources that a node counts. Devices are not among them.

All amounts are integers in billionths of the resource's unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ..allocator import amounts

if TYPE_CHECKING:
    from .objects import Node, Pod

# Amounts by the resource's name.
Amounts = dict[str, int]

PODS = "pods"
# The resources that a pod may request as a whole, in addition to huge pages.
_POD_LEVEL = ("cpu", "memory")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortage:
    """A resource that is too scarce on a node; amounts in billionths.

    `init_container` is the one that alone makes the pod need that much, if there is one.
    """

    resource: str
    requested: int
    used: int
    allocatable: int
    init_container: str = ""

    @property
    def is_resolvable(self) -> bool:
        """True if the node would have enough without the pods that run on it."""
        return self.resource == PODS or self.requested <= self.allocatable

    @property
    def message(self) -> str:
        """The scheduler's own message."""
        return "Too many pods" if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def detail(self) -> str:
        """The same message for people, with amounts."""
        whole = amounts.format_billionths(self.allocatable)
        if self.resource == PODS:
            noun = "pod" if self.used == amounts.WHOLE else "pods"
            return f"it runs {amounts.format_billionths(self.used)} {noun} and may run {whole}"
        if not self.allocatable:
            return f"it has no {self.resource}, the pod requests {amounts.format_billionths(self.requested)}"

        left = amounts.format_billionths(max(self.allocatable - self.used, 0))
        requested = amounts.format_billionths(self.requested)
        when = f" while init container {self.init_container} runs" if self.init_container else ""
        return f"{self.resource}: the pod requests {requested}{when}, {left} of {whole} are left"


def pod_requests(pod: Pod) -> Amounts:
    """Returns the most that the pod requests at any one time, and one of the node's pod slots.

    Init containers run one after the other, together with the sidecars that started before them.
    The most is therefore the largest sum over these moments and over the time when all containers
    run. If the pod as a whole requests a resource, that counts instead of the containers' requests.
    """
    # `lasting` is the sum of the sidecars so far, `peak` the most that was needed at a time.
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
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            peak[name] = amount
    return _sum(peak, _parse(pod.spec.overhead), {PODS: amounts.WHOLE})


def shortages(
    pod: Pod, node: Node, used: Mapping[str, int], others: Collection[str]
) -> Iterator[Shortage]:
    """Yields the resources that are too scarce on the node for the pod.

    `used` is the sum of the requests of the node's pods. `others` are resources that the node does
    not provide, so they are not checked.
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
                init_container=_decisive_init_container(pod, name),
            )


def _decisive_init_container(pod: Pod, resource: str) -> str:
    """Returns the init container that needs more than all containers that run after it, or ""."""
    if resource in pod.spec.resources.requests:
        return ""

    sidecars = most = 0
    decisive = ""
    for container in pod.spec.init_containers:
        amount = _parse(container.resources.requests).get(resource, 0)
        if container.restart_policy == "Always":
            sidecars += amount
        elif sidecars + amount > most:
            most, decisive = sidecars + amount, container.name

    lasting = sidecars
    for container in pod.spec.containers:
        lasting += _parse(container.resources.requests).get(resource, 0)
    return decisive if most > lasting else ""


def add(total: Amounts, more: Mapping[str, int]) -> None:
    """Adds amounts to `total` in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(*parts: Mapping[str, int]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        add(total, part)
    return total


def _raise_to(peak: Amounts, other: Mapping[str, int]) -> None:
    """Raises each amount of `peak` to that of `other`, in place."""
    for name, amount in other.items():
        peak[name] = max(peak.get(name, 0), amount)


def _parse(quantities: Mapping[str, str]) -> Amounts:
    return {name: amounts.parse(text).billionths for name, text in quantities.items()}
