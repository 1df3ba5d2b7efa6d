"""The devices of one node, and the rules that concern one request and one device.

These rules do not depend on the other devices that a search has chosen.
"""

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

    The object does not change during an allocation. A search calls the same rules thousands of
    times, so the results of expensive rules are cached.

    Every rule may raise AllocationError, for instance if a selector cannot be evaluated or a
    capacity cannot be computed. The allocation is over then, as it is in Kubernetes.
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
        """Creates the devices of a node.

        `counters` returns new counters of a pool, less the amounts of the allocated devices.
        `cancelled` is called before selectors are evaluated. CancelledError if it returns True.
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
        """Returns the same devices for another set of allocated devices.

        Cached results that do not depend on the allocated devices are shared.
        """
        other = copy.copy(self)
        other.allocated, other.counters = allocated, counters
        return other

    def is_shareable(self, candidate: Candidate) -> bool:
        """Returns True if several requests may get the device at the same time."""
        return self.consumable and bool(candidate.device.allow_multiple_allocations)

    def is_selectable(self, request: Request, candidate: Candidate) -> bool:
        """Returns True if class, selectors and node selection allow the device for the request."""
        key = (request.key, candidate.id)
        selectable = self._selectable.get(key)
        if selectable is None:
            if self.cancelled and self.cancelled():
                raise CancelledError("filter operation aborted")
            selectable = self._selectable[key] = self._evaluate_selectors(request, candidate)
        return selectable

    def _evaluate_selectors(self, request: Request, candidate: Candidate) -> bool:
        device = candidate.device
        if device.binding_conditions and features.BINDING_CONDITIONS not in self.features:
            return False

        # The class comes first: the claim's selectors may use attributes that only devices of the
        # class have.
        class_ = request.class_
        assert class_
        if not _matches(class_.spec.selectors, candidate, f"class {class_.metadata.name}"):
            return False
        if not _matches(request.selectors, candidate, f"claim {claim_name(request.claim)}"):
            return False
        return self.is_for_node(candidate)

    def is_for_node(self, candidate: Candidate) -> bool:
        """Returns True if the device is for this node.

        It always is, unless its slice has perDeviceNodeSelection.
        """
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
        """Returns the amount that the request would consume of each capacity of the device.

        None if the device can never serve the request.
        """
        key = (request.key, candidate.id)
        if key not in self._consumption:
            try:
                self._consumption[key] = capacity.consumption(
                    request.capacity, candidate.id.driver, candidate.capacity, self.features
                )
            except ValueError as error:
                raise AllocationError(
                    f"{request}: checking capacity for device {candidate.id}: {error}"
                ) from error
        return self._consumption[key]

    def attribute(
        self, request: Request, candidate: Candidate, name: str
    ) -> DeviceAttribute | None:
        """Returns the attribute that constraints compare; None if the device does not have it.

        A derived attribute of the request has precedence over an attribute of the device.
        """
        expression = request.derived.get(name)
        if expression is None:
            attribute = constraints.lookup(candidate.device, candidate.id, name)
        else:
            key = (expression, candidate.id)
            if key not in self._derived:
                self._derived[key] = selectors.derive(
                    name, expression, candidate.for_cel, candidate.id
                )
            attribute = self._derived[key]

        # Kubernetes compares versions without their build metadata since 1.38.
        if attribute is not None and features.RULES_OF_1_38 in self.features:
            return constraints.without_build(attribute)
        return attribute

    def is_left_of_sharing(self, candidate: Candidate) -> bool:
        """Returns True if claims share a device that its slice no longer allows to be shared.

        Since Kubernetes 1.38 no other claim gets such a device.
        """
        return (
            features.RULES_OF_1_38 in self.features
            and candidate.id in self.allocated.shared
            and not self.is_shareable(candidate)
        )

    def blocking_taint(self, request: Request, candidate: Candidate) -> DeviceTaint | None:
        """Returns the first taint of the device that the request does not tolerate."""
        if not self._taints_count or not candidate.device.taints:
            return None
        return taints.blocking_taint(candidate.device.taints, request.tolerations)

    def can_skip_operations(self, candidate: Candidate) -> bool:
        """Returns True if the node supports the node operations that the slice wants to skip."""
        skipped = candidate.slice.spec.skip_node_operations
        if not skipped or not features.knows_node_operations(self.features):
            return True
        return (
            features.OPTIONAL_NODE_OPERATIONS in self.features
            and features.OPTIONAL_NODE_OPERATIONS in self.node.status.declared_features
        )


def _matches(expressions: Sequence[DeviceSelector], candidate: Candidate, owner: str) -> bool:
    # Converting the device to CEL values is expensive, and not needed without selectors.
    return not expressions or selectors.match(expressions, candidate.for_cel, candidate.id, owner)
