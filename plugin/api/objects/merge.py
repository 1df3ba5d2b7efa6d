"""Deep merge: what the other object says is laid over ours, by the rules of each field. No I/O, no
conversion.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from . import plain
from .shapes import Shape, fields_of


def merge_into(target: msgspec.Struct, other: msgspec.Struct) -> None:
    """Absent leaves alone, scalars and free documents replace, structs and maps merge, lists by
    their rule.
    """
    for field in fields_of(type(target)).values():
        theirs = getattr(other, field.name)
        if theirs is not None:
            setattr(target, field.name, merged(field.shape, getattr(target, field.name), theirs))
    unknown = getattr(other, "unknown", None)
    if unknown:
        target.unknown = getattr(target, "unknown", {}) | copy.deepcopy(unknown)  # type: ignore[attr-defined]


def merged(shape: Shape, ours: Any, theirs: Any) -> Any:
    """The merged value. `theirs` is copied, never shared; `ours` may be changed in place."""
    if ours is None or shape.kind not in ("struct", "map", "list"):
        return copy.deepcopy(theirs)
    if shape.kind == "struct" and getattr(shape.struct, "atomic", False):
        return copy.deepcopy(theirs)
    if shape.kind == "struct":
        merge_into(ours, theirs)
        return ours
    assert shape.item
    if shape.kind == "map":
        return ours | {
            key: merged(shape.item, ours.get(key), value) for key, value in theirs.items()
        }
    if shape.unique:
        return ours + [item for item in theirs if item not in ours]
    if shape.keys:
        return _by_key(shape, ours, theirs)
    return copy.deepcopy(theirs)


def _by_key(shape: Shape, ours: list[Any], theirs: list[Any]) -> list[Any]:
    assert shape.item
    found = {plain.key_of(shape, item): item for item in ours}
    for item in theirs:
        key = plain.key_of(shape, item)
        found[key] = merged(shape.item, found.get(key), item)
    return list(found.values())
