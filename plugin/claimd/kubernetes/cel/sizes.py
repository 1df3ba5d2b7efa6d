"""The sizes that values may have, as the API server estimates them, and those of a device's parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

INF = math.inf
Path = tuple[str, ...]


class Size(NamedTuple):
    """The least and the most characters or elements that a value may have."""

    least: float
    most: float

    def or_(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: Size) -> Size:
        return Size(self.least + other.least, self.most + other.most)

    def times(self, other: Size) -> Size:
        return Size(times(self.least, other.least), times(self.most, other.most))


class Entry(NamedTuple):
    """The sizes of the keys and values of a list or a map. `kind` is list or map."""

    kind: str
    key: Size
    value: Size


def exact(size: float) -> Size:
    return Size(size, size)


ONE, UNKNOWN, NOTHING = exact(1), Size(0, INF), Size(INF, 0)


@dataclass(frozen=True)
class Part:
    """A part of a device: its greatest size, and for a map what its keys and values are."""

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
    """Multiplies sizes. 0 times infinity is 0."""
    return left * right if left and right else 0


def share(size: float, factor: float) -> float:
    """Returns this fraction of the size, rounded up to whole units."""
    return math.ceil(size * factor) if math.isfinite(size) else size


def size_of_path(path: Path) -> Size | None:
    """Returns the size that a part of the device may have, or None if the API has no limit for it."""
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
            # The API server knows the sizes of fields only within attributes.
            part = _ATTRIBUTE if part.value is _ATTRIBUTE else None

    return Size(0, part.most) if part else None
