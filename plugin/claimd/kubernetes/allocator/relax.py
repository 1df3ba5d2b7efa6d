"""Finds remedies: changes after which the claims would fit on a node.

It changes the claims or frees devices, and runs the allocator again. The allocator has confirmed
every remedy. It has also confirmed that each change in a remedy is necessary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import changes, constraints, state
from .causes import Change, Holder, Remedy
from .changes import Edit
from .counting import Counting
from .failures import AllocationError, CancelledError
from .holdings import Holding
from .reasons import Reasons

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.scheduling import ResourceClaim
    from .allocator import Allocator, SearchInput
    from .holdings import Holdings
    from .identity import PoolID

# A search that has taken the first number of steps asks `counting` for a proof that the answer is
# "no". A search with more steps than the second number counts as unanswered.
STEPS_BEFORE_COUNTING = 200
STEPS_OF_A_QUESTION = 4000
# The most held devices, changes of one kind, and starting sets that are tried.
_MOST_HOLDINGS = 256
_MOST_SINGLES = 24
_MOST_VALUES = 16

# The same change in several degrees, the smallest first. Freeing a device has only one degree.
Step = Holding | Edit
Degrees = tuple[Step, ...]


class Limit:
    """A `cancelled` callback that ends a search by time, by steps, or because its answer is known.

    After a number of steps it calls `proves_a_no`. If that returns True the search ends, and
    `is_no` becomes True.
    """

    def __init__(
        self,
        most_steps: int | None = None,
        *,
        expired: Callable[[], bool] | None,
        proves_a_no: Callable[[], bool],
    ) -> None:
        self.is_no = False
        self._steps = 0
        self._most_steps = most_steps
        self._expired = expired
        self._proves_a_no = proves_a_no

    def __call__(self) -> bool:
        self._steps += 1
        if self._steps == STEPS_BEFORE_COUNTING:
            self.is_no = self._proves_a_no()
        if self.is_no or (self._expired is not None and self._expired()):
            return True
        return self._most_steps is not None and self._steps > self._most_steps


class Relaxation:
    """A search for remedies on one node, until `expired` returns True."""

    def __init__(
        self,
        allocator: Allocator,
        node: Node,
        claims: Sequence[ResourceClaim],
        holdings: Holdings,
        expired: Callable[[], bool] | None,
        kept: Collection[str] = (),
    ) -> None:
        """Prepares the search. `kept` are claims (namespace/name) that must not lose devices."""
        self._allocator, self._node, self._claims = allocator, node, claims
        self._holdings, self._kept = holdings, kept
        self._expired = expired or (lambda: False)
        self._inputs: dict[frozenset[Edit], SearchInput | None] = {}
        self._answers: dict[frozenset[Step], bool | None] = {}
        # False as soon as one run of the allocator had no answer.
        self.finished = True

        # Only devices in the node's own pools can help.
        pools: set[PoolID] = set()
        search_input = self._input(frozenset())
        if search_input is not None:
            pools.update(pool.pool_id for pool in search_input.pools)
        self._held = holdings.in_pools(pools)

    def remedies(self) -> list[Remedy]:
        """Returns alternative remedies, the easiest first.

        It returns a remedy for each single kind of change that is enough. If no kind is enough, it
        returns one remedy that combines as few kinds as possible.
        """
        search_input = self._input(frozenset())
        if search_input is None:
            return []

        # The kinds of changes, the easiest for people first.
        others = [holding for holding in self._held if holding.claim not in self._kept]
        by_kind: list[list[Degrees]] = [
            [(holding,) for holding in others[:_MOST_HOLDINGS]],
            _first(changes.tolerations(search_input)),
            _first(changes.capacities(search_input)),
            _first(changes.counts(search_input)),
            _first(changes.clauses(search_input)),
            _first(changes.constraints(self._claims)),
            _first(changes.requests(self._claims)),
        ]
        by_kind = [kind for kind in by_kind if kind]

        remedies: list[Remedy] = []
        for kind in by_kind:
            remedy = self._remedy_of_kind(kind)
            if remedy:
                remedies.append(remedy)
        if remedies:
            return remedies

        # No kind is enough on its own, so try pairs of kinds.
        for kinds in itertools.combinations(by_kind, 2):
            remedy = self._smallest(list(itertools.chain(*kinds)))
            if remedy:
                return [remedy]

        # Three and more kinds have too many combinations. Add them one by one in their order.
        for number in range(3, len(by_kind) + 1):
            remedy = self._smallest(list(itertools.chain(*by_kind[:number])))
            if remedy:
                return [remedy]
        return []

    # Remedies

    def _remedy_of_kind(self, kind: list[Degrees]) -> Remedy | None:
        """Returns the smallest remedy with changes of one kind, or None."""
        # Freed devices never hurt. If freeing all of them is not enough, then no subset is.
        if isinstance(kind[0][-1], Holding) and not self._fits(_largest(kind)):
            return None
        return self._single(kind) or self._smallest(kind)

    def _single(self, kind: list[Degrees]) -> Remedy | None:
        """Returns a remedy with a single change, or None.

        For held devices, the remedy lists all devices that are enough on their own.
        """
        enough: list[Degrees] = []
        for degrees in kind:
            if self._fits((degrees[-1],)):
                enough.append(degrees)
                if not isinstance(degrees[-1], Holding):
                    break
        if not enough:
            return None

        # Any one of these devices is enough, and people choose which claim can spare it.
        if isinstance(enough[0][-1], Holding):
            holdings, _ = _split_steps(_largest(enough))
            return Remedy(changes=(self._free(holdings, 1),))
        return self._remedy([self._least((), enough[0])])

    def _smallest(self, kind: list[Degrees]) -> Remedy | None:
        """Returns a minimal set of changes from all of these, or None if they are not enough."""
        if not self._fits(_largest(kind)):
            return None

        # Shrinking ends at a local minimum. Other starting sets may lead to a smaller one.
        best = self._shrink(kind)
        for start in self._starts(kind):
            if len(start) < len(kind) and self._fits(_largest(start)):
                other = self._shrink(start)
                if len(other) < len(best):
                    best = other
        return self._remedy(best)

    def _starts(self, kind: list[Degrees]) -> Iterator[list[Degrees]]:
        """Yields smaller sets to start from: the devices of one claim, or with one common value."""
        # Changes of other kinds belong to every starting set.
        others = [degrees for degrees in kind if not isinstance(degrees[-1], Holding)]

        groups: dict[object, list[Degrees]] = {}
        names = self._matched_attributes()
        for degrees in kind:
            holding = degrees[-1]
            if not isinstance(holding, Holding):
                continue
            groups.setdefault(("claim", holding.claim), []).append(degrees)
            for name, value in self._values(holding, names):
                groups.setdefault((name, value), []).append(degrees)

        # The smallest sets are the most promising.
        ordered = sorted(groups.values(), key=len)
        for group in ordered[:_MOST_VALUES]:
            yield [*group, *others]

    def _matched_attributes(self) -> list[str]:
        """Returns the attributes of all matchAttribute constraints."""
        attributes = []
        for claim in self._claims:
            for constraint in claim.spec.devices.constraints:
                if constraint.match_attribute is not None:
                    attributes.append(constraint.match_attribute)
        return attributes

    def _values(self, holding: Holding, names: Sequence[str]) -> Iterator[tuple[str, object]]:
        """Yields the values of these attributes of a held device."""
        search_input = self._input(frozenset())
        assert search_input
        position = search_input.devices.positions.get(holding.device)
        if position is None:
            return
        candidate = search_input.devices.candidates[position]
        for name in names:
            attribute = constraints.lookup(candidate.device, candidate.id, name)
            if attribute is not None:
                for value in constraints.values(attribute):
                    yield name, value

    def _shrink(self, kind: list[Degrees]) -> list[Step]:
        """Reduces changes that are enough to the necessary ones, each in its smallest degree.

        The least welcome changes come last and are left out first.
        """
        kept = list(kind)
        # Try to leave out large pieces first, because most held devices are irrelevant.
        size = len(kept)
        while size > 1:
            size = (size + 1) // 2
            for start in range(len(kept) - size, -size, -size):
                fewer = kept[: max(start, 0)] + kept[start + size :]
                if fewer and self._fits(_largest(fewer)):
                    kept = fewer
            if size == 1:
                break

        # Then reduce each change to the smallest degree that is enough together with the others.
        steps = list(_largest(kept))
        for index, degrees in enumerate(kept):
            others = tuple(steps[:index] + steps[index + 1 :])
            steps[index] = self._least(others, degrees)
        return steps

    def _least(self, others: tuple[Step, ...], degrees: Degrees) -> Step:
        """Returns the smallest degree that is enough together with the other changes.

        The largest degree is known to be enough.
        """
        for step in degrees[:-1]:
            if self._fits((*others, step)):
                return step
        return degrees[-1]

    def _remedy(self, steps: Sequence[Step]) -> Remedy | None:
        """Returns the remedy. None unless every single change is proved to be necessary."""
        if len(steps) > 1:
            for index in range(len(steps)):
                if self._fits(tuple(steps[:index]) + tuple(steps[index + 1 :])) is not False:
                    return None
        holdings, edits = _split_steps(steps)
        parts = [edit.change for edit in edits]
        if holdings:
            parts.insert(0, self._free(holdings, len(holdings)))
        return Remedy(changes=tuple(parts))

    def _free(self, holdings: Sequence[Holding], count: int) -> Change:
        """Returns the change that frees `count` of the held devices."""
        return Change(
            kind="free",
            count=count,
            holders=tuple(
                Holder(device=holding.device, claims=(holding.claim,)) for holding in holdings
            ),
            namespace=self._claims[0].metadata.namespace if self._claims else "",
        )

    # Runs of the allocator

    def _fits(self, steps: tuple[Step, ...]) -> bool | None:
        """Returns True if the claims fit after these changes. None if the time runs out."""
        key = frozenset(steps)
        if key not in self._answers:
            if self._expired():
                self.finished = False
                return None
            answer = self._ask(key)
            self._answers[key] = answer
            if answer is None:
                self.finished = False
        return self._answers[key]

    def _ask(self, steps: frozenset[Step]) -> bool | None:
        """Runs the allocator for the changed claims, with the devices that are still held."""
        _, edits = _split_steps(steps)
        search_input = self._input(frozenset(edits))
        if search_input is None:
            return False

        # Each run starts from the devices that are still held after the change.
        still_held = []
        for holding in self._held:
            if holding not in steps:
                still_held.append(holding.result)
        allocated = state.gather_from_results(still_held, self._allocator.features)
        asked = self._allocator.with_allocated(search_input, allocated)
        asked.devices.cancelled = self._expired
        limit = Limit(
            STEPS_OF_A_QUESTION, expired=self._expired, proves_a_no=lambda: self._is_short(asked)
        )
        try:
            return asked.search(prune_after=0, cancelled=limit).run()
        except CancelledError:
            return False if limit.is_no else None
        except AllocationError:
            return False

    def _is_short(self, search_input: SearchInput) -> bool:
        drivers = self._allocator.drivers
        reasons = Reasons(search_input, self._holdings, drivers)
        return Counting(search_input, reasons, self._holdings, drivers).proves_a_no

    def _input(self, edits: frozenset[Edit]) -> SearchInput | None:
        """Returns the input of a search after these edits. None if a check of the claims fails."""
        if edits not in self._inputs:
            claims = changes.apply_edits(self._claims, edits)
            try:
                self._inputs[edits] = self._allocator.search_input(self._node, claims)
            except AllocationError:
                self._inputs[edits] = None
        return self._inputs[edits]


def _largest(kind: Iterable[Degrees]) -> tuple[Step, ...]:
    """Returns each change in its largest degree."""
    return tuple([degrees[-1] for degrees in kind])


def _split_steps(steps: Iterable[Step]) -> tuple[list[Holding], list[Edit]]:
    """Returns the devices that the steps free, and the edits of the claims."""
    holdings, edits = [], []
    for step in steps:
        if isinstance(step, Holding):
            holdings.append(step)
        else:
            edits.append(step)
    return holdings, edits


def _first(kind: Iterator[Degrees]) -> list[Degrees]:
    """Returns the first `_MOST_SINGLES` changes that have at least one degree."""
    return list(itertools.islice((degrees for degrees in kind if degrees), _MOST_SINGLES))
