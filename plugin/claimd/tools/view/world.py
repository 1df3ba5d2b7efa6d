"""The cluster's objects, with an index from objects to the rows of the page.

This module is pure. A row shows a node, or a pool whose devices belong to no single node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from claimd.kubernetes.api.scheduling import (
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceSlice,
)
from claimd.kubernetes.scheduling.objects import Claim, Node, Pod

# The kinds of objects that the page shows. Only explain uses the other kinds.
KINDS = ("Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceTaintRule")


class DeviceKey(NamedTuple):
    driver: str
    pool: str
    device: str


class Holding(NamedTuple):
    """A claim that has a device or a share of it, with that part of its allocation."""

    claim: Claim
    result: DeviceRequestAllocationResult


@dataclass(kw_only=True)
class World:
    """Objects by name or by namespace/name, and the indexes that `put` maintains."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    rules: dict[str, DeviceTaintRule] = field(default_factory=dict)
    # By device, and then by claim.
    _holdings: dict[DeviceKey, dict[str, list[Holding]]] = field(default_factory=dict)
    _slices_of_row: dict[str, set[str]] = field(default_factory=dict)
    # By pool: the number of its slices in each row.
    _rows_of_pool: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    def store(self, kind: str, key: str, new: Any) -> tuple[Any, set[str]]:
        """Stores an object, or removes it if `new` is None.

        Returns the previous object and the rows whose display may change.
        """
        match kind:
            case "Node":
                return _replace(self.nodes, key, new), {key}
            case "Pod":
                return _replace(self.pods, key, new), set()
            case "ResourceClaim":
                return self._store_claim(key, new)
            case "ResourceSlice":
                return self._store_slice(key, new)
            case "DeviceTaintRule":
                # A rule may taint any device.
                return _replace(self.rules, key, new), set(self.rows())
        return None, set()

    def rows(self) -> Iterator[str]:
        """Yields all rows: the nodes, with or without devices, and the pools of no single node."""
        yield from self.nodes
        for row in self._slices_of_row:
            if row not in self.nodes:
                yield row

    def slices_of(self, row: str) -> list[ResourceSlice]:
        """Returns the row's slices by name. Of each pool, only those of the newest generation
        count.
        """
        slices = [self.slices[name] for name in sorted(self._slices_of_row.get(row, ()))]
        newest: dict[tuple[str, str], int] = {}
        for slice_ in slices:
            pool = _pool_of(slice_)
            newest[pool] = max(newest.get(pool, 0), slice_.spec.pool.generation)

        # While a driver replaces a pool, slices of the old generation still exist.
        current = []
        for slice_ in slices:
            if slice_.spec.pool.generation == newest[_pool_of(slice_)]:
                current.append(slice_)
        return current

    def holdings(self, device: DeviceKey) -> list[Holding]:
        """Returns the claims that have the device, by name."""
        by_claim = self._holdings.get(device, {})
        holdings: list[Holding] = []
        for key in sorted(by_claim):
            holdings += by_claim[key]
        return holdings

    def rows_of(self, pools: Iterable[tuple[str, str]]) -> set[str]:
        """Returns the rows that show devices of these pools."""
        rows: set[str] = set()
        for pool in pools:
            rows.update(self._rows_of_pool.get(pool, ()))
        return rows

    def _store_claim(self, key: str, new: Claim | None) -> tuple[Claim | None, set[str]]:
        before = _replace(self.claims, key, new)
        pools: set[tuple[str, str]] = set()
        for result in results_of(before):
            device = key_of(result)
            holders = self._holdings.get(device, {})
            holders.pop(key, None)
            if not holders:
                self._holdings.pop(device, None)
            pools.add((result.driver, result.pool))

        for result in results_of(new):
            assert new is not None
            holders = self._holdings.setdefault(key_of(result), {})
            # One claim may have several shares of a device.
            holders.setdefault(key, []).append(Holding(new, result))
            pools.add((result.driver, result.pool))

        return before, self.rows_of(pools)

    def _store_slice(
        self, key: str, new: ResourceSlice | None
    ) -> tuple[ResourceSlice | None, set[str]]:
        before: ResourceSlice | None = _replace(self.slices, key, new)
        concerned = set()
        if before is not None:
            row = row_of(before)
            concerned.add(row)
            self._slices_of_row[row].discard(key)
            if not self._slices_of_row[row]:
                del self._slices_of_row[row]

            rows = self._rows_of_pool[_pool_of(before)]
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
            if not rows:
                del self._rows_of_pool[_pool_of(before)]

        if new is not None:
            row = row_of(new)
            concerned.add(row)
            self._slices_of_row.setdefault(row, set()).add(key)
            rows = self._rows_of_pool.setdefault(_pool_of(new), {})
            rows[row] = rows.get(row, 0) + 1
        return before, concerned


def _replace(objects: dict[str, Any], key: str, new: Any) -> Any:
    before = objects.get(key)
    if new is None:
        objects.pop(key, None)
    else:
        objects[key] = new
    return before


def row_of(slice_: ResourceSlice) -> str:
    """Returns the row that shows the slice's devices."""
    spec = slice_.spec
    return spec.node_name or f"pool {spec.pool.name} of {spec.driver}"


def results_of(claim: Claim | None) -> list[DeviceRequestAllocationResult]:
    """Returns the devices that are allocated to a claim."""
    if claim is None or claim.status.allocation is None:
        return []
    return claim.status.allocation.devices.results


def key_of(result: DeviceRequestAllocationResult) -> DeviceKey:
    return DeviceKey(result.driver, result.pool, result.device)


def _pool_of(slice_: ResourceSlice) -> tuple[str, str]:
    return slice_.spec.driver, slice_.spec.pool.name
