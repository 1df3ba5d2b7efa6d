"""JSON patch, merge patch and strategic merge patch.

Pure: a document is never changed, and the patched document is another one. Server-side apply is in
`managed_fields`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from claimd.kubernetes.api.document import Document

from ..types import fields
from ..types.schema import UNTYPED, Schema
from ..types.status_errors import StatusError, bad_request

REJECTED = "the server rejected our request due to an error in our request"
GO_TYPES: dict[type, str] = {list: "array", str: "string", bool: "bool"}

# The directives of a strategic merge patch. The last two are followed by a field's name.
PATCH, RETAIN_KEYS = "$patch", "$retainKeys"
SET_ORDER, DELETE_ITEMS = "$setElementOrder/", "$deleteFromPrimitiveList/"


def apply_patch(schema: Schema, document: Any, form: str, patch: Any) -> Any:
    """Returns the document after the patch. `form` is json, merge or strategic."""
    if form == "json":
        return json_patch(document, patch)
    if not isinstance(patch, dict):
        go_type = GO_TYPES.get(type(patch), "number")
        why = f"cannot unmarshal {go_type} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: json: {why}")
    if form == "merge":
        return merge_patch(document, patch)
    return strategic_merge(schema, document, patch)


def merge_patch(document: Any, patch: Any) -> Any:
    """Applies a patch of RFC 7386: maps merge, null removes a field, any other value replaces."""
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
    """Applies a patch of RFC 6902, one operation after the other.

    An operation that fails refuses the whole patch.
    """
    if not isinstance(operations, list):
        why = "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: json: {why}")
    result = copy.deepcopy(document)
    for operation in operations:
        try:
            result = _OPERATIONS[operation["op"]](result, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise StatusError(422, "Invalid", REJECTED, {}) from error
    return result


def _add(document: Any, operation: Document) -> Any:
    value = copy.deepcopy(operation["value"])
    return _set_value(document, _steps(operation["path"]), value, insert=True)


def _remove(document: Any, operation: Document) -> Any:
    *steps, last = _steps(operation["path"])
    container = _value_at(document, steps)
    del container[_index(container, last) if isinstance(container, list) else last]
    return document


def _replace(document: Any, operation: Document) -> Any:
    steps = _steps(operation["path"])
    # The lookup raises an error if the path does not exist.
    _value_at(document, steps)
    return _set_value(document, steps, copy.deepcopy(operation["value"]), insert=False)


def _copy(document: Any, operation: Document) -> Any:
    value = copy.deepcopy(_value_at(document, _steps(operation["from"])))
    return _set_value(document, _steps(operation["path"]), value, insert=True)


def _move(document: Any, operation: Document) -> Any:
    value = _value_at(document, _steps(operation["from"]))
    document = _remove(document, {"path": operation["from"]})
    return _set_value(document, _steps(operation["path"]), value, insert=True)


def _test(document: Any, operation: Document) -> Any:
    value, expected = _value_at(document, _steps(operation["path"])), operation.get("value")
    # Python takes True for 1, JSON does not.
    if value != expected or isinstance(value, bool) != isinstance(expected, bool):
        raise ValueError("the test failed")
    return document


_OPERATIONS: dict[str, Callable[[Any, Document], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "copy": _copy,
    "move": _move,
    "test": _test,
}


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"no pointer: {pointer}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _value_at(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(document, list):
            document = document[_index(document, step)]
        else:
            document = document[step]
    return document


def _index(items: list[Any], step: str) -> int:
    index = int(step)
    if not 0 <= index < len(items) or step != str(index):
        raise IndexError(step)
    return index


def _set_value(document: Any, steps: list[str], value: Any, insert: bool) -> Any:
    if not steps:
        return value
    *before, last = steps
    container = _value_at(document, before)
    if isinstance(container, dict):
        container[last] = value
    elif not isinstance(container, list):
        raise TypeError(last)
    elif not insert:
        container[_index(container, last)] = value
    # `-` is the position behind the last item.
    elif last in ("-", str(len(container))):
        container.append(value)
    else:
        container.insert(_index(container, last), value)
    return document


# ---------------------------------------------------------------- strategic merge patch


def strategic_merge(schema: Schema, document: Any, patch: Document) -> Any:
    """Applies a merge patch that merges lists with keys and knows the directives of kubectl."""
    directive = patch.get(PATCH)
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != PATCH}
    if directive == "delete":
        return {}

    result = dict(document) if isinstance(document, dict) else {}
    if RETAIN_KEYS in patch:
        retained = _require_list(patch[RETAIN_KEYS], "retainKeys")
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$"):
            _apply_directive(result, name, value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _strategic_value(schema.child(name), result.get(name), value)

    # Lists are put in order once all their items are there, so this is a second pass.
    for name, order in patch.items():
        field = name.removeprefix(SET_ORDER)
        if name.startswith(SET_ORDER) and isinstance(result.get(field), list):
            places = _require_list(order, "setElementOrder list")
            result[field] = _reorder(schema.child(field), result[field], places)
    return result


def _require_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"invalid patch format of {what}")
    return value


def _apply_directive(result: Document, name: str, value: Any) -> None:
    if name.startswith(DELETE_ITEMS):
        field = name.removeprefix(DELETE_ITEMS)
        removed = _require_list(value, "primitive list")
        before = _require_list(result.get(field) or [], "primitive list")
        result[field] = [item for item in before if item not in removed]
    elif not name.startswith(SET_ORDER) and name not in (RETAIN_KEYS, PATCH):
        raise bad_request(f"unknown directive {name}")


def _strategic_value(schema: Schema, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return strategic_merge(schema, old, new)
    if not isinstance(new, list) or not schema.associative:
        return new
    if schema.keys:
        _check_items(new)
    others = [item for item in new if not isinstance(item, dict) or item.get(PATCH) != "replace"]
    if len(others) != len(new):
        return others

    # A list replaces any other value. Such a value can come from a list item before this one in the
    # same patch.
    before = old if isinstance(old, list) else []

    items = {fields.path_element(schema, item): item for item in before}
    for item in new:
        element = fields.path_element(schema, item)
        if not schema.keys:
            items[element] = item
        elif item.get(PATCH) == "delete":
            items.pop(element, None)
        else:
            old_item = items.get(element)
            items[element] = _strategic_value(schema.item or UNTYPED, old_item, item)
    return _interleave(schema, items, before, new)


def _check_items(items: list[Any]) -> None:
    for item in items:
        if not isinstance(item, dict):
            what = type(item).__name__
            raise bad_request(f"cannot restore slice from {what}: expected objects with a key")


def _interleave(schema: Schema, items: dict[str, Any], old: list[Any], new: list[Any]) -> list[Any]:
    """Returns the merged items in order.

    Items of the patch come first, but an item that it does not contain stays in front of those that
    followed it.
    """
    named = [fields.path_element(schema, item) for item in new]
    before = [fields.path_element(schema, item) for item in old]
    unnamed_left = [element for element in before if element in items and element not in named]
    named_left = [element for element in named if element in items]

    order = []
    while unnamed_left and named_left:
        is_new = named_left[0] not in before
        if is_new or before.index(named_left[0]) <= before.index(unnamed_left[0]):
            order.append(named_left.pop(0))
        else:
            order.append(unnamed_left.pop(0))
    return [items[element] for element in (*order, *unnamed_left, *named_left)]


def _reorder(schema: Schema, items: list[Any], order: list[Any]) -> list[Any]:
    """Returns the items in the directive's order.

    An item that the directive does not contain stays behind the item that it followed.
    """
    if schema.keys:
        _check_items(order)
    places = {fields.path_element(schema, entry): place for place, entry in enumerate(order)}
    ranked: list[tuple[tuple[int, bool], Any]] = []
    last_place = -1
    for item in items:
        place = places.get(fields.path_element(schema, item))
        is_named = place is not None
        if place is not None:
            last_place = place
        ranked.append(((last_place, not is_named), item))
    return [item for _, item in sorted(ranked, key=lambda entry: entry[0])]
