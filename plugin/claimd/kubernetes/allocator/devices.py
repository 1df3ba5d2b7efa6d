"""Devices as the search meets them: in their order, each with what it uses of its pool.

They are made once for a slice; allocations for many nodes and pods share them.
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

# Counter set and counter, and how much of it in billionths.
Uses = tuple[tuple[tuple[str, str], int], ...]
# Counter set, and the compatibility groups that the device has on it.
Groups = tuple[tuple[str, frozenset[str]], ...]


class Candidate:
    """A published device that a request may get. It never changes after it is made."""

    __slots__ = ("_for_cel", "_limits", "device", "groups", "id", "pool_id", "slice", "uses")

    def __init__(self, device: Device, slice_: ResourceSlice) -> None:
        spec = slice_.spec
        self.device, self.slice = device, slice_
        self.pool_id = PoolID(spec.driver, spec.pool.name)
        self.id = DeviceID(spec.driver, spec.pool.name, device.name)
        self.uses: Uses = ()
        self.groups: Groups = ()
        if device.consumes_counters:
            self.uses, self.groups = _uses(device), _groups(device)
        self._for_cel: cel.Device | None = None
        self._limits: dict[str, int] | None = None

    @property
    def for_cel(self) -> cel.Device:
        """The device as expressions see it."""
        if self._for_cel is None:
            self._for_cel = selectors.as_seen_by_cel(self.id.driver, self.device)
        return self._for_cel

    @property
    def limits(self) -> dict[str, int]:
        """Each capacity's whole amount, in billionths."""
        if self._limits is None:
            self._limits = capacity.limits(self.device)
        return self._limits


def _uses(device: Device) -> Uses:
    uses: dict[tuple[str, str], int] = {}
    for consumed in device.consumes_counters:
        for name, counter in consumed.counters.items():
            key = (consumed.counter_set, name)
            uses[key] = uses.get(key, 0) + amounts.parse(counter.value).billionths
    return tuple(uses.items())


def _groups(device: Device) -> Groups:
    return tuple(
        (consumed.counter_set, frozenset(consumed.compatibility_groups))
        for consumed in device.consumes_counters
    )


class Devices:
    """The candidates of slices, kept as long as the slices are."""

    def __init__(self) -> None:
        # By the slice's id(). The slice stands in the value so that its id remains its own.
        self._by_slice: dict[int, tuple[ResourceSlice, tuple[Candidate, ...]]] = {}

    def of_slice(self, slice_: ResourceSlice) -> tuple[Candidate, ...]:
        """The same candidates each time. Threads may ask at once: one of them wins."""
        kept = self._by_slice.get(id(slice_))
        if kept is None:
            candidates = tuple(Candidate(device, slice_) for device in slice_.spec.devices)
            kept = self._by_slice.setdefault(id(slice_), (slice_, candidates))
        return kept[1]

    def of_slices(self, slices: Iterable[ResourceSlice]) -> list[Candidate]:
        return [candidate for slice_ in slices for candidate in self.of_slice(slice_)]

    def in_order(self, pools: Sequence[Pool]) -> list[Candidate]:
        """The devices of all pools that can be trusted, as the search goes through them."""
        return [
            candidate for pool in pools if pool.usable for candidate in self.of_slices(pool.slices)
        ]
