"""Pods that ask for devices as an extended resource of a class: the claim made for them.

The scheduler makes that claim when it knows the node, since what a node's device plugins offer
themselves needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..api.meta import ObjectMeta
from ..api.scheduling import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from . import amounts

if TYPE_CHECKING:
    from ..api.core import Container, Node, Pod
    from ..api.scheduling import DeviceClass

# Followed by a class's name it means that class, whatever resource the class itself names.
PREFIX = "deviceclass.resource.kubernetes.io/"
CLAIM_NAME = "<extended-resources>"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """The class that each extended resource stands for.

    Of two classes with one resource name the one with the lesser name counts here; the scheduler
    takes the newer one first.
    """
    by_resource: dict[str, DeviceClass] = {}
    for class_ in sorted(classes, key=lambda class_: class_.metadata.name):
        if class_.spec.extended_resource_name:
            by_resource.setdefault(class_.spec.extended_resource_name, class_)
        by_resource[PREFIX + class_.metadata.name] = class_
    return by_resource


def implicit_claim(pod: Pod, node: Node, classes: Iterable[DeviceClass]) -> ResourceClaim | None:
    """The claim that the pod needs on this node; None where it needs none."""
    by_resource = classes_by_resource(classes)
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    requested: set[str] = set()
    for container in containers:
        requested.update(name for name in container.resources.requests if name in by_resource)
    if not requested:
        return None

    offered = {
        name for name, text in node.status.allocatable.items() if amounts.parse(text).billionths
    }
    requests: list[DeviceRequest] = []
    for resource in sorted(requested - offered):
        requests += _requests(pod, containers, resource, by_resource[resource].metadata.name)
    if not requests:
        return None

    requests.sort(key=lambda request: request.name)
    return ResourceClaim(
        metadata=ObjectMeta(name=CLAIM_NAME, namespace=pod.metadata.namespace),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def _requests(
    pod: Pod, containers: Sequence[Container], resource: str, class_name: str
) -> list[DeviceRequest]:
    """One request for each container that lives on, and one more for init containers that end.

    Those take what the containers after them will have; only what goes beyond that is asked for.
    """
    lasting: dict[int, DeviceRequest] = {}
    ending: list[int] = []
    for index, container in enumerate(containers):
        is_init = index < len(pod.spec.init_containers)
        if is_init and container.restart_policy != "Always":
            ending.append(index)
            continue
        count = _count(container.resources.requests, resource)
        if count:
            lasting[index] = _request(index, container, resource, class_name, count)

    # They run one after the other, so the one that lacks most decides.
    beyond: DeviceRequest | None = None
    for index in ending:
        reused = sum(_count_of(request) for later, request in lasting.items() if later >= index)
        missing = _count(containers[index].resources.requests, resource) - reused
        if missing > 0 and (beyond is None or missing > _count_of(beyond)):
            beyond = _request(index, containers[index], resource, class_name, missing)
    return [*([beyond] if beyond else []), *lasting.values()]


def _count_of(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly else 0


def _count(requests: Mapping[str, str], resource: str) -> int:
    """How many devices; 0 for what is no whole number, which the API server refuses."""
    amount = amounts.parse(requests.get(resource, "0")).billionths
    return amount // amounts.WHOLE if amount % amounts.WHOLE == 0 else 0


def _request(
    index: int, container: Container, resource: str, class_name: str, count: int
) -> DeviceRequest:
    number = sorted(container.resources.requests).index(resource)
    exactly = ExactDeviceRequest(device_class_name=class_name, count=count)
    return DeviceRequest(name=f"container-{index}-request-{number}", exactly=exactly)
