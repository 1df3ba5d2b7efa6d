"""Plain data to objects and back, and the rules that an object breaks, each with the path of its
field.

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

Report = Callable[[str, str], None]  # path, what is wrong

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

    def __init__(self, what: str, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{what}: {problem}" for problem in problems))


def read(shape: Shape, value: Any, path: str, keep: bool, report: Report) -> Any:
    """The value as an object of this shape. What cannot be one is reported and stays as it is."""
    if shape.kind == "struct":
        return _read_struct(shape, value, path, keep, report)
    if shape.kind == "any":
        return value
    if shape.kind == "map":
        if not isinstance(value, dict):
            return _wrong(path, "a map", value, report)
        return {k: read(_item(shape), v, f"{path}[{k}]", keep, report) for k, v in value.items()}
    if shape.kind == "quantity":
        return _read_quantity(value, path, report)
    right = isinstance(value, TYPES[shape.kind]) and not (
        shape.kind == "integer" and isinstance(value, bool)
    )
    if not right:
        return _wrong(path, NAMES[shape.kind], value, report)
    if shape.kind == "list":
        return [read(_item(shape), v, f"{path}[{i}]", keep, report) for i, v in enumerate(value)]
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
        if value.get(field.wire) is not None:
            given[field.name] = read(
                field.shape, value[field.wire], child(path, field.wire), keep, report
            )
        elif field.required:
            report(child(path, field.wire), REQUIRED)
            given[field.name] = None
    unknown = {name: v for name, v in value.items() if name not in fields}
    if unknown and keep:
        given["unknown"] = unknown
    for name in () if keep else unknown:
        report(child(path, name), "is not a field of this version")
    return struct(**given)


def _read_quantity(value: Any, path: str, report: Report) -> Any:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    try:
        quantity.parse(text)
    except (ValueError, TypeError):
        return _wrong(path, "a quantity such as 80Gi or 500m", value, report)
    return text


def write(value: Any) -> Any:
    """The object as it goes over the wire; what is not set is not there."""
    if isinstance(value, msgspec.Struct):
        fields = fields_of(type(value)).values()
        pairs = ((field.wire, getattr(value, field.name)) for field in fields)
        return {name: write(v) for name, v in pairs if v is not None} | write(
            getattr(value, "unknown", {})
        )
    if isinstance(value, dict):
        return {k: write(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [write(v) for v in value]
    return value


def check(shape: Shape, value: Any, path: str, report: Report) -> None:
    """Reports every rule that the value breaks: types, what is required, limits, choices, keys, one
    of several.
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
    else:
        wrong = shape.kind != "any"
        read(shape, value, path, True, lambda at, text: report(at, text) if wrong else None)
    if not isinstance(value, str | list | dict) and shape.kind != "any":
        return  # not what it should be: reported above
    if shape.choices and value not in shape.choices:
        report(path, f"expected one of {', '.join(shape.choices)}, got {value!r}")
    if shape.most is not None and (size := _size(shape, value)) > shape.most:
        unit = "bytes" if shape.kind in ("string", "any") else "items"
        report(path, f"has {size} {unit}, at most {shape.most} are allowed")


def _check_struct(value: msgspec.Struct, path: str, report: Report) -> None:
    fields = fields_of(type(value))
    for field in fields.values():
        found = getattr(value, field.name)
        if found is not None:
            check(field.shape, found, child(path, field.wire), report)
        elif field.required:
            report(child(path, field.wire), REQUIRED)
    for group in getattr(type(value), "one_of", ()):
        found = [name for name in group if getattr(value, fields[name].name) is not None]
        # A field that we do not know may be the one that is set: newer servers have more of them.
        if len(found) > 1 or (not found and not getattr(value, "unknown", None)):
            report(
                path,
                f"exactly one of {', '.join(group)} is expected, got {' and '.join(found) or 'none'}",
            )


def _check_keys(shape: Shape, items: list[Any], path: str, report: Report) -> None:
    seen: set[Any] = set()
    for index, item in enumerate(items) if shape.keys or shape.unique else ():
        key = key_of(shape, item) if shape.keys else item
        if key in seen:
            report(
                f"{path}[{index}]",
                f"is there twice: {key if shape.unique else ', '.join(filter(None, key))}",
            )
        seen.add(key)


def key_of(shape: Shape, item: Any) -> tuple[str, ...]:
    """What tells an item of a keyed list apart. Absent and empty are the same."""
    table = fields_of(type(item)) if isinstance(item, msgspec.Struct) else {}
    return tuple(
        str(getattr(item, table[name].name, None) or "") if name in table else ""
        for name in shape.keys
    )


def _size(shape: Shape, value: Any) -> int:
    if shape.kind == "any":
        return len(msgspec.json.encode(value))
    return len(value.encode()) if isinstance(value, str) else len(value)


def _item(shape: Shape) -> Shape:
    assert shape.item
    return shape.item


def _wrong(path: str, expected: str, value: Any, report: Report) -> Any:
    seen = "nothing" if value is None else repr(value)
    report(path, f"expected {expected}, got {seen if len(seen) < 60 else seen[:57] + '...'}")
    return value
