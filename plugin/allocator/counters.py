"""Shared counters and compatibility groups of one pool while devices are chosen. Amounts are in
billionths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import amounts

if TYPE_CHECKING:
    from .devices import Candidate
    from .pools import Pool

Groups = frozenset[str]
CLASH: Groups = frozenset(
    ("",)
)  # of devices that are allocated with nothing in common: no group has that name


class PoolCounters:
    def __init__(self, pool: Pool, allocated: Iterable[Candidate]) -> None:
        """`allocated`: the pool's devices that claims hold already, also those that other nodes
        see.
        """
        self.left = {
            (name, counter): amounts.parse(amount.value).billionths
            for name, counter_set in pool.counter_sets.items()
            for counter, amount in counter_set.counters.items()
        }
        self.groups: dict[
            str, Groups
        ] = {}  # what all devices on the counter set have in common; empty: no groups
        for candidate in allocated:
            for counter, used in candidate.uses:
                if counter in self.left:
                    self.left[counter] -= used
            for name, groups in candidate.groups:
                self.groups[name] = _joined(self.groups.get(name), groups)
        self._short = {counter for counter, amount in self.left.items() if amount < 0}
        self._saved: list[dict[str, Groups | None]] = []

    @property
    def overdrawn(self) -> bool:
        """Allocated devices use more of some counter than there is."""
        return bool(self._short)

    def fits(self, candidate: Candidate) -> bool:
        """A pool that has less than nothing of any counter gives no device that uses one."""
        return not self._short and all(
            used <= self.left.get(counter, 0) for counter, used in candidate.uses
        )

    def take(self, candidate: Candidate) -> None:
        for counter, used in candidate.uses:
            self.left[counter] -= used

    def give_back(self, candidate: Candidate) -> None:
        for counter, used in candidate.uses:
            self.left[counter] += used

    def join(self, candidate: Candidate) -> bool:
        """Add the device's groups where they go with those of the others on the same counter sets."""
        saved: dict[str, Groups | None] = {}
        for name, groups in candidate.groups:
            present = self.groups.get(name)
            if present is not None and not (present & groups if present else not groups):
                self._restore(saved)
                return False
            saved.setdefault(name, present)
            self.groups[name] = _joined(present, groups)
        self._saved.append(saved)
        return True

    def leave(self) -> None:
        """Undo the last join."""
        self._restore(self._saved.pop())

    def _restore(self, saved: dict[str, Groups | None]) -> None:
        for name, groups in saved.items():
            if groups is None:
                del self.groups[name]
            else:
                self.groups[name] = groups


def _joined(present: Groups | None, groups: Groups) -> Groups:
    if present is None:
        return groups
    return (present & groups or CLASH) if present and groups else present
