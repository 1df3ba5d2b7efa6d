"""A solution as the API has it: results, configuration, node selector. Nothing is decided here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..api.resource import DeviceAllocationConfiguration
from ..api.scheduling import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from . import nodes
from .failures import AllocationError
from .features import BINDING_CONDITIONS, Features, knows_node_operations

if TYPE_CHECKING:
    from ..api.core import Node, NodeSelector
    from ..api.resource import OpaqueConfig
    from ..api.scheduling import ResourceClaim
    from .requests import Want
    from .search import Chosen


def new_share_id() -> str:
    return str(uuid.uuid4())


def result(
    claim: ResourceClaim,
    chosen: Sequence[Chosen],
    wants: Sequence[Want],
    *,
    node: Node,
    features: Features,
    share_id: Callable[[], str] = new_share_id,
) -> AllocationResult:
    """`wants`: of each request the alternative that was chosen."""
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[_device(one, features, share_id) for one in chosen],
            config=_config(claim, wants),
        ),
        node_selector=_node_selector(claim, chosen, node),
    )


def _device(
    one: Chosen, features: Features, share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    device, spec = one.candidate.device, one.candidate.slice.spec
    binding = BINDING_CONDITIONS in features
    return DeviceRequestAllocationResult(
        request=one.want.path,
        driver=one.candidate.id.driver,
        pool=one.candidate.id.pool,
        device=one.candidate.id.device,
        admin_access=True if one.want.admin else None,
        tolerations=one.want.tolerations,
        binding_conditions=device.binding_conditions if binding else [],
        binding_failure_conditions=device.binding_failure_conditions if binding else [],
        share_id=None if one.consumed is None else share_id(),
        consumed_capacity={name: amount.text for name, amount in one.consumed.items()}
        if one.consumed
        else None,
        skip_node_operations=spec.skip_node_operations if knows_node_operations(features) else [],
    )


def _config(claim: ResourceClaim, wants: Sequence[Want]) -> list[DeviceAllocationConfiguration]:
    """Classes first, each once with all its requests, then the claim's; no requests where it is for
    all of them.
    """
    of_class: dict[str, list[Want]] = {}
    for want in wants:
        assert want.class_
        of_class.setdefault(want.class_.metadata.name, []).append(want)
    found = []
    for same in of_class.values():
        assert same[0].class_
        paths = [want.path for want in same]
        for config in same[0].class_.spec.config:
            found.append(_configuration("FromClass", paths, wants, config.opaque))
    for entry in claim.spec.devices.config:
        if not entry.requests or any(_names(entry.requests, want) for want in wants):
            found.append(_configuration("FromClaim", entry.requests, wants, entry.opaque))
    return found


def _configuration(
    source: str, requests: Sequence[str], wants: Sequence[Want], opaque: OpaqueConfig | None
) -> DeviceAllocationConfiguration:
    everything = all(_names(requests, want) for want in wants)
    return DeviceAllocationConfiguration(
        source=source, requests=[] if everything else list(requests), opaque=opaque
    )


def _names(requests: Sequence[str], want: Want) -> bool:
    return want.path in requests or want.parent in requests


def _node_selector(
    claim: ResourceClaim, chosen: Sequence[Chosen], node: Node
) -> NodeSelector | None:
    """Where the devices can be used: on this node alone as soon as one of them is local to it or
    binds to it.
    """
    wider = []
    for one in chosen:
        device, spec = one.candidate.device, one.candidate.slice.spec
        where = device if spec.per_device_node_selection else spec
        if where.node_name or device.binds_to_node:
            return nodes.only(node.metadata.name)
        if where.node_selector:
            wider.append(where.node_selector)
            if len(where.node_selector.node_selector_terms) > 1:
                break  # nodes.together refuses it
    try:
        return nodes.together(wider)
    except ValueError as error:
        raise AllocationError(
            f"create NodeSelector for claim {claim.metadata.name}: {error}"
        ) from error
