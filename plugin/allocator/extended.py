"""Pods that ask for devices as an extended resource of a class: the claim that the scheduler makes
for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

# followed by a class's name, means the class without more ado
PREFIX = "deviceclass.resource.kubernetes.io/"
CLAIM_NAME = "<extended-resources>"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Of two classes with one resource name the one with the lesser name counts here: dates are not
    looked at.
    """
    found: dict[str, DeviceClass] = {}
    for class_ in sorted(classes, key=lambda class_: class_.metadata.name):
        if class_.spec.extended_resource_name:
            found.setdefault(class_.spec.extended_resource_name, class_)
        found[PREFIX + class_.metadata.name] = class_
    return found


def implicit_claim(pod: Pod, node: Node, classes: Iterable[DeviceClass]) -> ResourceClaim | None:
    """The claim for one node: a resource that the node's device plugins offer needs none."""
    known = classes_by_resource(classes)
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    asked = {
        name for container in containers for name in container.resources.requests if name in known
    }
    offered = {
        name for name, text in node.status.allocatable.items() if amounts.parse(text).billionths
    }
    requests: list[DeviceRequest] = []
    for resource in sorted(asked - offered):
        requests += _requests(pod, resource, known[resource].metadata.name)
    if not requests:
        return None
    spec = ResourceClaimSpec(
        devices=DeviceClaim(requests=sorted(requests, key=lambda request: request.name))
    )
    return ResourceClaim(
        metadata=ObjectMeta(name=CLAIM_NAME, namespace=pod.metadata.namespace), spec=spec
    )


def _requests(pod: Pod, resource: str, class_name: str) -> list[DeviceRequest]:
    """One for each container that lives on; init containers that end take what those after them
    will have.
    """
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    lasting: dict[int, DeviceRequest] = {}
    ending: list[int] = []
    for index, container in enumerate(containers):
        if index < len(pod.spec.init_containers) and container.restart_policy != "Always":
            ending.append(index)
        elif count := _count(container.resources.requests, resource):
            lasting[index] = _request(index, container, resource, class_name, count)
    most: DeviceRequest | None = None
    for index in ending:
        reused = sum(_asked(one) for later, one in lasting.items() if later >= index)
        missing = _count(containers[index].resources.requests, resource) - reused
        if missing > 0 and (most is None or missing > _asked(most)):
            most = _request(index, containers[index], resource, class_name, missing)
    return ([most] if most else []) + list(lasting.values())


def _asked(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly else 0


def _count(requests: Mapping[str, str], resource: str) -> int:
    amount = amounts.parse(requests.get(resource, "0")).billionths
    return amount // amounts.WHOLE if amount % amounts.WHOLE == 0 else 0


def _request(
    index: int, container: Container, resource: str, class_name: str, count: int
) -> DeviceRequest:
    number = sorted(container.resources.requests).index(resource)
    exactly = ExactDeviceRequest(device_class_name=class_name, count=count)
    return DeviceRequest(name=f"container-{index}-request-{number}", exactly=exactly)
