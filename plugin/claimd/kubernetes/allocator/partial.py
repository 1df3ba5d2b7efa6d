"""The devices that a search has chosen so far, and the rules for choosing one more.

The search decides which device to try next. It gives devices back in the reverse order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import features
from .constraints import UNKNOWN, scalar
from .failures import AllocationError

if TYPE_CHECKING:
    from ..api.scheduling import DeviceAttribute
    from .amounts import Amount
    from .constraints import Constraint
    from .counters import PoolCounters
    from .devices import Candidate
    from .identity import DeviceID, PoolID
    from .node_devices import NodeDevices
    from .requests import Request


class Chosen(NamedTuple):
    """A device that was chosen for a request."""

    request: Request
    candidate: Candidate
    # The consumed capacity of a device that may be shared. None for other devices.
    consumed: Mapping[str, Amount] | None


class Taken:
    """One taken device, with everything that must be undone to give it back."""

    __slots__ = ("candidate", "constraints", "consumed", "counters", "grouped", "held", "request")

    def __init__(self, request: Request, candidate: Candidate) -> None:
        self.request, self.candidate = request, candidate
        self.constraints: list[Constraint] = []
        self.counters: PoolCounters | None = None
        self.grouped: PoolCounters | None = None
        self.consumed: Mapping[str, Amount] | None = None
        self.held = False


class PartialAllocation:
    """The devices that are chosen for each claim, and the resources that they use."""

    def __init__(self, devices: NodeDevices, constraints: Sequence[Sequence[Constraint]]) -> None:
        """Starts without devices. `constraints` has the empty constraints of each claim."""
        self.devices = devices
        self.constraints = constraints
        self.chosen: list[list[Chosen]] = [[] for _ in constraints]
        # By device: the indices of the claims that hold it exclusively.
        self.holders: dict[DeviceID, set[int]] = {}
        # By shared device: the consumed amount of each capacity, and the number of shares.
        self.shares: dict[DeviceID, dict[str, int]] = {}
        self.share_count: dict[DeviceID, int] = {}
        self._counters: dict[PoolID, PoolCounters] = {}

    def is_in_use(self, request: Request, candidate: Candidate) -> bool:
        """Returns True if the device is taken.

        For a request with admin access, only the devices of its own claim are taken.
        """
        holders = self.holders.get(candidate.id)
        if request.admin:
            return holders is not None and request.claim_index in holders
        return bool(holders) or candidate.id in self.devices.allocated.devices

    def has_capacity(self, request: Request, candidate: Candidate) -> bool:
        """Returns True if enough of each capacity of the device is left for the request."""
        devices = self.devices
        if not devices.consumable:
            return True
        consumed = devices.consumption(request, candidate)
        if consumed is None:
            return False
        if not consumed:
            return True

        allocated = devices.allocated.capacity.get(candidate.id, {})
        taken = self.shares.get(candidate.id, {})
        return candidate.has_room(consumed, allocated, taken)

    def counters(self, pool_id: PoolID) -> PoolCounters:
        """Returns the pool's counters. They include the devices of this partial allocation."""
        counters = self._counters.get(pool_id)
        if counters is None:
            counters = self._counters[pool_id] = self.devices.counters(pool_id)
        return counters

    def take(self, request: Request, candidate: Candidate, *, required: bool) -> Taken | None:
        """Takes the device for the request. Returns None and changes nothing if a rule refuses it.

        `required` means that the request needs this very device. Then a refusal by a constraint is
        an AllocationError, as it is in Kubernetes.
        """
        devices = self.devices
        if self.is_in_use(request, candidate) or not devices.can_skip_operations(candidate):
            return None
        if candidate.device.consumes_counters and not devices.partitionable:
            return None
        if not request.admin and devices.is_left_of_sharing(candidate):
            return None

        # From here on there is something to undo. The rules are checked in Kubernetes' order, which
        # decides with `required` whether there is an error.
        taken = Taken(request, candidate)
        if not self._take_counters(taken) or devices.blocking_taint(request, candidate):
            self._undo(taken)
            return None
        if not self._add_to_constraints(taken):
            self._undo(taken)
            if required:
                raise AllocationError(
                    f"{request}: cannot add device {candidate.id} "
                    "because a claim constraint would not be satisfied"
                )
            return None
        if not self.has_capacity(request, candidate):
            self._undo(taken)
            return None

        if devices.is_shareable(candidate):
            self._share(taken)
        else:
            holders = self.holders.setdefault(candidate.id, set())
            taken.held = request.claim_index not in holders
            holders.add(request.claim_index)
        self.chosen[request.claim_index].append(Chosen(request, candidate, taken.consumed))
        return taken

    def give_back(self, taken: Taken) -> None:
        """Gives a device back. It must be the one that was taken last."""
        self.chosen[taken.request.claim_index].pop()
        self._undo(taken)

    def _take_counters(self, taken: Taken) -> bool:
        """Takes the device's counters and joins its compatibility groups. False if it cannot.

        A shared device uses its counters only once, no matter how many shares it has.
        """
        candidate, devices = taken.candidate, self.devices
        if not candidate.device.consumes_counters:
            return True
        if devices.is_shareable(candidate):
            shared_already = candidate.id in devices.allocated.shared
            if shared_already or self.share_count.get(candidate.id):
                return True

        counters = self.counters(candidate.pool_id)
        if features.COMPATIBILITY_GROUPS in devices.features:
            if not counters.join(candidate):
                return False
            taken.grouped = counters
        if not counters.fits(candidate):
            return False
        counters.take(candidate)
        taken.counters = counters
        return True

    def _add_to_constraints(self, taken: Taken) -> bool:
        """Adds the device to the request's constraints. False if one of them refuses it."""
        request, candidate = taken.request, taken.candidate
        for constraint in self.constraints[request.claim_index]:
            if not request.is_under(constraint.requests):
                continue
            attribute = self.devices.attribute(request, candidate, constraint.attribute)
            self._check_type(attribute, taken, constraint.attribute)
            if not constraint.add(attribute):
                return False
            taken.constraints.append(constraint)
        return True

    def _check_type(self, attribute: DeviceAttribute | None, taken: Taken, name: str) -> None:
        """Raises AllocationError for a list if the feature for lists is off.

        Kubernetes does so since 1.38. Before, such a device does not meet the constraint.
        """
        enabled = self.devices.features
        if attribute is None or features.RULES_OF_1_38 not in enabled:
            return
        if features.LIST_TYPE_ATTRIBUTES in enabled or scalar(attribute) != UNKNOWN:
            return
        raise AllocationError(
            f"{taken.request}: device {taken.candidate.id}: unsupported attribute value for {name}"
        )

    def _share(self, taken: Taken) -> None:
        """Consumes capacity of a shared device."""
        device = taken.candidate.id
        consumed = self.devices.consumption(taken.request, taken.candidate)
        assert consumed is not None

        total = self.shares.setdefault(device, {})
        for name, amount in consumed.items():
            total[name] = total.get(name, 0) + amount.billionths
        self.share_count[device] = self.share_count.get(device, 0) + 1
        taken.consumed = consumed

    def _undo(self, taken: Taken) -> None:
        """Undoes the steps of `take` that were done, in the reverse order."""
        device = taken.candidate.id
        if taken.consumed is not None:
            self.share_count[device] -= 1
            for name, amount in taken.consumed.items():
                self.shares[device][name] -= amount.billionths
        if taken.held:
            self.holders[device].discard(taken.request.claim_index)
        for constraint in reversed(taken.constraints):
            constraint.remove()
        if taken.counters:
            taken.counters.give_back(taken.candidate)
        if taken.grouped:
            taken.grouped.leave()
