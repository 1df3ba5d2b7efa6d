"""What a search has taken so far, and the rules for taking one more device.

Nothing here decides what to try next. Devices are given back in the reverse order of their taking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import features
from .failures import AllocationError

if TYPE_CHECKING:
    from .amounts import Amount
    from .constraints import Constraint
    from .counters import PoolCounters
    from .devices import Candidate
    from .identity import DeviceID, PoolID
    from .node_devices import NodeDevices
    from .requests import Request


class Chosen(NamedTuple):
    """A device that a request gets."""

    request: Request
    candidate: Candidate
    consumed: Mapping[str, Amount] | None  # of a shared device


class Taken:
    """One device that was taken, with all that giving it back has to undo."""

    __slots__ = ("candidate", "constraints", "consumed", "counters", "grouped", "held", "request")

    def __init__(self, request: Request, candidate: Candidate) -> None:
        self.request, self.candidate = request, candidate
        self.constraints: list[Constraint] = []
        self.counters: PoolCounters | None = None
        self.grouped: PoolCounters | None = None
        self.consumed: Mapping[str, Amount] | None = None
        self.held = False


class PartialAllocation:
    """The devices chosen for each claim, and what they use up."""

    def __init__(self, devices: NodeDevices, constraints: Sequence[Sequence[Constraint]]) -> None:
        """`constraints`: those of each claim, with no device yet."""
        self.devices = devices
        self.constraints = constraints
        self.chosen: list[list[Chosen]] = [[] for _ in constraints]
        # By device: the claims that would have it for themselves.
        self.holders: dict[DeviceID, set[int]] = {}
        # By shared device: what would be consumed of each capacity, and by how many requests.
        self.shares: dict[DeviceID, dict[str, int]] = {}
        self.share_count: dict[DeviceID, int] = {}
        self._counters: dict[PoolID, PoolCounters] = {}

    def in_use(self, request: Request, candidate: Candidate) -> bool:
        """Whether the device is taken. With admin access only the own claim's devices count."""
        holders = self.holders.get(candidate.id)
        if request.admin:
            return holders is not None and request.claim_index in holders
        return bool(holders) or candidate.id in self.devices.allocated.devices

    def capacity_left(self, request: Request, candidate: Candidate) -> bool:
        """Whether the device has as much left of each capacity as the request would consume."""
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
        return all(
            amount.billionths + allocated.get(name, 0) + taken.get(name, 0)
            <= candidate.limits[name]
            for name, amount in consumed.items()
        )

    def counters(self, pool_id: PoolID) -> PoolCounters:
        """The pool's counters as the devices taken have left them."""
        counters = self._counters.get(pool_id)
        if counters is None:
            counters = self._counters[pool_id] = self.devices.counters(pool_id)
        return counters

    def take(self, request: Request, candidate: Candidate, *, required: bool) -> Taken | None:
        """Take the device, or None where a rule is against it; then nothing has changed.

        `required` is set where no other device would do: there a constraint that refuses it is an
        AllocationError, as it is in Kubernetes.
        """
        devices = self.devices
        if self.in_use(request, candidate) or not devices.node_operations(candidate):
            return None
        if candidate.device.consumes_counters and not devices.partitionable:
            return None

        # From here on there is something to undo. The order of the rules is Kubernetes' own, as
        # with `required` it decides whether there is an error.
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
        if not self.capacity_left(request, candidate):
            self._undo(taken)
            return None

        if devices.shareable(candidate):
            self._share(taken)
        else:
            holders = self.holders.setdefault(candidate.id, set())
            taken.held = request.claim_index not in holders
            holders.add(request.claim_index)
        self.chosen[request.claim_index].append(Chosen(request, candidate, taken.consumed))
        return taken

    def give_back(self, taken: Taken) -> None:
        self.chosen[taken.request.claim_index].pop()
        self._undo(taken)

    def _take_counters(self, taken: Taken) -> bool:
        """A shared device uses its counters once, however many shares it has."""
        candidate, devices = taken.candidate, self.devices
        if not candidate.device.consumes_counters:
            return True
        if devices.shareable(candidate):
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
        request, candidate = taken.request, taken.candidate
        for constraint in self.constraints[request.claim_index]:
            if not request.under(constraint.requests):
                continue
            attribute = self.devices.attribute(request, candidate, constraint.attribute)
            if not constraint.add(attribute):
                return False
            taken.constraints.append(constraint)
        return True

    def _share(self, taken: Taken) -> None:
        device = taken.candidate.id
        consumed = self.devices.consumption(taken.request, taken.candidate)
        assert consumed is not None

        total = self.shares.setdefault(device, {})
        for name, amount in consumed.items():
            total[name] = total.get(name, 0) + amount.billionths
        self.share_count[device] = self.share_count.get(device, 0) + 1
        taken.consumed = consumed

    def _undo(self, taken: Taken) -> None:
        """Whatever of a taking was done, in the reverse order."""
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
