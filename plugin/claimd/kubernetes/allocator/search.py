"""The search: claim after claim, request after request, device after device.

The first complete choice is the answer, and it is the one that Kubernetes finds: the plain search
takes its steps in the same order. `pruning` makes it faster and never changes the answer. Results
are put together in `results`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from . import constraints, pruning, subproblems
from .failures import AllocationError, CancelledError, TooManyDevicesError
from .partial import PartialAllocation
from .requests import RESULTS_MAX

if TYPE_CHECKING:
    from .constraints import Constraint
    from .node_devices import NodeDevices
    from .partial import Chosen
    from .pruning import Pruner
    from .requests import ClaimRequests, Request
    from .subproblems import Part

# A step yields the steps to try next and ends when nothing is left to try.
Step = Generator["Step", None, None]

# States that have failed before it is worth searching for a part of the claims that is impossible
# by itself; how many parts then, and for how many steps each.
FAILURES_BEFORE_PARTS = 250
MOST_PARTS = 60
STEPS_OF_A_PART = 600
# For people who wait for the reason why there is no answer.
STEPS_OF_AN_ENDLESS_PART = 2000
STEPS_OF_ALL_PARTS = 10_000


class Search:
    """One search for a solution. It runs once; `solution` and `taken_alternatives` then hold it.

    A solution can be 64 requests deep and 32 devices each, too deep for calls: the steps are
    generators on a stack of its own. What a step takes it gives back when it is resumed.
    """

    def __init__(
        self,
        devices: NodeDevices,
        claims: Sequence[ClaimRequests],
        constraints: Sequence[Sequence[Constraint]],
        *,
        prune_after: int | None = pruning.DEAD_ENDS,
        cancelled: Callable[[], bool] | None = None,
        is_part: bool = False,
    ) -> None:
        """`prune_after`: dead ends before pruning begins; None for none at all.

        `cancelled` is asked at every step. `is_part`: a part of another search's claims, which is
        not searched for parts again.
        """
        self.devices, self.claims, self.constraints = devices, claims, constraints
        self.partial = PartialAllocation(devices, constraints)
        self.solution: list[list[Chosen]] = []
        self.taken_alternatives: dict[tuple[int, int], int] = {}
        self.steps = 0

        self._alternatives: dict[tuple[int, int], int] = {}
        self._cancelled = cancelled
        self._is_part = is_part
        self._parts_searched = False
        self._prune_after = prune_after
        self._dead_ends = 0
        self._pruner: Pruner | None = None

    def run(self) -> bool:
        """Whether there is a solution.

        AllocationError where a rule cannot be evaluated, or where every choice gives a claim more
        devices than it may have; CancelledError as soon as `cancelled` says so.
        """
        stack = [self._next_request(0, 0)]
        too_many: TooManyDevicesError | None = None
        while stack:
            try:
                if too_many is None:
                    following = next(stack[-1])
                else:
                    following = stack[-1].throw(too_many)
            except StopIteration:
                too_many = None
                stack.pop()
                self._dead_ends += 1
                if self._pruner and self._pruner.unsolvable:
                    return False
                continue
            except TooManyDevicesError as error:
                too_many = error
                stack.pop()
                continue

            too_many = None
            self.steps += 1
            if self._cancelled and self._cancelled():
                raise CancelledError("filter operation aborted")
            if following is _COMPLETE:
                # The suspended steps give back what they took as soon as they are dropped.
                self.solution = [list(chosen) for chosen in self.partial.chosen]
                self.taken_alternatives = dict(self._alternatives)
                return True
            stack.append(following)

        if too_many:
            raise AllocationError("allocation max size exceeded")
        return False

    def taken_requests(self, claim: int) -> list[Request]:
        """Of each request of the claim the alternative that the solution has."""
        return [
            alternatives[self.taken_alternatives.get((claim, index), 0)]
            for index, alternatives in enumerate(self.claims[claim])
        ]

    # Steps

    def _next_request(self, claim: int, index: int) -> Step:
        if claim >= len(self.claims):
            yield _COMPLETE
            return

        if index >= len(self.claims[claim]):
            try:
                yield self._next_request(claim + 1, 0)
            except TooManyDevicesError:
                # After another choice for this claim the later one may get by with fewer devices.
                return
            return

        alternatives = self.claims[claim][index]
        if alternatives[0].parent is None:
            yield self._devices_for(alternatives[0], (claim, index + 1))
            return

        # Too many devices in each alternative count as too many, in some of them as a dead end.
        always_too_many = True
        for number, request in enumerate(alternatives):
            self._alternatives[claim, index] = number
            try:
                yield self._devices_for(request, (claim, index + 1))
                always_too_many = False
            except TooManyDevicesError:
                continue
        if always_too_many:
            raise TooManyDevicesError

    def _devices_for(self, request: Request, following: tuple[int, int]) -> Step:
        if not request.wants_all:
            yield self._some_devices(request, 0, 0, following)
        elif request.all_devices:
            yield self._every_device(request, 0, following)

    def _every_device(self, request: Request, index: int, following: tuple[int, int]) -> Step:
        if index >= len(request.all_devices):
            yield self._next_request(*following)
            return

        self._check_size(request, len(request.all_devices) - index)
        taken = self.partial.take(request, request.all_devices[index], required=True)
        if taken is None:
            return
        try:
            yield self._every_device(request, index + 1, following)
        finally:
            self.partial.give_back(taken)

    def _some_devices(
        self, request: Request, index: int, start: int, following: tuple[int, int]
    ) -> Step:
        """One more device, at `start` or after: combinations are tried, not orders."""
        if index >= request.count:
            yield self._next_request(*following)
            return
        self._check_size(request, request.count - index)

        devices, partial = self.devices, self.partial
        pruner = self._pruner_when_due()
        state: Hashable = None
        if pruner:
            state = pruner.state(request, index, start)
            if (
                pruner.unsolvable
                or pruner.has_failed(state)
                or pruner.is_dead_end(request, request.count - index, start)
            ):
                return

        positions: Iterable[int] = range(start, len(devices.candidates))
        if pruner:
            positions = pruner.eligible_from(request, start)
        tried: set[Hashable] = set()
        for position in positions:
            candidate = devices.candidates[position]
            if pruner:
                alike = pruner.alike_now(position)
                if alike in tried:
                    continue
                tried.add(alike)

            # The order of these questions is Kubernetes' own: each may end in an error.
            if (
                partial.in_use(request, candidate)
                or not devices.selectable(request, candidate)
                or not partial.capacity_left(request, candidate)
            ):
                continue
            taken = partial.take(request, candidate, required=False)
            if taken is None:
                continue
            try:
                yield self._some_devices(request, index + 1, position + 1, following)
            finally:
                partial.give_back(taken)

        if pruner:
            self._remember_failure(pruner, state)

    def _check_size(self, request: Request, missing: int) -> None:
        if missing > RESULTS_MAX - len(self.partial.chosen[request.claim_index]):
            raise TooManyDevicesError

    # Pruning

    def _pruner_when_due(self) -> Pruner | None:
        """Prepared once, when the search has met so many dead ends that it pays."""
        if self._prune_after is not None and self._dead_ends >= self._prune_after:
            self._prune_after = None
            self._pruner = pruning.prepare(self.claims, self.partial)
        return self._pruner

    def _remember_failure(self, pruner: Pruner, state: Hashable) -> None:
        failures = pruner.remember_failure(state)
        if failures >= FAILURES_BEFORE_PARTS and not self._parts_searched and not self._is_part:
            # Rule: what is left out of a part frees devices, counters and capacities and loosens
            # constraints, and takes nothing away. So a solution for everything holds one for each
            # part, and where a part has none there is none at all.
            self._parts_searched = True
            pruner.unsolvable = self.unsolvable_part() is not None

    def unsolvable_part(self) -> Part | None:
        """The smallest part of the claims found to have no solution of its own, if any is found.

        Each part gets a limited number of steps: one that takes more, or that ends in an error,
        says nothing.
        """
        for part in itertools.islice(subproblems.parts(self.claims), MOST_PARTS):
            if self._part_is_unsolvable(part):
                return part
        return None

    def _part_is_unsolvable(self, part: Part) -> bool:
        try:
            return not self._search_of(part, STEPS_OF_A_PART).run()
        except AllocationError:
            return False

    def endless_part(self) -> Part | None:
        """For people: the smallest part found whose own search takes very many steps, if any."""
        steps = 0
        for part in itertools.islice(subproblems.parts(self.claims), MOST_PARTS):
            search = self._search_of(part, STEPS_OF_AN_ENDLESS_PART)
            try:
                search.run()
            except CancelledError:
                # The time may be over as well as the steps.
                if self._cancelled and self._cancelled():
                    return None
                return part
            except AllocationError:
                continue
            steps += search.steps
            if steps > STEPS_OF_ALL_PARTS:
                break
        return None

    def _search_of(self, part: Part, most_steps: int) -> Search:
        """A search for a solution of the part alone, cancelled after so many steps."""
        steps = 0

        def enough() -> bool:
            nonlocal steps
            steps += 1
            return steps > most_steps or bool(self._cancelled and self._cancelled())

        return Search(
            self.devices,
            subproblems.only(self.claims, part),
            constraints.fresh(self.constraints),
            prune_after=0,
            cancelled=enough,
            is_part=True,
        )


def _complete() -> Step:
    yield from ()


_COMPLETE: Step = _complete()
