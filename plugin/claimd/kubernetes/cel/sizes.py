"""How large values may be, as the API server estimates it, also of the parts of a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
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


def exact(size: float) -> Size:
    return Size(size, size)


ONE, UNKNOWN, NOTHING = exact(1), Size(0, INF), Size(INF, 0)


@dataclass(frozen=True)
class Part:
    """Of a device: how large it may be, and what it holds if it is a map."""

    most: float
    key: Part | None = None
    value: Part | None = None


_ATTRIBUTE, _QUANTITY, _DOMAIN, _NAME = Part(64), Part(0), Part(63), Part(32)
_FIELDS = {
    "attributes": Part(32, _DOMAIN, Part(32, _NAME, _ATTRIBUTE)),
    "capacity": Part(32, _DOMAIN, Part(32, _NAME, _QUANTITY)),
    "driver": Part(63),
    "allowMultipleAllocations": Part(1),
}


def times(left: float, right: float) -> float:
    """Nothing times infinity is nothing."""
    return left * right if left and right else 0


def share(size: float, factor: float) -> float:
    """That much of the size, in whole units."""
    return math.ceil(size * factor) if math.isfinite(size) else size


def size_of_path(path: Path) -> Size | None:
    """What the API says of a part of the device."""
    if path[:1] != (".device",):
        return None
    if len(path) == 1:
        return exact(0)
    part = _FIELDS.get(path[1])
    for name in path[2:]:
        if part is None:
            return None
        if name in ("@items", "@values"):
            part = part.value
        elif name == "@keys":
            part = part.key
        else:
            # A field: only attributes are found by their names.
            part = _ATTRIBUTE if part.value is _ATTRIBUTE else None
    return Size(0, part.most) if part else None
