"""The shared counters and compatibility groups of one pool, while devices are chosen.

All amounts are in billionths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import amounts

if TYPE_CHECKING:
    from .devices import Candidate
    from .pools import Pool

Groups = frozenset[str]

# The groups of a counter set whose allocated devices have no group in common. No real group has
# this name, so no device is compatible with it.
CONFLICT: Groups = frozenset(("",))


class PoolCounters:
    """The remaining amount of each counter, and the groups that another device must share."""

    def __init__(self, pool: Pool, allocated: Iterable[Candidate]) -> None:
        """Subtracts the devices of the pool that claims hold, on this and on other nodes."""
        # By counter set and counter: the amount that no device uses.
        self.left: dict[tuple[str, str], int] = {}
        for set_name, counter_set in pool.counter_sets.items():
            for counter_name, amount in counter_set.counters.items():
                self.left[set_name, counter_name] = amounts.parse(amount.value).billionths

        # By counter set: the groups that all devices on it have in common. Empty if the devices
        # have no groups.
        self.groups: dict[str, Groups] = {}

        for candidate in allocated:
            for counter, used in candidate.uses:
                # Pools have no counter sets while the feature for partitionable devices is off.
                if counter in self.left:
                    self.left[counter] -= used
            for name, groups in candidate.groups:
                self.groups[name] = _combine(self.groups.get(name), groups)

        self._overdrawn = any(amount < 0 for amount in self.left.values())
        # For each device that has joined since then: the groups before it joined.
        self._joined: list[dict[str, Groups | None]] = []

    @property
    def is_overdrawn(self) -> bool:
        """True if the allocated devices use more of a counter than the pool has."""
        return self._overdrawn

    def fits(self, candidate: Candidate) -> bool:
        """Returns True if enough of the device's counters is left.

        No device fits if any counter of the pool is overdrawn.
        """
        return not self._overdrawn and all(
            used <= self.left.get(counter, 0) for counter, used in candidate.uses
        )

    def take(self, candidate: Candidate) -> None:
        """Subtracts what the device uses. The device must fit."""
        for counter, used in candidate.uses:
            self.left[counter] -= used

    def give_back(self, candidate: Candidate) -> None:
        """Undoes `take`."""
        for counter, used in candidate.uses:
            self.left[counter] += used

    def join(self, candidate: Candidate) -> bool:
        """Adds the device's groups. Returns False, and changes nothing, if they are incompatible.

        The devices on one counter set must have a group in common, or all have no groups.
        """
        before: dict[str, Groups | None] = {}
        for name, groups in candidate.groups:
            present = self.groups.get(name)
            if present is not None and not _compatible(present, groups):
                self._restore(before)
                return False
            before.setdefault(name, present)
            self.groups[name] = _combine(present, groups)
        self._joined.append(before)
        return True

    def leave(self) -> None:
        """Undoes the last successful `join`."""
        self._restore(self._joined.pop())

    def _restore(self, before: dict[str, Groups | None]) -> None:
        for name, groups in before.items():
            if groups is None:
                del self.groups[name]
            else:
                self.groups[name] = groups


def _compatible(present: Groups, groups: Groups) -> bool:
    return bool(present & groups) if present else not groups


def _combine(present: Groups | None, groups: Groups) -> Groups:
    if present is None:
        return groups
    # Allocated devices may be incompatible, if the feature was off when they were allocated.
    if present and groups:
        return present & groups or CONFLICT
    return present
