"""Finds the NUMA nodes nearest to a device's own node, on the same socket."""

from __future__ import annotations

import re

from . import sysfs
from .gpu import Roots

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LONGEST_RANGE = 1 << 16


def nearest(roots: Roots, node: int | None, cache: sysfs.ScanCache) -> tuple[int, ...]:
    """Returns the node itself, then the nearest other nodes on its socket.

    Empty if the firmware does not tell the node. Only the node itself if distances or sockets are
    unknown.
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

    # The nearest node may be on another socket; then no node of the own socket is as near.
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
    """Returns the processor package of a node, by its first processor; None if it is unknown."""
    system = f"{roots.sys}/devices/system"
    processors = _numbers(sysfs.text(f"{system}/node/node{node}/cpulist", notes) or "")
    if not processors:
        return None
    return sysfs.decimal(f"{system}/cpu/cpu{processors[0]}/topology/physical_package_id", notes)


def _numbers(text: str) -> list[int]:
    """Parses a list of numbers: 0-1,4 is 0, 1 and 4.

    Returns no numbers for a text of another form.
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        numbers += range(first, min(last, first + _LONGEST_RANGE - 1) + 1)
    return numbers
