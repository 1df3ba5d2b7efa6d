"""Published devices as candidates of the search, with the counters that they use.

The candidates of a slice are created once. Allocations for many nodes and pods share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import amounts, capacity, capacity_names, selectors
from .features import DEFAULT
from .identity import DeviceID, PoolID

if TYPE_CHECKING:
    from .. import cel
    from ..api.resource import DeviceCapacity
    from ..api.scheduling import Device, ResourceSlice
    from .amounts import Amount
    from .features import Features
    from .pools import Pool

# Pairs of a counter (counter set and name) and the used amount in billionths.
Uses = tuple[tuple[tuple[str, str], int], ...]
# Pairs of a counter set and the device's compatibility groups on it.
Groups = tuple[tuple[str, frozenset[str]], ...]


class Candidate:
    """A published device that a request may get. It never changes after its construction."""

    __slots__ = (
        *("_features", "_for_cel", "_limits"),
        *("capacity", "device", "groups", "id", "pool_id", "slice", "uses"),
    )

    def __init__(self, device: Device, slice_: ResourceSlice, features: Features) -> None:
        spec = slice_.spec
        self.device, self.slice = device, slice_
        self.pool_id = PoolID(spec.driver, spec.pool.name)
        self.id = DeviceID(spec.driver, spec.pool.name, device.name)
        self._features = features
        # By the names that `capacity_names` describes.
        self.capacity: Mapping[str, DeviceCapacity] = capacity_names.by_own_name(
            device.capacity, spec.driver, features
        )
        self.uses: Uses = ()
        self.groups: Groups = ()
        if device.consumes_counters:
            self.uses, self.groups = _uses(device), _groups(device)
        self._for_cel: cel.Device | None = None
        self._limits: dict[str, int] | None = None

    @property
    def for_cel(self) -> cel.Device:
        """The device as an object of CEL expressions."""
        if self._for_cel is None:
            self._for_cel = selectors.cel_device(self.id.driver, self.device)
        return self._for_cel

    @property
    def limits(self) -> dict[str, int]:
        """The total amount of each capacity in billionths."""
        if self._limits is None:
            self._limits = capacity.limits(self.capacity)
        return self._limits

    def own_name(self, name: str) -> str:
        """Returns the key in `capacity` for a capacity's name in a request."""
        return capacity_names.own_name(name, self.id.driver, self._features)

    def published_name(self, own_name: str) -> str:
        """Returns the name under which the slice has the capacity. Allocations use it too."""
        if self.capacity is self.device.capacity:
            return own_name
        qualified = f"{self.id.driver}/{own_name}"
        return qualified if qualified in self.device.capacity else own_name

    def has_room(self, consumed: Mapping[str, Amount], *used: Mapping[str, int]) -> bool:
        """Returns True if the device's capacity is enough for this and for all that is used."""
        for name, amount in consumed.items():
            total = amount.billionths
            for of_others in used:
                total += of_others.get(name, 0)
            if total > self.limits[name]:
                return False
        return True


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
    """A cache of the candidates of slices."""

    def __init__(self, features: Features = DEFAULT) -> None:
        self._features = features
        # The key is the slice's id(). The value holds the slice itself, so that no other object can
        # get the same id.
        self._by_slice: dict[int, tuple[ResourceSlice, tuple[Candidate, ...]]] = {}

    def for_slice(self, slice_: ResourceSlice) -> tuple[Candidate, ...]:
        """Returns the candidates of a slice, the same ones each time.

        Several threads may call this at the same time. setdefault makes them agree on one result.
        """
        entry = self._by_slice.get(id(slice_))
        if entry is None:
            candidates = tuple(
                Candidate(device, slice_, self._features) for device in slice_.spec.devices
            )
            entry = self._by_slice.setdefault(id(slice_), (slice_, candidates))
        return entry[1]

    def for_slices(self, slices: Iterable[ResourceSlice]) -> list[Candidate]:
        """Returns the candidates of several slices."""
        return [candidate for slice_ in slices for candidate in self.for_slice(slice_)]

    def in_search_order(self, pools: Sequence[Pool]) -> list[Candidate]:
        """Returns the devices of all usable pools, in the order of the search."""
        candidates: list[Candidate] = []
        for pool in pools:
            if pool.is_usable:
                candidates += self.for_slices(pool.slices)
        return candidates
