"""Plain data to objects and back, and the rules that an object breaks, by the paths of its fields.

`read` builds what it can and reports the rest, so that one look tells everything. No files, no
text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from .. import quantity
from .shapes import Shape, child, fields_of

# Is told a path, and what is wrong there.
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
    path: str  # status.reservedFor[3].uid; empty for the object itself
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class Invalid(ValueError):
    """The object breaks rules of its version; `problems` has all of them."""

    def __init__(self, subject: str, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{subject}: {problem}" for problem in problems))


# ---------------------------------------------------------------- plain data to objects and back


def read(shape: Shape, value: Any, path: str, keep: bool, report: Report) -> Any:
    """The value as an object of this shape. What cannot be one is reported and stays as it is.

    With `keep`, fields that the shape does not know are kept as `unknown`, else they are reported.
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
        item = _item(shape)
        return {key: read(item, v, f"{path}[{key}]", keep, report) for key, v in value.items()}

    # To Python, true and false are whole numbers.
    is_right = isinstance(value, TYPES[shape.kind])
    if shape.kind == "integer" and isinstance(value, bool):
        is_right = False
    if not is_right:
        return _wrong(path, NAMES[shape.kind], value, report)

    if shape.kind == "list":
        item = _item(shape)
        return [read(item, v, f"{path}[{index}]", keep, report) for index, v in enumerate(value)]
    return value


def _read_struct(shape: Shape, value: Any, path: str, keep: bool, report: Report) -> Any:
    struct = shape.struct
    assert struct
    if isinstance(value, struct):
        return value
    if not isinstance(value, dict):
        return _wrong(path, "an object", value, report)

    fields = fields_of(struct)
    given: dict[str, Any] = {}
    for field in fields.values():
        at = child(path, field.wire)
        if value.get(field.wire) is not None:
            given[field.name] = read(field.shape, value[field.wire], at, keep, report)
        elif field.required:
            report(at, REQUIRED)
            given[field.name] = None

    unknown = {name: v for name, v in value.items() if name not in fields}
    if unknown and keep:
        given["unknown"] = unknown
    elif unknown:
        for name in unknown:
            report(child(path, name), "is not a field of this version")
    return struct(**given)


def _read_quantity(value: Any, path: str, report: Report) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = str(value) if is_number else value
    try:
        quantity.parse(text)
    except (ValueError, TypeError):
        return _wrong(path, "a quantity such as 80Gi or 500m", value, report)
    return text


def write(value: Any) -> Any:
    """The object as it goes over the wire; what is not set is not there."""
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

    The rules are of types, what is required, limits, choices, keys, and one of several.
    """
    if shape.kind == "struct":
        if not (shape.struct and isinstance(value, shape.struct)):
            _wrong(path, "an object", value, report)
            return
        _check_struct(value, path, report)
    elif shape.kind == "map" and isinstance(value, dict):
        for key, item in value.items():
            check(_item(shape), item, f"{path}[{key}]", report)
    elif shape.kind == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            check(_item(shape), item, f"{path}[{index}]", report)
        _check_keys(shape, value, path, report)
    elif shape.kind != "any":
        # Read only for what it reports.
        read(shape, value, path, True, report)

    # What is not of its type is reported by now. It has no size that would mean anything.
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
        # A field that we do not know may be the one that is set: newer servers have more of them.
        may_be_unknown = not present and bool(getattr(value, "unknown", None))
        if len(present) != 1 and not may_be_unknown:
            expected, seen = ", ".join(group), " and ".join(present) or "none"
            report(path, f"exactly one of {expected} is expected, got {seen}")


def _check_keys(shape: Shape, items: list[Any], path: str, report: Report) -> None:
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
    """What tells an item of a keyed list apart. Absent and empty are the same."""
    fields = fields_of(type(item)) if isinstance(item, msgspec.Struct) else {}
    key = []
    for name in shape.keys:
        value = getattr(item, fields[name].name, None) if name in fields else None
        key.append(str(value or ""))
    return tuple(key)


def _size(shape: Shape, value: Any) -> int:
    if shape.kind == "any":
        return len(msgspec.json.encode(value))
    return len(value.encode()) if isinstance(value, str) else len(value)


def _item(shape: Shape) -> Shape:
    assert shape.item
    return shape.item


def _wrong(path: str, expected: str, value: Any, report: Report) -> Any:
    seen = "nothing" if value is None else repr(value)
    if len(seen) >= 60:
        seen = f"{seen[:57]}..."
    report(path, f"expected {expected}, got {seen}")
    return value
