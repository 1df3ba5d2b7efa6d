"""The three patches that change a document by saying how: JSON patch, merge patch, strategic merge
patch. Pure.

Nothing given is changed: the patched document is another one. Apply is in `managed`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ..types import fields, status_errors
from ..types.schema import FREE, Schema

REJECTED = "the server rejected our request due to an error in our request"
RETAIN, ORDER, DELETE = "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/"


def apply_patch(schema: Schema, document: Any, form: str, patch: Any) -> Any:
    """`form` is json, merge or strategic."""
    if form == "json":
        return json_patch(document, patch)
    if not isinstance(patch, dict):
        go = {list: "array", str: "string", bool: "bool"}.get(type(patch), "number")
        raise status_errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {go} into Go value of type map[string]interface {{}}"
        )
    return (
        merge_patch(document, patch)
        if form == "merge"
        else strategic_merge(schema, document, patch)
    )


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: maps merge, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


# ---------------------------------------------------------------- JSON patch


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902, one operation after the other; one that fails refuses the whole patch."""
    if not isinstance(operations, list):
        raise status_errors.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    result = copy.deepcopy(document)
    for operation in operations:
        try:
            result = _OPERATIONS[operation["op"]](result, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise status_errors.StatusError(422, "Invalid", REJECTED, {}) from error
    return result


def _add(document: Any, operation: dict[str, Any]) -> Any:
    return _put(document, _way(operation["path"]), copy.deepcopy(operation["value"]), insert=True)


def _remove(document: Any, operation: dict[str, Any]) -> Any:
    *way, last = _way(operation["path"])
    place = _at(document, way)
    del place[_index(place, last) if isinstance(place, list) else last]
    return document


def _replace(document: Any, operation: dict[str, Any]) -> Any:
    way = _way(operation["path"])
    _at(document, way)  # it has to be there
    return _put(document, way, copy.deepcopy(operation["value"]), insert=False)


def _copy(document: Any, operation: dict[str, Any]) -> Any:
    return _put(
        document,
        _way(operation["path"]),
        copy.deepcopy(_at(document, _way(operation["from"]))),
        insert=True,
    )


def _move(document: Any, operation: dict[str, Any]) -> Any:
    value = _at(document, _way(operation["from"]))
    return _put(
        _remove(document, {"path": operation["from"]}), _way(operation["path"]), value, insert=True
    )


def _test(document: Any, operation: dict[str, Any]) -> Any:
    found, wanted = _at(document, _way(operation["path"])), operation.get("value")
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        raise ValueError("the test failed")
    return document


_OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "copy": _copy,
    "move": _move,
    "test": _test,
}


def _way(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"no pointer: {pointer}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _at(document: Any, way: Sequence[str]) -> Any:
    for step in way:
        document = (
            document[_index(document, step)] if isinstance(document, list) else document[step]
        )
    return document


def _index(place: list[Any], step: str) -> int:
    index = int(step)
    if not 0 <= index < len(place) or step != str(index):
        raise IndexError(step)
    return index


def _put(document: Any, way: list[str], value: Any, insert: bool) -> Any:
    if not way:
        return value
    *before, last = way
    place = _at(document, before)
    if not isinstance(place, list):
        if not isinstance(place, dict):
            raise TypeError(last)
        place[last] = value
    elif last == "-" and insert:
        place.append(value)
    elif insert:
        place.insert(len(place) if last == str(len(place)) else _index(place, last), value)
    else:
        place[_index(place, last)] = value
    return document


# ---------------------------------------------------------------- strategic merge patch


def strategic_merge(schema: Schema, document: Any, patch: dict[str, Any]) -> Any:
    """A merge patch that knows lists with keys, and the directives that kubectl writes."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    result = dict(document) if isinstance(document, dict) else {}
    if RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[RETAIN]}
    for name, value in patch.items():
        if name.startswith("$"):
            _directive(schema, result, name, value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _strategic(schema.child(name), result.get(name), value)
    for name, order in patch.items():
        if name.startswith(ORDER) and isinstance(result.get(name.removeprefix(ORDER)), list):
            field = name.removeprefix(ORDER)
            result[field] = _ordered(schema.child(field), result[field], order)
    return result


def _directive(schema: Schema, result: dict[str, Any], name: str, value: Any) -> None:
    if name.startswith(DELETE):
        field = name.removeprefix(DELETE)
        result[field] = [item for item in result.get(field) or () if item not in value]
    elif not name.startswith(ORDER) and name not in (RETAIN, "$patch"):
        raise status_errors.bad_request(f"unknown directive {name}")


def _strategic(schema: Schema, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return strategic_merge(schema, old, new)
    if not isinstance(new, list) or not (schema.keys or schema.unique):
        return new
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in new):
        return [item for item in new if item.get("$patch") != "replace"]
    items = {fields.step_of(schema, item): item for item in old or ()}
    for item in new:
        if schema.keys and not isinstance(item, dict):
            raise status_errors.bad_request(
                f"cannot restore slice from {type(item).__name__}: expected objects with a key"
            )
        step = fields.step_of(schema, item)
        if schema.keys and item.get("$patch") == "delete":
            items.pop(step, None)
        else:
            items[step] = (
                _strategic(schema.item or FREE, items.get(step), item) if schema.keys else item
            )
    return _placed(schema, list(items.values()), list(old or ()), new)


def _placed(schema: Schema, items: list[Any], old: list[Any], new: list[Any]) -> list[Any]:
    """What the patch names comes first, but behind an item that was there before it and is not
    named.
    """
    named = [fields.step_of(schema, item) for item in new]
    before = [fields.step_of(schema, item) for item in old]
    steps = {fields.step_of(schema, item): item for item in items}
    ours, theirs = (
        [s for s in before if s in steps and s not in named],
        [s for s in named if s in steps],
    )
    placed = []
    while ours and theirs:
        first = (
            ours
            if theirs[0] in before and before.index(ours[0]) < before.index(theirs[0])
            else theirs
        )
        placed.append(first.pop(0))
    return [steps[step] for step in (*placed, *ours, *theirs)]


def _ordered(schema: Schema, items: list[Any], order: list[Any]) -> list[Any]:
    """The items that the order names, as it names them; each of the others stays behind the one
    that it followed.
    """
    wanted = {fields.step_of(schema, entry): place for place, entry in enumerate(order)}
    ranked, last = [], -1
    for item in items:
        place = wanted.get(fields.step_of(schema, item))
        last = last if place is None else place
        ranked.append((place if place is not None else last, place is None, item))
    return [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])]
