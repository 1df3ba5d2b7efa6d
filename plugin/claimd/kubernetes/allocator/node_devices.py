"""What the devices of one node are to each request, whatever else is chosen. Nothing here searches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import capacity, constraints, features, nodes, selectors, taints
from .failures import AllocationError, CancelledError
from .requests import claim_name

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.resource import DeviceTaint
    from ..api.scheduling import DeviceAttribute, DeviceSelector
    from .amounts import Amount
    from .counters import PoolCounters
    from .devices import Candidate
    from .features import Features
    from .identity import DeviceID, PoolID
    from .requests import Request
    from .state import AllocatedState


class NodeDevices:
    """The devices that a node offers, and the rules that concern one request and one device.

    It stays as it is during an allocation. A search asks the same thousands of times, so the dear
    answers are worked out when they are first asked for and then kept.

    Every question may end in an AllocationError: a selector that cannot be evaluated, a capacity
    that cannot be computed. The allocation is then over, as it is in Kubernetes.
    """

    def __init__(
        self,
        *,
        node: Node,
        candidates: Sequence[Candidate],
        allocated: AllocatedState,
        enabled: Features,
        counters: Callable[[PoolID], PoolCounters],
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        """`counters` gives a pool's counters afresh, as the devices that are allocated left them.

        `cancelled` is asked before selectors are evaluated: where it says so is a CancelledError.
        """
        self.node = node
        self.candidates = candidates
        self.allocated = allocated
        self.features = enabled
        self.counters = counters
        self.cancelled = cancelled
        self.positions = {candidate.id: position for position, candidate in enumerate(candidates)}

        self.consumable = features.CONSUMABLE_CAPACITY in enabled
        self.partitionable = features.PARTITIONABLE_DEVICES in enabled
        self._taints_count = features.DEVICE_TAINTS in enabled

        self._selectable: dict[tuple[int, DeviceID], bool] = {}
        self._consumption: dict[tuple[int, DeviceID], dict[str, Amount] | None] = {}
        self._derived: dict[tuple[str, DeviceID], DeviceAttribute] = {}

    def with_allocated(
        self, allocated: AllocatedState, counters: Callable[[PoolID], PoolCounters]
    ) -> NodeDevices:
        """The same devices where others are taken; answers that do not rest on that are shared."""
        other = copy.copy(self)
        other.allocated, other.counters = allocated, counters
        return other

    def shareable(self, candidate: Candidate) -> bool:
        """Whether several requests may have the device at the same time."""
        return self.consumable and bool(candidate.device.allow_multiple_allocations)

    def selectable(self, request: Request, candidate: Candidate) -> bool:
        """Whether the class, the request's selectors and the device's node selection allow it."""
        key = (request.key, candidate.id)
        selectable = self._selectable.get(key)
        if selectable is None:
            if self.cancelled and self.cancelled():
                raise CancelledError("filter operation aborted")
            selectable = self._selectable[key] = self._is_selectable(request, candidate)
        return selectable

    def _is_selectable(self, request: Request, candidate: Candidate) -> bool:
        device = candidate.device
        if device.binding_conditions and features.BINDING_CONDITIONS not in self.features:
            return False

        # The class comes first: what a claim's selectors look at may exist in its class alone.
        class_ = request.class_
        assert class_
        if not _matches(class_.spec.selectors, candidate, f"class {class_.metadata.name}"):
            return False
        if not _matches(request.selectors, candidate, f"claim {claim_name(request.claim)}"):
            return False
        return self.for_node(candidate)

    def for_node(self, candidate: Candidate) -> bool:
        """Whether the device is for this node, where its slice leaves that to each device."""
        if not candidate.slice.spec.per_device_node_selection:
            return True
        device = candidate.device
        try:
            return nodes.matches(
                self.node, device.node_name, device.all_nodes, device.node_selector
            )
        except ValueError as error:
            raise AllocationError(
                f"device {candidate.id} has a bad node selector: {error}"
            ) from error

    def consumption(self, request: Request, candidate: Candidate) -> dict[str, Amount] | None:
        """What the request would consume of each capacity; None where the device cannot serve it."""
        key = (request.key, candidate.id)
        if key not in self._consumption:
            try:
                self._consumption[key] = capacity.consumption(
                    request.capacity, candidate.device, self.features
                )
            except ValueError as error:
                raise AllocationError(
                    f"{request}: checking capacity for device {candidate.id}: {error}"
                ) from error
        return self._consumption[key]

    def attribute(
        self, request: Request, candidate: Candidate, name: str
    ) -> DeviceAttribute | None:
        """As constraints see it: what the request derives comes before what the device has."""
        expression = request.derived.get(name)
        if expression is None:
            return constraints.lookup(candidate.device, candidate.id, name)

        key = (expression, candidate.id)
        if key not in self._derived:
            self._derived[key] = selectors.derive(name, expression, candidate.for_cel, candidate.id)
        return self._derived[key]

    def blocking_taint(self, request: Request, candidate: Candidate) -> DeviceTaint | None:
        """The first taint of the device that the request does not tolerate."""
        if not self._taints_count or not candidate.device.taints:
            return None
        return taints.blocking(candidate.device.taints, request.tolerations)

    def node_operations(self, candidate: Candidate) -> bool:
        """Whether the node can do without the operations that the slice says to skip."""
        skipped = candidate.slice.spec.skip_node_operations
        if not skipped or not features.knows_node_operations(self.features):
            return True
        return (
            features.OPTIONAL_NODE_OPERATIONS in self.features
            and features.OPTIONAL_NODE_OPERATIONS in self.node.status.declared_features
        )


def _matches(expressions: Sequence[DeviceSelector], candidate: Candidate, owner: str) -> bool:
    # Without selectors the device is not made into CEL values at all.
    return not expressions or selectors.match(expressions, candidate.for_cel, candidate.id, owner)
