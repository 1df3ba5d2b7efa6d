"""Pods that ask for devices as an extended resource of a class: the claim made for them.

The scheduler makes that claim when it knows the node, since what a node's device plugins offer
themselves needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMapping:
    """That a container uses the devices of a request."""

    container: str
    resource: str
    request: str


def mappings(pod: Pod, counts: Mapping[str, int]) -> list[RequestMapping]:
    """Which container has which of the implicit claim's requests; `counts` are their devices, by name.

    A container that lives on has its own. An init container that ends has those of the containers
    after it until it has enough, and at last the one that was made for such as it.
    """
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    found: list[RequestMapping] = []
    by_resource: dict[str, list[tuple[int, str]]] = {}
    for index, container in enumerate(containers):
        for number, resource in enumerate(sorted(container.resources.requests)):
            name = _request_name(index, number)
            if name in counts:
                by_resource.setdefault(resource, []).append((index, name))

    for resource, requests in sorted(by_resource.items()):
        lasting = [(index, name) for index, name in requests if not _ends(pod, index)]
        beyond = [name for index, name in requests if _ends(pod, index)]
        for index, name in lasting:
            found.append(_mapping(containers[index], resource, name))
        for index, container in enumerate(pod.spec.init_containers):
            if not _ends(pod, index):
                continue
            missing = _count(container.resources.requests, resource)
            for later, name in lasting:
                if later >= index and missing > 0:
                    found.append(_mapping(container, resource, name))
                    missing -= counts[name]
            if missing > 0:
                found += [_mapping(container, resource, name) for name in beyond]
    return found


def _mapping(container: Container, resource: str, request: str) -> RequestMapping:
    return RequestMapping(container=container.name, resource=resource, request=request)


def _ends(pod: Pod, index: int) -> bool:
    """Whether it is an init container that has ended when the others start."""
    init = pod.spec.init_containers
    return index < len(init) and init[index].restart_policy != "Always"


def _request_name(index: int, number: int) -> str:
    return f"container-{index}-request-{number}"


def _requests(
    pod: Pod, containers: Sequence[Container], resource: str, class_name: str
) -> list[DeviceRequest]:
    """One request for each container that lives on, and one more for init containers that end.

    Those take what the containers after them will have; only what goes beyond that is asked for.
    """
    lasting: dict[int, int] = {}  # how many devices, by the container's index
    ending: list[int] = []
    for index, container in enumerate(containers):
        if _ends(pod, index):
            ending.append(index)
            continue
        count = _count(container.resources.requests, resource)
        if count:
            lasting[index] = count

    # They run one after the other, so the one that lacks most decides.
    beyond: dict[int, int] = {}
    most = 0
    for index in ending:
        reused = sum(count for later, count in lasting.items() if later > index)
        missing = _count(containers[index].resources.requests, resource) - reused
        if missing > most:
            beyond, most = {index: missing}, missing
    return [
        _request(index, containers[index], resource, class_name, count)
        for index, count in (beyond | lasting).items()
    ]


def _count(requests: Mapping[str, str], resource: str) -> int:
    """How many devices; 0 for what is no whole number, which the API server refuses."""
    amount = amounts.parse(requests.get(resource, "0")).billionths
    return amount // amounts.WHOLE if amount % amounts.WHOLE == 0 else 0


def _request(
    index: int, container: Container, resource: str, class_name: str, count: int
) -> DeviceRequest:
    number = sorted(container.resources.requests).index(resource)
    exactly = ExactDeviceRequest(device_class_name=class_name, count=count)
    return DeviceRequest(name=_request_name(index, number), exactly=exactly)
