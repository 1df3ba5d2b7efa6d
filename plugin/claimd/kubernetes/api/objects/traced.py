"""Plain data that remembers where each value came from.

So a conversion can name what it lost. No rules here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .shapes import Shape, child, fields_of

# Is told the path in the source, and why its value is lost.
Lose = Callable[[str, str], None]


class Traced(dict[str, Any]):
    """A map with the source's path of each value. What is set without a path is new."""

    def __init__(
        self, pairs: dict[str, Any] | None = None, came: dict[str, str] | None = None
    ) -> None:
        super().__init__(pairs or {})
        self.came = came or {}

    def move(self, key: str, target: Traced, name: str = "") -> None:
        """Takes the value from here and puts it there, if it is here."""
        if key in self:
            target.put(name or key, self.pop(key), self.came.get(key, key))

    def put(self, key: str, value: Any, came: str) -> None:
        self[key] = value
        self.came[key] = came

    def path(self, key: str) -> str:
        return self.came.get(key, key)


def trace(shape: Shape, value: Any, path: str) -> Any:
    """The value with every map of it traced, as far as the field tables know it.

    Nulls are left out.
    """
    if shape.kind == "list" and isinstance(value, list):
        assert shape.item
        return [trace(shape.item, item, f"{path}[{index}]") for index, item in enumerate(value)]

    if shape.kind == "map" and isinstance(value, dict):
        assert shape.item
        traced = Traced()
        for key, item in value.items():
            at = f"{path}[{key}]"
            traced.put(key, trace(shape.item, item, at), at)
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
            traced.put(key, trace(fields[key].shape, item, at), at)
        else:
            # Under a name that is no field's: another version may have one of this name there.
            traced.put(f"?{key}", item, at)
    return traced


def prune(shape: Shape, value: Any, lose: Lose, why: str) -> Any:
    """Plain data again, without what the shape has no field for; that is reported."""
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

    # Unlike the source, the result has the order of the tables: apiVersion, kind, metadata, spec.
    return {key: prune(fields[key].shape, value[key], lose, why) for key in fields if key in value}
