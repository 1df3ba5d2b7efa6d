"""Which NUMA nodes are as near to a device as any but its own, on the same socket."""

from __future__ import annotations

import re

from . import sysfs
from .gpu import Roots

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LONGEST_RANGE = 1 << 16


def nearest(roots: Roots, node: int | None, cache: sysfs.ScanCache) -> tuple[int, ...]:
    """The node itself, then the others of its socket at the least distance from it.

    Empty where the firmware does not tell the node; the node alone where it does not tell more.
    """
    if node is None:
        return ()
    return cache.read_once(f"numa {node}", lambda notes: _nearest(roots, node, notes), [])


def _nearest(roots: Roots, node: int, notes: list[str]) -> tuple[int, ...]:
    folder = f"{roots.sys}/devices/system/node"
    online = _numbers(sysfs.text(f"{folder}/online", notes) or "")
    row = (sysfs.text(f"{folder}/node{node}/distance", notes) or "").split()
    if node not in online or len(row) != len(online) or not all(item.isdecimal() for item in row):
        return (node,)

    distances = {other: int(item) for other, item in zip(online, row, strict=True) if other != node}
    least = min(distances.values(), default=0)
    socket = _socket(roots, node, notes)
    if socket is None:
        return (node,)

    near = [node]
    for other, distance in distances.items():
        if distance == least and _socket(roots, other, notes) == socket:
            near.append(other)
    return tuple(near)


def _socket(roots: Roots, node: int, notes: list[str]) -> int | None:
    """The processor package of a node, by the first of its processors."""
    system = f"{roots.sys}/devices/system"
    processors = _numbers(sysfs.text(f"{system}/node/node{node}/cpulist", notes) or "")
    if not processors:
        return None
    return sysfs.decimal(f"{system}/cpu/cpu{processors[0]}/topology/physical_package_id", notes)


def _numbers(text: str) -> list[int]:
    """0-1,4 is 0, 1 and 4; nothing if it is anything else."""
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        numbers += range(first, min(last, first + _LONGEST_RANGE - 1) + 1)
    return numbers
