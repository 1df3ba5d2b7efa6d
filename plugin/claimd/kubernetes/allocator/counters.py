"""Shared counters and compatibility groups of one pool while devices are chosen.

Amounts are in billionths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import amounts

if TYPE_CHECKING:
    from .devices import Candidate
    from .pools import Pool

Groups = frozenset[str]

# Of devices that are allocated and have no group in common. No group has this name, so nothing
# goes with it.
CONFLICT: Groups = frozenset(("",))


class PoolCounters:
    """What is left of each counter, and which groups a further device has to go with."""

    def __init__(self, pool: Pool, allocated: Iterable[Candidate]) -> None:
        """`allocated`: all the pool's devices that claims hold, also those of other nodes."""
        self.left = {
            (name, counter): amounts.parse(amount.value).billionths
            for name, counter_set in pool.counter_sets.items()
            for counter, amount in counter_set.counters.items()
        }
        # By counter set: what all devices on it have in common. Empty means they have no groups.
        self.groups: dict[str, Groups] = {}
        for candidate in allocated:
            for counter, used in candidate.uses:
                if counter in self.left:
                    self.left[counter] -= used
            for name, groups in candidate.groups:
                self.groups[name] = _joined(self.groups.get(name), groups)

        self._overdrawn = any(amount < 0 for amount in self.left.values())
        # For each device that has joined since: what stood before it.
        self._joined: list[dict[str, Groups | None]] = []

    @property
    def overdrawn(self) -> bool:
        """Allocated devices use more of some counter than there is."""
        return self._overdrawn

    def fits(self, candidate: Candidate) -> bool:
        """Whether enough is left. An overdrawn pool gives no device that uses a counter."""
        return not self._overdrawn and all(
            used <= self.left.get(counter, 0) for counter, used in candidate.uses
        )

    def take(self, candidate: Candidate) -> None:
        for counter, used in candidate.uses:
            self.left[counter] -= used

    def give_back(self, candidate: Candidate) -> None:
        for counter, used in candidate.uses:
            self.left[counter] += used

    def join(self, candidate: Candidate) -> bool:
        """Add the device's groups, or refuse it where they do not go with those of the others.

        Devices on one counter set have a group in common, or none of them has any.
        """
        before: dict[str, Groups | None] = {}
        for name, groups in candidate.groups:
            present = self.groups.get(name)
            if present is not None and not _compatible(present, groups):
                self._restore(before)
                return False
            before.setdefault(name, present)
            self.groups[name] = _joined(present, groups)
        self._joined.append(before)
        return True

    def leave(self) -> None:
        """Undo the last join."""
        self._restore(self._joined.pop())

    def _restore(self, before: dict[str, Groups | None]) -> None:
        for name, groups in before.items():
            if groups is None:
                del self.groups[name]
            else:
                self.groups[name] = groups


def _compatible(present: Groups, groups: Groups) -> bool:
    return bool(present & groups) if present else not groups


def _joined(present: Groups | None, groups: Groups) -> Groups:
    if present is None:
        return groups
    # Allocated devices may be incompatible: they were allocated when groups did not count.
    if present and groups:
        return present & groups or CONFLICT
    return present
