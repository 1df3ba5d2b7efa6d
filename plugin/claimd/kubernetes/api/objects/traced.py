"""Plain data that remembers the path of each value in the source.

A conversion reports these paths for the values that it loses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .shapes import Shape, child, fields_of

# Called with the path of a value in the source, and the reason why the value is lost.
Lose = Callable[[str, str], None]


class Traced(dict[str, Any]):
    """A map that knows the path of each value in the source. A new value has no path."""

    def __init__(
        self, pairs: dict[str, Any] | None = None, came: dict[str, str] | None = None
    ) -> None:
        super().__init__(pairs or {})
        self.came = came or {}

    def move(self, key: str, target: Traced, name: str = "") -> None:
        """Moves a value, with its path, to another map. Does nothing if the key is not there."""
        if key in self:
            target.add(name or key, self.pop(key), self.came.get(key, key))

    def add(self, key: str, value: Any, came: str) -> None:
        """Sets a value that had the path `came` in the source."""
        self[key] = value
        self.came[key] = came

    def path(self, key: str) -> str:
        """Returns the path of a value in the source, or its key if the value is new."""
        return self.came.get(key, key)


def trace(shape: Shape, value: Any, path: str) -> Any:
    """Returns the value with each map replaced by a Traced map, as far as the shape describes it.

    Fields that are null are left out.
    """
    if shape.kind == "list" and isinstance(value, list):
        assert shape.item
        items = []
        for index, item in enumerate(value):
            items.append(trace(shape.item, item, f"{path}[{index}]"))
        return items

    if shape.kind == "map" and isinstance(value, dict):
        assert shape.item
        traced = Traced()
        for key, item in value.items():
            at = f"{path}[{key}]"
            traced.add(key, trace(shape.item, item, at), at)
        return traced

    if shape.kind != "struct" or not isinstance(value, dict):
        return value

    assert shape.struct
    fields = fields_of(shape.struct)
    traced = Traced()
    for key, item in value.items():
        if item is None:
            continue
        at = child(path, key)
        if key in fields:
            traced.add(key, trace(fields[key].shape, item, at), at)
        else:
            # The "?" keeps it from being taken for a field of this name in another version.
            traced.add(f"?{key}", item, at)
    return traced


def prune(shape: Shape, value: Any, lose: Lose, why: str) -> Any:
    """Returns plain data without the fields that the shape does not have. `lose` gets these."""
    if shape.kind == "list" and isinstance(value, list):
        assert shape.item
        return [prune(shape.item, item, lose, why) for item in value]
    if shape.kind == "map" and isinstance(value, dict):
        assert shape.item
        return {key: prune(shape.item, item, lose, why) for key, item in value.items()}
    if shape.kind != "struct" or not isinstance(value, dict):
        return value

    assert shape.struct
    fields = fields_of(shape.struct)
    for key in value:
        if key not in fields:
            lose(value.path(key) if isinstance(value, Traced) else key, why)

    # The result has the order of the class: apiVersion, kind, metadata, spec.
    plain = {}
    for key, field in fields.items():
        if key in value:
            plain[key] = prune(field.shape, value[key], lose, why)
    return plain
