"""How large values may be, as the API server estimates it, and what it says of the parts of a device. Values only."""

from __future__ import annotations

import math
from typing import NamedTuple

INF = math.inf
Path = tuple[str, ...]


class Size(NamedTuple):
    least: float
    most: float

    def or_(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: Size) -> Size:
        return Size(self.least + other.least, self.most + other.most)

    def times(self, other: Size) -> Size:
        return Size(times(self.least, other.least), times(self.most, other.most))


class Entry(NamedTuple):
    """What a list or a map holds."""

    of: str  # list, map
    key: Size
    value: Size


ONE, UNKNOWN, NOTHING = Size(1, 1), Size(0, INF), Size(INF, 0)

# The sizes that the API allows: a map's greatest length, what its keys and its values are.
_ATTRIBUTE, _QUANTITY = ("attribute", 64), ("quantity", 0)
_MAPS = {
    "attributes": ("map", 32, ("text", 63), ("map", 32, ("text", 32), _ATTRIBUTE)),
    "capacity": ("map", 32, ("text", 63), ("map", 32, ("text", 32), _QUANTITY)),
    "driver": ("text", 63),
    "allowMultipleAllocations": ("text", 1),
}


def times(left: float, right: float) -> float:
    return left * right if left and right else 0


def share(size: float, factor: float) -> float:
    return math.ceil(size * factor) if math.isfinite(size) else size


def by_path(path: Path) -> Size | None:
    """What the API says of a part of the device."""
    if not path or path[0] != ".device":
        return None
    now: tuple[object, ...] | None = None
    for name in path[1:]:
        if now is None:
            now = _MAPS.get(name)
        elif now[0] != "map":
            return None
        elif name in ("@items", "@values"):
            now = now[3]  # type: ignore[assignment]
        elif name == "@keys":
            now = now[2]  # type: ignore[assignment]
        else:
            now = _ATTRIBUTE if now[3] is _ATTRIBUTE else None
        if now is None:
            return None
    return Size(0, float(str(now[1]))) if now else Size(0, 0)
