"""Resource pools from the view of one node: the slices of the newest generation of each pool.

A pool with missing slices is incomplete. A pool that contradicts itself is invalid. The allocator
uses neither of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import nodes
from .failures import AllocationError
from .features import COMPATIBILITY_GROUPS, DEFAULT, PARTITIONABLE_DEVICES, Features, takes_oldest
from .identity import PoolID

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.resource import CounterSet
    from ..api.scheduling import ResourceSlice


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool that has devices for the node.

    An incomplete pool lacks slices, an invalid one contradicts itself. No device of such pools is
    allocated. `slices` have devices for the node, in the order of the search. `slices_elsewhere`
    are the other slices of the pool. Their devices use the same counters.
    """

    pool_id: PoolID
    is_incomplete: bool = False
    slices_there: int = 0
    slices_expected: int = 0
    invalid_reason: str = ""
    slices: tuple[ResourceSlice, ...] = ()
    slices_elsewhere: tuple[ResourceSlice, ...] = ()
    counter_sets: Mapping[str, CounterSet] = dataclasses.field(default_factory=dict)

    @property
    def is_invalid(self) -> bool:
        return bool(self.invalid_reason)

    @property
    def is_usable(self) -> bool:
        return not self.is_incomplete and not self.invalid_reason

    @property
    def trouble(self) -> str:
        """The reason why the pool cannot be used."""
        if self.is_incomplete:
            return f"{self.slices_there} of its {self.slices_expected} slices are there"
        return self.invalid_reason


class SliceIndex:
    """An index of slices by node and by pool, so that each node examines only a few slices.

    It never changes after its construction.
    """

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._by_node: dict[str, list[ResourceSlice]] = {}
        self._by_pool: dict[PoolID, list[ResourceSlice]] = {}
        self._of_no_single_node: list[ResourceSlice] = []
        self._counters: list[ResourceSlice] = []
        self._positions: dict[int, int] = {}
        for position, slice_ in enumerate(slices):
            spec = slice_.spec
            self._positions[id(slice_)] = position
            self._by_pool.setdefault(PoolID(spec.driver, spec.pool.name), []).append(slice_)
            if spec.node_name:
                self._by_node.setdefault(spec.node_name, []).append(slice_)
            else:
                self._of_no_single_node.append(slice_)
            if spec.shared_counters:
                self._counters.append(slice_)

    def for_node(self, node: Node) -> list[ResourceSlice]:
        """Returns the slices that may have devices for the node, those of only this node first."""
        return self._by_node.get(node.metadata.name, []) + self._of_no_single_node

    def with_counters_of_all_nodes(self, node: Node) -> list[ResourceSlice]:
        """Returns the slices of `for_node` and all others with counters, in their given order."""
        by_position = {self._positions[id(slice_)]: slice_ for slice_ in self._counters}
        for slice_ in self.for_node(node):
            by_position[self._positions[id(slice_)]] = slice_
        return [by_position[position] for position in sorted(by_position)]

    def in_pool(self, pool_id: PoolID) -> list[ResourceSlice]:
        """Returns the slices of a pool, of all generations and nodes."""
        return self._by_pool[pool_id]

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers that publish slices."""
        return frozenset(pool_id.driver for pool_id in self._by_pool)


def gather_pools(
    slices: Iterable[ResourceSlice], node: Node, features: Features = DEFAULT
) -> list[Pool]:
    """Returns the pools that have devices for the node, in the order of the search."""
    return gather(SliceIndex(slices), node, features)


def gather(index: SliceIndex, node: Node, features: Features) -> list[Pool]:
    """Returns the pools that have devices for the node, in the order of the search.

    The index may serve many nodes. AllocationError if the node selector of a slice is invalid.
    """
    # For the oldest allocator, slices with counters belong to every node.
    oldest = takes_oldest(features)
    candidates = index.with_counters_of_all_nodes(node) if oldest else index.for_node(node)
    newest: dict[PoolID, list[ResourceSlice]] = {}
    for slice_ in candidates:
        if not _is_understood(slice_, features):
            continue
        if (oldest and slice_.spec.shared_counters) or _is_for_node(slice_, node):
            _add(newest, slice_)

    pools: list[Pool] = []
    for pool_id, slices in newest.items():
        pool = _pool(pool_id, slices, index, features)
        if pool:
            pools.append(pool)

    # The oldest allocator begins with a random pool, and takes the others in their given order.
    if oldest:
        return pools
    # Devices with binding conditions delay the pod, so their pools are searched last.
    return sorted(pools, key=lambda pool: (_has_binding_conditions(pool), pool.pool_id))


def _is_understood(slice_: ResourceSlice, features: Features) -> bool:
    """Returns False for a slice that needs a feature which is off.

    Such a slice counts as missing, which makes its pool incomplete.
    """
    spec = slice_.spec
    if PARTITIONABLE_DEVICES not in features and (
        spec.per_device_node_selection is not None or spec.shared_counters
    ):
        return False
    return COMPATIBILITY_GROUPS in features or not _has_groups(slice_)


def _has_groups(slice_: ResourceSlice) -> bool:
    """Returns True if a device of the slice has compatibility groups."""
    for device in slice_.spec.devices:
        for consumed in device.consumes_counters:
            if consumed.compatibility_groups:
                return True
    return False


def _is_for_node(slice_: ResourceSlice, node: Node) -> bool:
    """Returns True if the slice has devices for the node."""
    spec = slice_.spec
    try:
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return nodes.matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
        if spec.per_device_node_selection:
            return any(
                nodes.matches(node, device.node_name, device.all_nodes, device.node_selector)
                for device in spec.devices
            )
    except ValueError as error:
        raise AllocationError(
            f"slice {slice_.metadata.name} has a bad node selector: {error}"
        ) from error
    # The slice selects its nodes in a way that only a newer version of Kubernetes knows.
    return False


def _add(newest: dict[PoolID, list[ResourceSlice]], slice_: ResourceSlice) -> None:
    """Adds the slice to its pool, unless the pool already has slices of a newer generation."""
    pool = slice_.spec.pool
    slices = newest.setdefault(PoolID(slice_.spec.driver, pool.name), [])
    if slices:
        generation = slices[0].spec.pool.generation
        if pool.generation < generation:
            return
        if pool.generation > generation:
            slices.clear()
    slices.append(slice_)


def _pool(
    pool_id: PoolID, slices: list[ResourceSlice], index: SliceIndex, features: Features
) -> Pool | None:
    """Returns the pool of these slices, which have devices for the node.

    None if they are obsolete, because a newer generation exists that has no devices for the node.
    """
    pool = slices[0].spec.pool
    if len(slices) == pool.resource_slice_count:
        return _complete(pool_id, slices, slices, features)

    # The other slices may be for other nodes. The whole pool is examined only in this case.
    whole_pool = []
    for slice_ in index.in_pool(pool_id):
        if slice_.spec.pool.generation > pool.generation:
            return None
        # Slices that are not understood count as missing.
        is_understood = COMPATIBILITY_GROUPS in features or not _has_groups(slice_)
        if slice_.spec.pool.generation == pool.generation and is_understood:
            whole_pool.append(slice_)

    if len(whole_pool) != pool.resource_slice_count:
        return Pool(
            pool_id=pool_id,
            is_incomplete=True,
            slices_there=len(whole_pool),
            slices_expected=pool.resource_slice_count,
        )
    return _complete(pool_id, slices, whole_pool, features)


def _complete(
    pool_id: PoolID,
    slices: list[ResourceSlice],
    whole_pool: list[ResourceSlice],
    features: Features,
) -> Pool:
    """Returns a pool whose slices all exist. It is invalid if it contradicts itself."""
    # The oldest allocator searches the slices in the order in which the API server lists them.
    here = list(slices)
    if not takes_oldest(features):
        here.sort(key=lambda slice_: slice_.metadata.name)
    elsewhere: list[ResourceSlice] = []
    if len(slices) < len(whole_pool):
        names = {slice_.metadata.name for slice_ in slices}
        elsewhere = [slice_ for slice_ in whole_pool if slice_.metadata.name not in names]

    # A slice has either shared counters or devices.
    with_counters: list[ResourceSlice] = []
    if PARTITIONABLE_DEVICES in features:
        here = _take_counters(here, with_counters)
        elsewhere = _take_counters(elsewhere, with_counters)

    try:
        _check_names(here)
        if PARTITIONABLE_DEVICES not in features:
            return Pool(pool_id=pool_id, slices=tuple(here))
        counter_sets = _counter_sets(with_counters)
        _check_consumption(counter_sets, here + elsewhere)
    except ValueError as error:
        return Pool(pool_id=pool_id, invalid_reason=str(error))
    return Pool(
        pool_id=pool_id,
        slices=tuple(here),
        slices_elsewhere=tuple(elsewhere),
        counter_sets=counter_sets,
    )


def _take_counters(
    slices: Iterable[ResourceSlice], with_counters: list[ResourceSlice]
) -> list[ResourceSlice]:
    """Moves the slices with shared counters to `with_counters`, and returns the others."""
    others = []
    for slice_ in slices:
        if slice_.spec.shared_counters:
            with_counters.append(slice_)
        else:
            others.append(slice_)
    return others


def _check_names(slices: Sequence[ResourceSlice]) -> None:
    names: set[str] = set()
    for slice_ in slices:
        for device in slice_.spec.devices:
            if device.name in names:
                raise ValueError(f"duplicate device name {device.name}")
            names.add(device.name)


def _counter_sets(slices: Sequence[ResourceSlice]) -> dict[str, CounterSet]:
    by_name: dict[str, CounterSet] = {}
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            if counter_set.name in by_name:
                raise ValueError(f"duplicate counter set name {counter_set.name}")
            by_name[counter_set.name] = counter_set
    return by_name


def _check_consumption(
    counter_sets: Mapping[str, CounterSet], slices: Sequence[ResourceSlice]
) -> None:
    for slice_ in slices:
        for device in slice_.spec.devices:
            for consumed in device.consumes_counters:
                counter_set = counter_sets.get(consumed.counter_set)
                if counter_set is None:
                    raise ValueError(f"counter set {consumed.counter_set} not found")
                for name in consumed.counters:
                    if name not in counter_set.counters:
                        raise ValueError(
                            f"counter {name} not found in counter set {counter_set.name}"
                        )


def _has_binding_conditions(pool: Pool) -> bool:
    for slice_ in pool.slices:
        for device in slice_.spec.devices:
            if device.binding_conditions:
                return True
    return False
