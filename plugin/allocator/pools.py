"""Resource pools as one node sees them: the newest slices of each, and whether they can be trusted.
No claims here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import nodes
from .failures import AllocationError
from .features import COMPATIBILITY_GROUPS, DEFAULT, PARTITIONABLE_DEVICES, Features
from .identity import PoolID

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.resource import CounterSet
    from ..api.scheduling import ResourceSlice


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """An incomplete pool lacks slices, an invalid one contradicts itself: nothing is allocated from
    either.
    """

    pool_id: PoolID
    is_incomplete: bool = False
    invalid_reason: str = ""
    slices: tuple[ResourceSlice, ...] = ()  # with devices for the node, by name
    slices_elsewhere: tuple[
        ResourceSlice, ...
    ] = ()  # the pool's others: their devices use its counters too
    counter_sets: Mapping[str, CounterSet] = dataclasses.field(default_factory=dict)

    @property
    def is_invalid(self) -> bool:
        return bool(self.invalid_reason)

    @property
    def usable(self) -> bool:
        return not self.is_incomplete and not self.invalid_reason


class SliceIndex:
    """Slices by where they are, so that a node of a large cluster looks at few. Never changes once
    made.
    """

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._of_node: dict[str, list[ResourceSlice]] = {}
        self._of_pool: dict[PoolID, list[ResourceSlice]] = {}
        self._others: list[ResourceSlice] = []
        for slice_ in slices:
            spec = slice_.spec
            self._of_pool.setdefault(PoolID(spec.driver, spec.pool.name), []).append(slice_)
            if spec.node_name:
                self._of_node.setdefault(spec.node_name, []).append(slice_)
            else:
                self._others.append(slice_)

    def near(self, node: Node) -> list[ResourceSlice]:
        """All that may have devices for the node."""
        return self._of_node.get(node.metadata.name, []) + self._others

    def of_pool(self, pool_id: PoolID) -> list[ResourceSlice]:
        return self._of_pool[pool_id]


def gather_pools(
    slices: Iterable[ResourceSlice], node: Node, features: Features = DEFAULT
) -> list[Pool]:
    """The pools that have devices for the node, in the order in which they are searched."""
    return gather(SliceIndex(slices), node, features)


def gather(index: SliceIndex, node: Node, features: Features) -> list[Pool]:
    newest: dict[PoolID, list[ResourceSlice]] = {}
    for slice_ in index.near(node):
        if _understood(slice_, features) and _relevant(slice_, node):
            _add(newest, slice_)
    found: list[Pool] = []
    for pool_id, relevant in newest.items():
        pool = _pool(pool_id, relevant, index, features)
        if pool:
            found.append(pool)
    return sorted(found, key=lambda pool: (_waits(pool), pool.pool_id))


def _understood(slice_: ResourceSlice, features: Features) -> bool:
    """A slice that needs a feature which is off is as good as absent: its pool is incomplete."""
    spec = slice_.spec
    if PARTITIONABLE_DEVICES not in features and (
        spec.per_device_node_selection is not None or spec.shared_counters
    ):
        return False
    return COMPATIBILITY_GROUPS in features or not _has_groups(slice_)


def _has_groups(slice_: ResourceSlice) -> bool:
    return any(
        used.compatibility_groups
        for device in slice_.spec.devices
        for used in device.consumes_counters
    )


def _relevant(slice_: ResourceSlice, node: Node) -> bool:
    """Has devices for the node. Where a slice says nothing that we know, it is from the future: not
    ours.
    """
    spec = slice_.spec
    try:
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return nodes.matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
        if spec.per_device_node_selection:
            return any(
                nodes.matches(node, d.node_name, d.all_nodes, d.node_selector) for d in spec.devices
            )
    except ValueError as error:
        raise AllocationError(
            f"slice {slice_.metadata.name} has a bad node selector: {error}"
        ) from error
    return False


def _add(newest: dict[PoolID, list[ResourceSlice]], slice_: ResourceSlice) -> None:
    pool = slice_.spec.pool
    known = newest.setdefault(PoolID(slice_.spec.driver, pool.name), [slice_])
    if known[0] is slice_ or pool.generation < known[0].spec.pool.generation:
        return
    if pool.generation > known[0].spec.pool.generation:
        known.clear()
    known.append(slice_)


def _pool(
    pool_id: PoolID, relevant: list[ResourceSlice], index: SliceIndex, features: Features
) -> Pool | None:
    """None where a newer generation exists that has nothing for the node: what it had is obsolete."""
    pool = relevant[0].spec.pool
    everything = relevant
    if len(relevant) != pool.resource_slice_count:
        everything = []
        for slice_ in index.of_pool(pool_id):
            if slice_.spec.pool.generation > pool.generation:
                return None
            if slice_.spec.pool.generation == pool.generation:
                everything.append(slice_)
        if COMPATIBILITY_GROUPS not in features:
            everything = [slice_ for slice_ in everything if not _has_groups(slice_)]
        if len(everything) != pool.resource_slice_count:
            return Pool(pool_id=pool_id, is_incomplete=True)
    return _build(pool_id, relevant, everything, features)


def _build(
    pool_id: PoolID,
    relevant: list[ResourceSlice],
    everything: list[ResourceSlice],
    features: Features,
) -> Pool:
    here = sorted(relevant, key=lambda slice_: slice_.metadata.name)
    elsewhere: list[ResourceSlice] = []
    if len(relevant) < len(everything):
        names = {slice_.metadata.name for slice_ in relevant}
        elsewhere = [slice_ for slice_ in everything if slice_.metadata.name not in names]
    with_counters: list[ResourceSlice] = []
    if PARTITIONABLE_DEVICES in features:
        with_counters = [slice_ for slice_ in here + elsewhere if slice_.spec.shared_counters]
        here = [slice_ for slice_ in here if not slice_.spec.shared_counters]
        elsewhere = [slice_ for slice_ in elsewhere if not slice_.spec.shared_counters]
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


def _check_names(slices: Sequence[ResourceSlice]) -> None:
    names: set[str] = set()
    for slice_ in slices:
        for device in slice_.spec.devices:
            if device.name in names:
                raise ValueError(f"duplicate device name {device.name}")
            names.add(device.name)


def _counter_sets(slices: Sequence[ResourceSlice]) -> dict[str, CounterSet]:
    found: dict[str, CounterSet] = {}
    for slice_ in slices:
        for counter_set in slice_.spec.shared_counters:
            if counter_set.name in found:
                raise ValueError(f"duplicate counter set name {counter_set.name}")
            found[counter_set.name] = counter_set
    return found


def _check_consumption(
    counter_sets: Mapping[str, CounterSet], slices: Sequence[ResourceSlice]
) -> None:
    for slice_ in slices:
        for device in slice_.spec.devices:
            for used in device.consumes_counters:
                counter_set = counter_sets.get(used.counter_set)
                if counter_set is None:
                    raise ValueError(f"counter set {used.counter_set} not found")
                for name in used.counters:
                    if name not in counter_set.counters:
                        raise ValueError(
                            f"counter {name} not found in counter set {counter_set.name}"
                        )


def _waits(pool: Pool) -> bool:
    """Pools whose devices must be bound first are searched last."""
    return any(
        device.binding_conditions for slice_ in pool.slices for device in slice_.spec.devices
    )
