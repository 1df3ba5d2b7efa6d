"""Converts plain data to objects and back, and reports the rules that an object breaks.

`read_value` goes on after a fault, so that one call reports all faults. Each report has the path of
its field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from .. import quantity
from .shapes import Shape, child, fields_of

# Called with a path, and with what is wrong there.
Report = Callable[[str, str], None]

REQUIRED = "is required"
NAMES = {
    "string": "a string",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
}
TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool, "list": list}


@dataclass(frozen=True)
class Problem:
    """A rule that an object breaks."""

    path: str  # such as status.reservedFor[3].uid; empty for the object itself
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class Invalid(ValueError):
    """The object breaks rules of its version. `problems` has all of them."""

    def __init__(self, subject: str, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{subject}: {problem}" for problem in problems))


# ---------------------------------------------------------------- plain data to objects and back


def read_value(shape: Shape, value: Any, path: str, keep: bool, report: Report) -> Any:
    """Returns the value as an object of this shape.

    A part that does not fit its shape is reported, and stays as it is. With `keep`, fields that the
    shape does not have are kept as `unknown`. Without it they are reported.
    """
    if shape.kind == "any":
        return value
    if shape.kind == "struct":
        return _read_struct(shape, value, path, keep, report)
    if shape.kind == "quantity":
        return _read_quantity(value, path, report)
    if shape.kind == "map":
        if not isinstance(value, dict):
            return _wrong(path, "a map", value, report)
        item_shape = _item_shape(shape)
        entries = {}
        for key, item in value.items():
            entries[key] = read_value(item_shape, item, f"{path}[{key}]", keep, report)
        return entries

    # In Python bool is a subclass of int.
    is_right = isinstance(value, TYPES[shape.kind])
    if shape.kind == "integer" and isinstance(value, bool):
        is_right = False
    if not is_right:
        return _wrong(path, NAMES[shape.kind], value, report)

    if shape.kind == "list":
        item_shape = _item_shape(shape)
        items = []
        for index, item in enumerate(value):
            items.append(read_value(item_shape, item, f"{path}[{index}]", keep, report))
        return items
    return value


def _read_struct(shape: Shape, value: Any, path: str, keep: bool, report: Report) -> Any:
    struct = shape.struct
    assert struct
    if isinstance(value, struct):
        return value
    if not isinstance(value, dict):
        return _wrong(path, "an object", value, report)

    # A null is the same as a field that is absent. A required field that is absent becomes None, so
    # that there is an object in which further faults can be found.
    fields = fields_of(struct)
    values: dict[str, Any] = {}
    for field in fields.values():
        at = child(path, field.wire)
        if value.get(field.wire) is not None:
            values[field.name] = read_value(field.shape, value[field.wire], at, keep, report)
        elif field.required:
            report(at, REQUIRED)
            values[field.name] = None

    unknown = {name: v for name, v in value.items() if name not in fields}
    if unknown and keep:
        values["unknown"] = unknown
    elif unknown:
        for name in unknown:
            report(child(path, name), "is not a field of this version")
    return struct(**values)


def _read_quantity(value: Any, path: str, report: Report) -> Any:
    # A document may have a number for a quantity.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = str(value) if is_number else value
    try:
        quantity.parse(text)
    except (ValueError, TypeError):
        return _wrong(path, "a quantity such as 80Gi or 500m", value, report)
    return text


def write(value: Any) -> Any:
    """Returns the wire form of an object as plain data, without fields that are not set."""
    if isinstance(value, dict):
        return {key: write(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [write(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value

    document = {}
    for field in fields_of(type(value)).values():
        item = getattr(value, field.name)
        if item is not None:
            document[field.wire] = write(item)
    document.update(write(getattr(value, "unknown", {})))
    return document


# ---------------------------------------------------------------- the rules


def check(shape: Shape, value: Any, path: str, report: Report) -> None:
    """Reports every rule that the value breaks.

    There are rules for types, required fields, limits, choices, keys, and groups of fields that
    exclude each other.
    """
    if shape.kind == "struct":
        if not (shape.struct and isinstance(value, shape.struct)):
            _wrong(path, "an object", value, report)
            return
        _check_struct(value, path, report)
    elif shape.kind == "map" and isinstance(value, dict):
        for key, item in value.items():
            check(_item_shape(shape), item, f"{path}[{key}]", report)
    elif shape.kind == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            check(_item_shape(shape), item, f"{path}[{index}]", report)
        _check_keys(shape, value, path, report)
    elif shape.kind != "any":
        # Only the reports matter here, not the object.
        read_value(shape, value, path, True, report)

    # A value of a wrong type is reported by now, and has no size.
    if not isinstance(value, str | list | dict) and shape.kind != "any":
        return
    if shape.choices and value not in shape.choices:
        report(path, f"expected one of {', '.join(shape.choices)}, got {value!r}")
    if shape.most is not None:
        size = _size(shape, value)
        if size > shape.most:
            unit = "bytes" if shape.kind in ("string", "any") else "items"
            report(path, f"has {size} {unit}, at most {shape.most} are allowed")


def _check_struct(value: msgspec.Struct, path: str, report: Report) -> None:
    fields = fields_of(type(value))
    for field in fields.values():
        at = child(path, field.wire)
        item = getattr(value, field.name)
        if item is not None:
            check(field.shape, item, at, report)
        elif field.required:
            report(at, REQUIRED)

    for group in getattr(type(value), "one_of", ()):
        present = [name for name in group if getattr(value, fields[name].name) is not None]
        # A newer server may have further fields in the group, so an unknown field may be the one.
        may_be_unknown = not present and bool(getattr(value, "unknown", None))
        if len(present) != 1 and not may_be_unknown:
            expected, seen = ", ".join(group), " and ".join(present) or "none"
            report(path, f"exactly one of {expected} is expected, got {seen}")


def _check_keys(shape: Shape, items: list[Any], path: str, report: Report) -> None:
    """Reports items with the same key in a list that is a map or a set."""
    if not shape.keys and not shape.unique:
        return
    seen: set[Any] = set()
    for index, item in enumerate(items):
        key = key_of(shape, item) if shape.keys else item
        if key in seen:
            title = key if shape.unique else ", ".join(filter(None, key))
            report(f"{path}[{index}]", f"is there twice: {title}")
        seen.add(key)


def key_of(shape: Shape, item: Any) -> tuple[str, ...]:
    """Returns the key of an item in a keyed list. A part of the key that is absent is empty."""
    fields = fields_of(type(item)) if isinstance(item, msgspec.Struct) else {}
    key = []
    for name in shape.keys:
        value = getattr(item, fields[name].name, None) if name in fields else None
        key.append(str(value or ""))
    return tuple(key)


def _size(shape: Shape, value: Any) -> int:
    """Returns the bytes of a text or of a free document, or the items of a list or map."""
    if shape.kind == "any":
        return len(msgspec.json.encode(value))
    return len(value.encode()) if isinstance(value, str) else len(value)


def _item_shape(shape: Shape) -> Shape:
    assert shape.item
    return shape.item


def _wrong(path: str, expected: str, value: Any, report: Report) -> Any:
    """Reports a value of a wrong type, and returns it."""
    seen = "nothing" if value is None else repr(value)
    if len(seen) >= 60:
        seen = f"{seen[:57]}..."
    report(path, f"expected {expected}, got {seen}")
    return value
