"""The search: claim after claim, request after request, device after device; the first complete
choice is the answer.

What makes it faster lies in cuts.py and never changes the answer. Results are put together in
results.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..api.scheduling import DeviceAttribute
from . import capacity, constraints, features, nodes, pruning, selectors, taints
from .counters import PoolCounters
from .failures import AllocationError, CancelledError, TooManyDevicesError
from .requests import RESULTS_MAX, Want, claim_name

if TYPE_CHECKING:
    from ..api.core import Node
    from .amounts import Amount
    from .constraints import Constraint
    from .devices import Candidate
    from .features import Features
    from .identity import DeviceID, PoolID
    from .state import AllocatedState

Step = Generator["Step", None, None]  # yields what to try next; ends when nothing is left to try


class Chosen(NamedTuple):
    want: Want
    candidate: Candidate
    consumed: Mapping[str, Amount] | None  # of a shared device


class World:
    """What stays as it is during one allocation."""

    def __init__(self, *, node: Node, candidates: Sequence[Candidate], allocated: AllocatedState,
                 enabled: Features, counters: Callable[[PoolID], PoolCounters]) -> None:  # fmt: skip
        self.node, self.candidates, self.allocated, self.features = (
            node,
            candidates,
            allocated,
            enabled,
        )
        self.counters = counters
        self.positions = {candidate.id: position for position, candidate in enumerate(candidates)}
        self.consumable = features.CONSUMABLE_CAPACITY in enabled
        self.partitionable = features.PARTITIONABLE_DEVICES in enabled
        self._matches: dict[tuple[int, DeviceID], bool] = {}
        self._consumption: dict[tuple[int, DeviceID], dict[str, Amount] | None] = {}
        self._derived: dict[tuple[str, DeviceID], DeviceAttribute] = {}

    def shareable(self, candidate: Candidate) -> bool:
        return self.consumable and bool(candidate.device.allow_multiple_allocations)

    def selectable(self, want: Want, candidate: Candidate) -> bool:
        """Class, selectors and node; asked once for each device and request."""
        key = (want.key, candidate.id)
        known = self._matches.get(key)
        if known is None:
            known = self._matches[key] = self._selectable(want, candidate)
        return known

    def _selectable(self, want: Want, candidate: Candidate) -> bool:
        device, spec = candidate.device, candidate.slice.spec
        if device.binding_conditions and features.BINDING_CONDITIONS not in self.features:
            return False
        assert want.class_
        for owned, owner in (
            (want.class_.spec.selectors, f"class {want.class_.metadata.name}"),
            (want.selectors, f"claim {claim_name(want.claim)}"),
        ):
            if owned and not selectors.match(owned, candidate.seen, candidate.id, owner):
                return False
        if not spec.per_device_node_selection:
            return True
        try:
            return nodes.matches(
                self.node, device.node_name, device.all_nodes, device.node_selector
            )
        except ValueError as error:
            raise AllocationError(
                f"device {candidate.id} has a bad node selector: {error}"
            ) from error

    def consumption(self, want: Want, candidate: Candidate) -> dict[str, Amount] | None:
        """What the request would consume of each capacity; None where the device cannot serve it."""
        key = (want.key, candidate.id)
        if key not in self._consumption:
            try:
                found = capacity.consumption(want.capacity, candidate.device, self.features)
            except ValueError as error:
                raise AllocationError(
                    f"{want}: checking capacity for device {candidate.id}: {error}"
                ) from error
            self._consumption[key] = found
        return self._consumption[key]

    def attribute(self, want: Want, candidate: Candidate, name: str) -> DeviceAttribute | None:
        """As constraints see it: what the request derives comes before what the device has."""
        expression = want.derived.get(name)
        if expression is None:
            return constraints.lookup(candidate.device, candidate.id, name)
        key = (expression, candidate.id)
        if key not in self._derived:
            self._derived[key] = selectors.derive(name, expression, candidate)
        return self._derived[key]

    def node_operations(self, candidate: Candidate) -> bool:
        """Whether the node can do without the operations that the slice says to skip."""
        if not candidate.slice.spec.skip_node_operations or not features.knows_node_operations(
            self.features
        ):
            return True
        return (
            features.OPTIONAL_NODE_OPERATIONS in self.features
            and features.OPTIONAL_NODE_OPERATIONS in self.node.status.declared_features
        )


class Search:
    """One run. `plan` has, for each claim, its requests and for each of these the alternatives."""

    def __init__(
        self,
        world: World,
        plan: Sequence[Sequence[Sequence[Want]]],
        limits: Sequence[Sequence[Constraint]],
        *,
        patience: int | None = pruning.PATIENCE,
        cancelled: Callable[[], bool] | None = None,
        partial: bool = False,
    ) -> None:
        """`patience`: dead ends before cuts are looked for; None for no cuts. `partial`: a part of
        a plan.
        """
        self.world, self.plan, self.limits = world, plan, limits
        self.patience, self.dead_ends = patience, 0
        self.partial = partial
        self.cuts: pruning.Cuts | None = None
        self._counters: dict[PoolID, PoolCounters] = {}
        self.cancelled = cancelled
        self.chosen: list[list[Chosen]] = [[] for _ in plan]
        self.picked: dict[tuple[int, int], int] = {}  # the alternative of each request
        self.holders: dict[DeviceID, set[int]] = {}  # claims that would get a device for themselves
        self.shares: dict[DeviceID, dict[str, int]] = {}  # what would be consumed of shared devices
        self.share_count: dict[DeviceID, int] = {}
        self.steps = 0
        self.solution: list[list[Chosen]] = []
        self.alternatives: dict[tuple[int, int], int] = {}

    def run(self) -> bool:
        """Whether there is a solution, which then lies in `solution` and `alternatives`."""
        stack = [self._request(0, 0)]
        thrown: TooManyDevicesError | None = None
        while stack:
            try:
                following = next(stack[-1]) if thrown is None else stack[-1].throw(thrown)
            except StopIteration:
                thrown = None
                stack.pop()
                self.dead_ends += 1
                if self.cuts and self.cuts.hopeless:
                    return False
            except TooManyDevicesError as error:
                thrown = error
                stack.pop()
            else:
                thrown = None
                self.steps += 1
                if self.cancelled and self.cancelled():
                    raise CancelledError("filter operation aborted")
                if following is _DONE:
                    # The suspended steps undo their choices when they are dropped: what they chose
                    # is kept here.
                    self.solution = [list(chosen) for chosen in self.chosen]
                    self.alternatives = dict(self.picked)
                    return True
                stack.append(following)
        if thrown:
            raise AllocationError("allocation max size exceeded")
        return False

    def _request(self, claim: int, request: int) -> Step:
        if claim >= len(self.plan):
            yield _DONE
        elif request >= len(self.plan[claim]):
            try:
                yield self._request(claim + 1, 0)
            except TooManyDevicesError:
                # another choice for an earlier claim may leave a smaller alternative to this one
                return
        elif self.plan[claim][request][0].parent is None:
            yield self._devices(claim, request, 0)
        else:
            always_too_many = True
            for index in range(len(self.plan[claim][request])):
                self.picked[claim, request] = index
                try:
                    yield self._devices(claim, request, index)
                    always_too_many = False
                except TooManyDevicesError:
                    continue
            if always_too_many:
                raise TooManyDevicesError

    def _devices(self, claim: int, request: int, alternative: int) -> Step:
        want = self.plan[claim][request][alternative]
        following = (claim, request + 1)
        if want.wants_all:
            if want.all_devices:
                yield self._every(want, 0, following)
        else:
            yield self._some(want, 0, 0, following)

    def _check_size(self, want: Want, missing: int) -> None:
        if missing > RESULTS_MAX - len(self.chosen[want.claim_index]):
            raise TooManyDevicesError

    def _every(self, want: Want, index: int, following: tuple[int, int]) -> Step:
        if index >= len(want.all_devices):
            yield self._request(*following)
            return
        self._check_size(want, len(want.all_devices) - index)
        undo = self._allocate(want, want.all_devices[index], must=True)
        if undo is None:
            return
        try:
            yield self._every(want, index + 1, following)
        finally:
            self._undo(undo)

    def _some(self, want: Want, index: int, start: int, following: tuple[int, int]) -> Step:
        """The devices at `start` and after: combinations are tried, not orders."""
        if index >= want.count:
            yield self._request(*following)
            return
        self._check_size(want, want.count - index)
        cut, place = self._cuts(), None
        if cut:
            place = cut.place(want, index, start)
            if cut.hopeless or cut.failed(place) or cut.bleak(want, want.count - index, start):
                return
        candidates = self.world.candidates
        tried: set[Hashable] = set()
        for position in cut.following(want, start) if cut else range(start, len(candidates)):
            candidate = candidates[position]
            if cut:
                likeness = cut.likeness(position)
                if likeness in tried:
                    continue
                tried.add(likeness)
            if (
                self.in_use(want, candidate)
                or not self.world.selectable(want, candidate)
                or not self._capacity_left(want, candidate)
            ):
                continue
            undo = self._allocate(want, candidate, must=False)
            if undo is None:
                continue
            try:
                yield self._some(want, index + 1, position + 1, following)
            finally:
                self._undo(undo)
        if cut:
            cut.fail(place)

    def _cuts(self) -> pruning.Cuts | None:
        """Looked for once, when the search has met so many dead ends that it pays."""
        if self.patience is not None and self.dead_ends >= self.patience:
            self.patience = None
            self.cuts = pruning.find(self)
        return self.cuts

    def in_use(self, want: Want, candidate: Candidate) -> bool:
        holders = self.holders.get(candidate.id)
        if want.admin:
            return holders is not None and want.claim_index in holders
        return bool(holders) or candidate.id in self.world.allocated.devices

    def _capacity_left(self, want: Want, candidate: Candidate) -> bool:
        if not self.world.consumable:
            return True
        consumed = self.world.consumption(want, candidate)
        if consumed is None:
            return False
        if not consumed:
            return True
        allocated = self.world.allocated.capacity.get(candidate.id, {})
        allocating = self.shares.get(candidate.id, {})
        return all(
            amount.billionths + allocated.get(name, 0) + allocating.get(name, 0)
            <= candidate.limits[name]
            for name, amount in consumed.items()
        )

    def _allocate(self, want: Want, candidate: Candidate, *, must: bool) -> _Undo | None:
        """Take the device if it can be had; `must` where nothing else would do, and a constraint is
        then an error.
        """
        world = self.world
        if self.in_use(want, candidate) or not world.node_operations(candidate):
            return None
        if candidate.device.consumes_counters and not world.partitionable:
            return None
        undo = _Undo(want, candidate)
        taken = self._take_counters(undo) and not (
            features.DEVICE_TAINTS in world.features
            and taints.blocking(candidate.device.taints, want.tolerations)
        )
        if taken and not self._constrain(undo):
            self._undo(undo)
            if must:
                raise AllocationError(
                    f"{want}: cannot add device {candidate.id} because a claim constraint would not be satisfied"
                )
            return None
        if not taken or not self._capacity_left(want, candidate):
            self._undo(undo)
            return None
        consumed = None
        if world.shareable(candidate):
            consumed = self._share(undo)
        else:
            holders = self.holders.setdefault(candidate.id, set())
            undo.held = want.claim_index not in holders
            holders.add(want.claim_index)
        self.chosen[want.claim_index].append(Chosen(want, candidate, consumed))
        undo.recorded = True
        return undo

    def _take_counters(self, undo: _Undo) -> bool:
        """A shared device uses its counters once, however many shares it has."""
        candidate, world = undo.candidate, self.world
        if not candidate.device.consumes_counters:
            return True
        shared = candidate.id in world.allocated.shared or self.share_count.get(candidate.id)
        if world.shareable(candidate) and shared:
            return True
        counters = self.counters(candidate.pool_id)
        if features.COMPATIBILITY_GROUPS in world.features:
            if not counters.join(candidate):
                return False
            undo.joined = counters
        if not counters.fits(candidate):
            return False
        counters.take(candidate)
        undo.counters = counters
        return True

    def counters(self, pool_id: PoolID) -> PoolCounters:
        """The pool's counters as this attempt has left them."""
        known = self._counters.get(pool_id)
        if known is None:
            known = self._counters[pool_id] = self.world.counters(pool_id)
        return known

    def _constrain(self, undo: _Undo) -> bool:
        for constraint in self.limits[undo.want.claim_index]:
            if undo.want.under(constraint.requests):
                attribute = self.world.attribute(undo.want, undo.candidate, constraint.attribute)
                if not constraint.add(attribute):
                    return False
                undo.constraints.append(constraint)
        return True

    def _share(self, undo: _Undo) -> Mapping[str, Amount]:
        consumed = self.world.consumption(undo.want, undo.candidate)
        assert consumed is not None
        device = undo.candidate.id
        taken = self.shares.setdefault(device, {})
        for name, amount in consumed.items():
            taken[name] = taken.get(name, 0) + amount.billionths
        self.share_count[device] = self.share_count.get(device, 0) + 1
        undo.consumed = consumed
        return consumed

    def _undo(self, undo: _Undo) -> None:
        device = undo.candidate.id
        if undo.recorded:
            self.chosen[undo.want.claim_index].pop()
        if undo.consumed is not None:
            self.share_count[device] -= 1
            for name, amount in undo.consumed.items():
                self.shares[device][name] -= amount.billionths
        if undo.held:
            self.holders[device].discard(undo.want.claim_index)
        for constraint in reversed(undo.constraints):
            constraint.remove()
        if undo.counters:
            undo.counters.give_back(undo.candidate)
        if undo.joined:
            undo.joined.leave()


class _Undo:
    """What taking one device changed."""

    __slots__ = (
        "candidate",
        "constraints",
        "consumed",
        "counters",
        "held",
        "joined",
        "recorded",
        "want",
    )

    def __init__(self, want: Want, candidate: Candidate) -> None:
        self.want, self.candidate = want, candidate
        self.constraints: list[Constraint] = []
        self.counters: PoolCounters | None = None
        self.joined: PoolCounters | None = None
        self.consumed: Mapping[str, Amount] | None = None
        self.held = self.recorded = False


def _done() -> Step:
    yield from ()


_DONE: Step = _done()
