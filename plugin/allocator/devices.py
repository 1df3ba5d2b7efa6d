"""Devices as the search meets them: in their order, each with what it uses of its pool. Made once
for a slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from . import amounts, capacity, selectors
from .identity import DeviceID, PoolID

if TYPE_CHECKING:
    from .. import cel
    from ..api.scheduling import Device, ResourceSlice
    from .pools import Pool

Uses = tuple[tuple[tuple[str, str], int], ...]  # counter set and counter, and how much of it


class Candidate:
    __slots__ = ("_limits", "_seen", "device", "groups", "id", "pool_id", "slice", "uses")

    def __init__(self, device: Device, slice_: ResourceSlice) -> None:
        spec = slice_.spec
        self.device, self.slice = device, slice_
        self.pool_id = PoolID(spec.driver, spec.pool.name)
        self.id = DeviceID(spec.driver, spec.pool.name, device.name)
        self.uses, self.groups = _uses(device) if device.consumes_counters else ((), ())
        self._seen: cel.Device | None = None
        self._limits: dict[str, int] | None = None

    @property
    def seen(self) -> cel.Device:
        """As expressions see it."""
        if self._seen is None:
            self._seen = selectors.described(self.id.driver, self.device)
        return self._seen

    @property
    def limits(self) -> dict[str, int]:
        if self._limits is None:
            self._limits = capacity.limits(self.device)
        return self._limits


def _uses(device: Device) -> tuple[Uses, tuple[tuple[str, frozenset[str]], ...]]:
    uses: dict[tuple[str, str], int] = {}
    groups = []
    for used in device.consumes_counters:
        groups.append((used.counter_set, frozenset(used.compatibility_groups)))
        for name, counter in used.counters.items():
            key = (used.counter_set, name)
            uses[key] = uses.get(key, 0) + amounts.parse(counter.value).billionths
    return tuple(uses.items()), tuple(groups)


class Devices:
    """The candidates of slices, kept while the slices are: allocations for many nodes and pods
    share them.
    """

    def __init__(self) -> None:
        self._of: dict[int, tuple[ResourceSlice, tuple[Candidate, ...]]] = {}

    def of_slice(self, slice_: ResourceSlice) -> tuple[Candidate, ...]:
        known = self._of.get(id(slice_))
        if known is None:
            made = tuple(Candidate(device, slice_) for device in slice_.spec.devices)
            known = self._of.setdefault(
                id(slice_), (slice_, made)
            )  # holds the slice, so that its id stays its own
        return known[1]

    def of_slices(self, slices: Iterable[ResourceSlice]) -> list[Candidate]:
        return [candidate for slice_ in slices for candidate in self.of_slice(slice_)]

    def in_order(self, pools: Sequence[Pool]) -> list[Candidate]:
        return [
            candidate for pool in pools if pool.usable for candidate in self.of_slices(pool.slices)
        ]
