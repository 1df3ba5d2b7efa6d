"""Converts a solution of the search to the API's AllocationResult."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..api.resource import DeviceAllocationConfiguration
from ..api.scheduling import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from . import nodes
from .failures import AllocationError
from .features import BINDING_CONDITIONS, Features, knows_node_operations, takes_oldest

if TYPE_CHECKING:
    from ..api.core import Node, NodeSelector
    from ..api.resource import OpaqueConfig
    from ..api.scheduling import ResourceClaim
    from .partial import Chosen
    from .requests import Request


def new_share_id() -> str:
    return str(uuid.uuid4())


def result(
    claim: ResourceClaim,
    chosen: Sequence[Chosen],
    requests: Sequence[Request],
    *,
    node: Node,
    features: Features,
    share_id: Callable[[], str] = new_share_id,
) -> AllocationResult:
    """Returns the allocation of a claim.

    `requests` has the chosen alternative of each request of the claim. AllocationError if the node
    selectors of the devices cannot be merged.
    """
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[_device(choice, features, share_id) for choice in chosen],
            config=_config(claim, requests),
        ),
        node_selector=_node_selector(claim, chosen, node, features),
    )


def _device(
    choice: Chosen, features: Features, share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    device, spec = choice.candidate.device, choice.candidate.slice.spec
    binding = BINDING_CONDITIONS in features
    consumed_capacity = None
    if choice.consumed:
        consumed_capacity = {
            choice.candidate.published_name(name): amount.text
            for name, amount in choice.consumed.items()
        }

    return DeviceRequestAllocationResult(
        request=choice.request.path,
        driver=choice.candidate.id.driver,
        pool=choice.candidate.id.pool,
        device=choice.candidate.id.device,
        admin_access=True if choice.request.admin else None,
        tolerations=choice.request.tolerations,
        binding_conditions=device.binding_conditions if binding else [],
        binding_failure_conditions=device.binding_failure_conditions if binding else [],
        # A shared device has a share id even if no capacity is consumed.
        share_id=None if choice.consumed is None else share_id(),
        consumed_capacity=consumed_capacity,
        skip_node_operations=spec.skip_node_operations if knows_node_operations(features) else [],
    )


def _config(
    claim: ResourceClaim, requests: Sequence[Request]
) -> list[DeviceAllocationConfiguration]:
    """Returns the configuration: of each class once, for all its requests, then of the claim."""
    # The API wants the configuration of classes before that of the claim, which overrides it.
    by_class: dict[str, list[Request]] = {}
    for request in requests:
        assert request.class_
        by_class.setdefault(request.class_.metadata.name, []).append(request)

    configurations = []
    for of_class in by_class.values():
        class_ = of_class[0].class_
        assert class_
        paths = [request.path for request in of_class]
        for config in class_.spec.config:
            configurations.append(_configuration("FromClass", paths, requests, config.opaque))

    # Configuration for a subrequest that was not chosen is left out.
    for entry in claim.spec.devices.config:
        if not entry.requests or any(_names(entry.requests, request) for request in requests):
            configurations.append(
                _configuration("FromClaim", entry.requests, requests, entry.opaque)
            )
    return configurations


def _configuration(
    source: str, named: Sequence[str], requests: Sequence[Request], opaque: OpaqueConfig | None
) -> DeviceAllocationConfiguration:
    """Returns one entry. It names no requests if it is for all of them."""
    for_all = all(_names(named, request) for request in requests)
    return DeviceAllocationConfiguration(
        source=source, requests=[] if for_all else list(named), opaque=opaque
    )


def _names(named: Sequence[str], request: Request) -> bool:
    return request.path in named or request.parent in named


def _node_selector(
    claim: ResourceClaim, chosen: Sequence[Chosen], node: Node, features: Features
) -> NodeSelector | None:
    """Returns the selector of the nodes where the devices can be used. None means all nodes.

    It selects only this node if one of the devices is local to the node or binds to it.
    """
    selectors = []
    binding_counts = not takes_oldest(features)
    for choice in chosen:
        device, spec = choice.candidate.device, choice.candidate.slice.spec
        place = device if spec.per_device_node_selection else spec
        if place.node_name or (binding_counts and device.binds_to_node):
            return nodes.node_selector(node.metadata.name)
        if place.node_selector:
            selectors.append(place.node_selector)
            # Several terms cannot be merged. Kubernetes raises that error before it looks at later
            # devices.
            if len(place.node_selector.node_selector_terms) > 1:
                break
    try:
        return nodes.merge_selectors(selectors)
    except ValueError as error:
        raise AllocationError(
            f"create NodeSelector for claim {claim.metadata.name}: {error}"
        ) from error
