"""The cluster's objects, and which rows of the page a change of one of them concerns. Pure.

A row is a node, or a pool whose devices belong to no single node.
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

# What the page is made of. Other kinds are for explain alone.
KINDS = ("Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceTaintRule")


class DeviceKey(NamedTuple):
    driver: str
    pool: str
    device: str


class Holding(NamedTuple):
    """A claim that has a device, or a share of it."""

    claim: Claim
    result: DeviceRequestAllocationResult


@dataclass(kw_only=True)
class World:
    """Objects by name, or by namespace/name, with indexes that `put` keeps."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    rules: dict[str, DeviceTaintRule] = field(default_factory=dict)
    _holdings: dict[DeviceKey, dict[str, list[Holding]]] = field(default_factory=dict)
    _slices_of_row: dict[str, set[str]] = field(default_factory=dict)
    _rows_of_pool: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    def put(self, kind: str, key: str, new: Any) -> tuple[Any, set[str]]:
        """Take an object, or its end (None). What was there before, and the rows it concerns."""
        match kind:
            case "Node":
                return _replace(self.nodes, key, new), {key}
            case "Pod":
                return _replace(self.pods, key, new), set()
            case "ResourceClaim":
                return self._put_claim(key, new)
            case "ResourceSlice":
                return self._put_slice(key, new)
            case "DeviceTaintRule":
                return _replace(self.rules, key, new), set(self.rows())
        return None, set()

    def rows(self) -> Iterator[str]:
        """Every row: nodes, with devices or without, and pools of no single node."""
        yield from self.nodes
        for row in self._slices_of_row:
            if row not in self.nodes:
                yield row

    def slices_of(self, row: str) -> list[ResourceSlice]:
        """Of the newest generation of each pool, in the order of their names."""
        slices = [self.slices[name] for name in sorted(self._slices_of_row.get(row, ()))]
        newest: dict[tuple[str, str], int] = {}
        for slice_ in slices:
            pool = _pool_of(slice_)
            newest[pool] = max(newest.get(pool, 0), slice_.spec.pool.generation)
        return [
            slice_ for slice_ in slices if slice_.spec.pool.generation == newest[_pool_of(slice_)]
        ]

    def holdings(self, device: DeviceKey) -> list[Holding]:
        """Who has it, in the order of the claims' names."""
        by_claim = self._holdings.get(device, {})
        return [holding for key in sorted(by_claim) for holding in by_claim[key]]

    def rows_of(self, pools: Iterable[tuple[str, str]]) -> set[str]:
        return {row for pool in pools for row in self._rows_of_pool.get(pool, ())}

    def _put_claim(self, key: str, new: Claim | None) -> tuple[Claim | None, set[str]]:
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
            holders.setdefault(key, []).append(Holding(new, result))
            pools.add((result.driver, result.pool))
        return before, self.rows_of(pools)

    def _put_slice(
        self, key: str, new: ResourceSlice | None
    ) -> tuple[ResourceSlice | None, set[str]]:
        before: ResourceSlice | None = _replace(self.slices, key, new)
        concerned = set()
        if before is not None:
            concerned.add(row := row_of(before))
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
            concerned.add(row := row_of(new))
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
    """The row that shows a slice's devices."""
    spec = slice_.spec
    return spec.node_name or f"pool {spec.pool.name} of {spec.driver}"


def results_of(claim: Claim | None) -> list[DeviceRequestAllocationResult]:
    """What a claim has been given."""
    if claim is None or claim.status.allocation is None:
        return []
    return claim.status.allocation.devices.results


def key_of(result: DeviceRequestAllocationResult) -> DeviceKey:
    return DeviceKey(result.driver, result.pool, result.device)


def _pool_of(slice_: ResourceSlice) -> tuple[str, str]:
    return slice_.spec.driver, slice_.spec.pool.name
