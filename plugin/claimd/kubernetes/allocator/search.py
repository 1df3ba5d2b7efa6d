"""The backtracking search for devices: claim by claim, request by request, device by device.

The first complete choice is the answer. It is the same one that Kubernetes finds, because this
search takes its steps in the same order. `pruning` makes the search faster and never changes the
answer. `results` turns the solution into AllocationResults.
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

# A step yields the steps that should be tried next. It ends when it has no more of them.
Step = Generator["Step", None, None]

# After this number of failed states the search looks for a part of the claims that has no solution
# of its own. It tries at most so many parts, and so many steps for each part.
FAILURES_BEFORE_PARTS = 250
MOST_PARTS = 60
STEPS_OF_A_PART = 600
# The limits for a person who waits for the reason why the search did not finish.
STEPS_OF_AN_ENDLESS_PART = 2000
STEPS_OF_ALL_PARTS = 10_000


class Search:
    """One search for a solution. It runs once, and leaves `solution` and `chosen_alternatives`.

    A solution may have many requests with 32 devices each, which is too deep for recursive calls.
    So the steps are generators on an explicit stack. A step takes a device before it yields, and
    gives it back when it is resumed.
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
        """Prepares a search for devices for the claims.

        `prune_after` is the number of dead ends before pruning starts; None means no pruning.
        `cancelled` is called at every step. `is_part` is True for the search of a part of another
        search's claims, which does not split them further.
        """
        self.devices, self.claims, self.constraints = devices, claims, constraints
        self.partial = PartialAllocation(devices, constraints)
        self.solution: list[list[Chosen]] = []
        self.chosen_alternatives: dict[tuple[int, int], int] = {}
        self.steps = 0

        self._alternatives: dict[tuple[int, int], int] = {}
        self._cancelled = cancelled
        self._is_part = is_part
        self._parts_searched = False
        self._prune_after = prune_after
        self._dead_ends = 0
        self._pruner: Pruner | None = None

    def run(self) -> bool:
        """Runs the search and returns True if there is a solution.

        AllocationError if a rule cannot be evaluated, or if every choice gives a claim more devices
        than it may have. CancelledError as soon as `cancelled` returns True.
        """
        stack = [self._next_request(0, 0)]
        too_many: TooManyDevicesError | None = None
        while stack:
            # Resume the step on top of the stack, or pass it the exception of the step above it.
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
                # The suspended steps give their devices back when they are garbage-collected, so
                # the solution is copied.
                self.solution = [list(chosen) for chosen in self.partial.chosen]
                self.chosen_alternatives = dict(self._alternatives)
                return True
            stack.append(following)

        if too_many:
            raise AllocationError("allocation max size exceeded")
        return False

    def chosen_requests(self, claim: int) -> list[Request]:
        """Returns the requests of the claim, with the alternative that the solution uses."""
        return [
            alternatives[self.chosen_alternatives.get((claim, index), 0)]
            for index, alternatives in enumerate(self.claims[claim])
        ]

    # Steps

    def _next_request(self, claim: int, index: int) -> Step:
        """Tries the alternatives of one request, and goes on with the next request."""
        if claim >= len(self.claims):
            yield _COMPLETE
            return

        if index >= len(self.claims[claim]):
            try:
                yield self._next_request(claim + 1, 0)
            except TooManyDevicesError:
                # With another choice for this claim, the later claim may need fewer devices.
                return
            return

        alternatives = self.claims[claim][index]
        if alternatives[0].parent is None:
            yield self._devices_for(alternatives[0], (claim, index + 1))
            return

        # "Too many devices" is the result only if every alternative has that result. Otherwise this
        # is a plain dead end.
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
        """Takes the device at `index` of a request for all devices, and then the later ones."""
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
        """Tries each device from the position `start` on as the request's device number `index`.

        Each device comes after the previous one, so that every combination is tried only once.
        """
        if index >= request.count:
            yield self._next_request(*following)
            return
        self._check_size(request, request.count - index)

        # Leave at once if this state is known to have no solution.
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
                alike = pruner.likeness(position)
                if alike in tried:
                    continue
                tried.add(alike)

            # Kubernetes checks in this order. It matters because each check may raise an error.
            if (
                partial.is_in_use(request, candidate)
                or not devices.is_selectable(request, candidate)
                or not partial.has_capacity(request, candidate)
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
        """Raises TooManyDevicesError if the claim has no room for the missing devices."""
        if missing > RESULTS_MAX - len(self.partial.chosen[request.claim_index]):
            raise TooManyDevicesError

    # Pruning

    def _pruner_when_due(self) -> Pruner | None:
        """Returns the pruner. It is created after `prune_after` dead ends; None before that."""
        if self._prune_after is not None and self._dead_ends >= self._prune_after:
            self._prune_after = None
            self._pruner = pruning.prepare(self.claims, self.partial)
        return self._pruner

    def _remember_failure(self, pruner: Pruner, state: Hashable) -> None:
        failures = pruner.remember_failure(state)
        if failures >= FAILURES_BEFORE_PARTS and not self._parts_searched and not self._is_part:
            # Rule: leaving out requests frees devices, counters and capacities, and loosens
            # constraints. So a solution for all requests contains a solution for each part of them.
            # If a part has no solution, then there is no solution at all.
            self._parts_searched = True
            pruner.unsolvable = self.unsolvable_part() is not None

    def unsolvable_part(self) -> Part | None:
        """Returns the smallest part of the claims that is known to have no solution of its own.

        None if there is no such part. Each part gets a limited number of steps. A part that needs
        more steps, or that ends in an error, does not count.
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
        """Returns the smallest part of the claims whose search takes very many steps, or None.

        It tells a person what makes the whole search take so long.
        """
        steps = 0
        for part in itertools.islice(subproblems.parts(self.claims), MOST_PARTS):
            search = self._search_of(part, STEPS_OF_AN_ENDLESS_PART)
            try:
                search.run()
            except CancelledError:
                # The search was cancelled either by its limit of steps or by the caller.
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
        """Returns a search for the part alone, which is cancelled after `most_steps` steps."""
        steps = 0

        def enough() -> bool:
            nonlocal steps
            steps += 1
            return steps > most_steps or bool(self._cancelled and self._cancelled())

        return Search(
            self.devices,
            subproblems.select_part(self.claims, part),
            constraints.empty_copies(self.constraints),
            prune_after=0,
            cancelled=enough,
            is_part=True,
        )


def _complete() -> Step:
    yield from ()


_COMPLETE: Step = _complete()
