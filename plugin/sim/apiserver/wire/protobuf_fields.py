"""The fields of the kinds around the resource API, by the tables of protobuf: which are unknown,
which are mistyped.

In: a document; out: the document without unknown fields. The tables are those of 1.37, and say no
more than types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....api.objects.shapes import child
from ..catalog import ServedVersion
from . import protobuf

OLDER = {"core/v1.PodResourceClaim": "source"}  # fields that earlier releases had
LIKE = {  # what JSON has for a form
    "text": (str,),
    "bytes": (str,),
    "int": (int,),
    "flag": (bool,),
    "quantity": (str, int, float),
    "either": (str, int),
    "time": (str,),
    "microtime": (str,),
    "texts": (list,),
}
FORMS = {"flag": "bool", "int": "int64"}
SEEN: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}


class Wrong(Exception):
    """A value of another type than the field's."""

    def __init__(self, path: str, wanted: str, value: Any) -> None:
        super().__init__(
            f"json: cannot unmarshal {SEEN[type(value)]} into Go struct field {path} of type {wanted}"
        )


def message_of(served: ServedVersion) -> str | None:
    return protobuf.tables().kinds.get((served.api_version, served.kind.resource.kind))


def known(message: str, value: Any, path: str, unknown: list[str]) -> Any:
    """The value with the fields that its type has; the paths of others go to `unknown`."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Wrong(path, "object", value)
    table = {name: form for form, name in fields_of(message)}
    found = {}
    for name, below in value.items():
        if name in table:
            found[name] = _of_form(table[name], below, child(path, name), unknown)
        elif OLDER.get(message) == name or (not path and name in ("apiVersion", "kind")):
            found[name] = below
        else:
            unknown.append(child(path, name))
    return found


def fields_of(message: str) -> Iterator[tuple[str, str]]:
    """The form and the name of each, with those of what is inlined."""
    for field in protobuf.tables().messages[message].values():
        if field.inline:
            yield from fields_of(field.form)
        else:
            yield field.form, field.name


def zero(form: str) -> Any:
    """What null is in a list or a map, which have a place for it: the type's own nothing."""
    if form in ("int", "flag"):
        return 0 if form == "int" else False
    return (
        ""
        if form in LIKE and form != "texts"
        else []
        if form == "texts" or form.startswith("list:")
        else {}
    )


def _of_form(form: str, value: Any, path: str, unknown: list[str]) -> Any:
    outer, _, inner = form.partition(":")
    if value is None or form in ("raw", "fields"):
        return value
    if outer == "list":
        if not isinstance(value, list):
            raise Wrong(path, "array", value)
        return [
            zero(inner) if item is None else _of_form(inner, item, f"{path}[{index}]", unknown)
            for index, item in enumerate(value)
        ]
    if outer == "map":
        if not isinstance(value, dict):
            raise Wrong(path, "object", value)
        return {
            name: zero(inner) if item is None else _of_form(inner, item, f"{path}.{name}", unknown)
            for name, item in value.items()
        }
    if form not in LIKE:
        return known(form, value, path, unknown)
    if not isinstance(value, LIKE[form]) or (isinstance(value, bool) and form != "flag"):
        raise Wrong(path, FORMS.get(form, "string"), value)
    return value
