"""Deep merge: what the other object says is laid over ours, by the rules of each field.

No I/O, no conversion.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from . import plain
from .shapes import Shape, fields_of


def merge_into(target: msgspec.Struct, other: msgspec.Struct) -> None:
    """Changes the target; the other is neither changed nor shared.

    What the other does not say is left alone, its scalars and free documents replace, its structs
    and maps merge, its lists do by their rule.
    """
    for field in fields_of(type(target)).values():
        theirs = getattr(other, field.name)
        if theirs is not None:
            setattr(target, field.name, merged(field.shape, getattr(target, field.name), theirs))

    unknown = getattr(other, "unknown", None)
    if unknown:
        ours = getattr(target, "unknown", {})
        target.unknown = ours | copy.deepcopy(unknown)  # type: ignore[attr-defined]


def merged(shape: Shape, ours: Any, theirs: Any) -> Any:
    """The merged value. `theirs` is copied, never shared; `ours` may be changed in place."""
    if ours is None or shape.kind not in ("struct", "map", "list"):
        return copy.deepcopy(theirs)

    if shape.kind == "struct":
        if getattr(shape.struct, "atomic", False):
            return copy.deepcopy(theirs)
        merge_into(ours, theirs)
        return ours

    assert shape.item
    if shape.kind == "map":
        changed = {}
        for key, value in theirs.items():
            changed[key] = merged(shape.item, ours.get(key), value)
        return ours | changed

    if shape.unique:
        return ours + [item for item in theirs if item not in ours]
    if shape.keys:
        return _by_key(shape, ours, theirs)
    return copy.deepcopy(theirs)


def _by_key(shape: Shape, ours: list[Any], theirs: list[Any]) -> list[Any]:
    """In the order of ours; items that only theirs has come behind it."""
    assert shape.item
    items = {plain.key_of(shape, item): item for item in ours}
    for item in theirs:
        key = plain.key_of(shape, item)
        items[key] = merged(shape.item, items.get(key), item)
    return list(items.values())
