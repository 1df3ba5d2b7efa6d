"""Extended resources that are backed by a DeviceClass: the implicit claim of a pod.

The scheduler creates this claim after it has chosen the node. A resource that a device plugin of
the node offers needs no claim.
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

# This prefix with a class's name always means that class, whatever its extendedResourceName is.
PREFIX = "deviceclass.resource.kubernetes.io/"
CLAIM_NAME = "<extended-resources>"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Returns the class for each extended resource.

    If two classes have the same resource name, the class with the smaller name wins here. The real
    scheduler prefers the newer class.
    """
    by_resource: dict[str, DeviceClass] = {}
    for class_ in sorted(classes, key=lambda class_: class_.metadata.name):
        if class_.spec.extended_resource_name:
            by_resource.setdefault(class_.spec.extended_resource_name, class_)
        by_resource[PREFIX + class_.metadata.name] = class_
    return by_resource


def implicit_claim(pod: Pod, node: Node, classes: Iterable[DeviceClass]) -> ResourceClaim | None:
    """Returns the implicit claim of the pod on this node. None if the pod needs no claim."""
    by_resource = classes_by_resource(classes)
    containers = [*pod.spec.init_containers, *pod.spec.containers]

    # Only resources of a class are of interest here.
    requested: set[str] = set()
    for container in containers:
        requested |= container.resources.requests.keys() & by_resource.keys()
    if not requested:
        return None

    # Resources of the node's own device plugins are left to the kubelet.
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
    """A container, its extended resource, and the claim's request that provides the devices."""

    container: str
    resource: str
    request: str


def mappings(pod: Pod, counts: Mapping[str, int]) -> list[RequestMapping]:
    """Returns which container uses which requests of the implicit claim.

    `counts` has the number of devices of each request, by name. A container that keeps running has
    its own request. An init container that ends first uses the devices of the containers after it.
    If they are not enough, it also uses the request that exists for such init containers.
    """
    containers = [*pod.spec.init_containers, *pod.spec.containers]

    # By resource: the requests of the claim, with the index of the container they were made for.
    by_resource: dict[str, list[tuple[int, str]]] = {}
    for index, container in enumerate(containers):
        for number, resource in enumerate(sorted(container.resources.requests)):
            name = _request_name(index, number)
            if name in counts:
                by_resource.setdefault(resource, []).append((index, name))

    result: list[RequestMapping] = []
    for resource, requests in sorted(by_resource.items()):
        lasting: list[tuple[int, str]] = []
        beyond: list[str] = []
        for index, name in requests:
            if _ends(pod, index):
                beyond.append(name)
            else:
                lasting.append((index, name))
                result.append(_mapping(containers[index], resource, name))

        # Init containers reuse the devices of later containers, in the order of the containers.
        for index, container in enumerate(pod.spec.init_containers):
            if not _ends(pod, index):
                continue
            missing = _count(container.resources.requests, resource)
            for later, name in lasting:
                if later >= index and missing > 0:
                    result.append(_mapping(container, resource, name))
                    missing -= counts[name]
            if missing > 0:
                result += [_mapping(container, resource, name) for name in beyond]
    return result


def _mapping(container: Container, resource: str, request: str) -> RequestMapping:
    return RequestMapping(container=container.name, resource=resource, request=request)


def _ends(pod: Pod, index: int) -> bool:
    """Returns True for an init container that ends before the other containers start."""
    init = pod.spec.init_containers
    return index < len(init) and init[index].restart_policy != "Always"


def _request_name(index: int, number: int) -> str:
    return f"container-{index}-request-{number}"


def _requests(
    pod: Pod, containers: Sequence[Container], resource: str, class_name: str
) -> list[DeviceRequest]:
    """Returns a request per container that keeps running, and one for init containers that end.

    An init container that ends can use the devices of the containers after it. So the additional
    request has only the devices that it needs beyond those.
    """
    # By the index of the container: the number of its devices.
    lasting: dict[int, int] = {}
    ending: list[int] = []
    for index, container in enumerate(containers):
        if _ends(pod, index):
            ending.append(index)
            continue
        count = _count(container.resources.requests, resource)
        if count:
            lasting[index] = count

    # Init containers run one after the other, so the largest lack is enough for all of them.
    beyond: dict[int, int] = {}
    most = 0
    for index in ending:
        missing = _count(containers[index].resources.requests, resource)
        for later, count in lasting.items():
            if later > index:
                missing -= count
        if missing > most:
            beyond, most = {index: missing}, missing

    requests = []
    for index, count in (beyond | lasting).items():
        requests.append(_request(index, containers[index], resource, class_name, count))
    return requests


def _count(requests: Mapping[str, str], resource: str) -> int:
    """Returns the number of devices. 0 for a fraction, which the API server would refuse."""
    amount = amounts.parse(requests.get(resource, "0")).billionths
    return amount // amounts.WHOLE if amount % amounts.WHOLE == 0 else 0


def _request(
    index: int, container: Container, resource: str, class_name: str, count: int
) -> DeviceRequest:
    number = sorted(container.resources.requests).index(resource)
    exactly = ExactDeviceRequest(device_class_name=class_name, count=count)
    return DeviceRequest(name=_request_name(index, number), exactly=exactly)
