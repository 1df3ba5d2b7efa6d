"""Deep merge: lays another object over ours, by the rules of each field."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from . import plain
from .shapes import Shape, fields_of


def merge_into(target: msgspec.Struct, other: msgspec.Struct) -> None:
    """Merges `other` into `target`. `other` is not changed, and no value is shared with it.

    Fields that `other` does not set stay. Its scalars and free documents replace those of the
    target, its structs and maps are merged, and its lists follow the rule of their field.
    """
    for field in fields_of(type(target)).values():
        theirs = getattr(other, field.name)
        if theirs is not None:
            ours = getattr(target, field.name)
            setattr(target, field.name, merge_values(field.shape, ours, theirs))

    unknown = getattr(other, "unknown", None)
    if unknown:
        ours = getattr(target, "unknown", {})
        # The type of a field that the class does not know is unknown, too, so it is replaced.
        target.unknown = ours | copy.deepcopy(unknown)  # type: ignore[attr-defined]


def merge_values(shape: Shape, ours: Any, theirs: Any) -> Any:
    """Returns the merged value. `theirs` is copied, and `ours` may be changed in place."""
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
            changed[key] = merge_values(shape.item, ours.get(key), value)
        return ours | changed

    # A list is a set, a map in disguise, or one value that is replaced.
    if shape.unique:
        return ours + [item for item in theirs if item not in ours]
    if shape.keys:
        return _merge_by_key(shape, ours, theirs)
    return copy.deepcopy(theirs)


def _merge_by_key(shape: Shape, ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Merges the items with the same key. New items follow those of `ours`."""
    assert shape.item
    items = {plain.key_of(shape, item): item for item in ours}
    for item in theirs:
        key = plain.key_of(shape, item)
        items[key] = merge_values(shape.item, items.get(key), item)
    return list(items.values())
