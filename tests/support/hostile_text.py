"""Documents with a stranger's text in one field, for each field of text that a type has."""

import copy
import re
from collections.abc import Iterator

from msgspec import inspect

from claimd.common import plain_text

# A line of its own that looks like ours, escape sequences, marks that turn the direction of text,
# other ends of lines, and ten thousand characters.
_WORDS = "\nFORGED\n\x1b[2J\x1b]0;owned\x07FORGED \u202egnp\u2066\r\x85FORGED\u2028FORGED\x9b1m"
TEXT = f"{_WORDS}{'x' * 10_000}"
# What YAML and a shell read otherwise does not matter here: only characters that steer do.
_STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")


def find_steering(printed: str) -> str | None:
    """Returns the first character that steers a terminal or the direction of text, or None."""
    found = _STEERING.search(printed)
    return found.group() if found else None


def check_printed(printed: str, where: str) -> None:
    """Fails if the text steers a terminal, has a line of a stranger, or a line without an end."""
    steering = find_steering(printed)
    assert steering is None, f"{where}: {steering!r} is printed"
    for line in printed.split("\n"):
        assert not line.lstrip().startswith("FORGED"), f"{where}: a line of a stranger"
        assert len(line) <= 2 * plain_text.LONGEST_LINE, f"{where}: a line of {len(line)}"


def check_data(value: object, where: str) -> None:
    """Does the same for the texts of plain data, which a page shows."""
    if isinstance(value, str):
        check_printed(value, where)
        assert "\n" not in value, f"{where}: a text of two lines"
    elif isinstance(value, dict):
        for key, inner in value.items():
            check_data(key, where)
            check_data(inner, where)
    elif isinstance(value, list):
        for inner in value:
            check_data(inner, where)


def text_fields(type_: type) -> list[str]:
    """Returns the paths of all fields of text, such as spec.devices[].attributes{key}."""
    paths = _paths(inspect.type_info(type_), "", ())
    return list(dict.fromkeys(paths))


def _paths(type_: inspect.Type, path: str, seen: tuple[type, ...]) -> Iterator[str]:
    match type_:
        case inspect.StructType() if type_.cls not in seen:
            for field in type_.fields:
                inner = f"{path}.{field.encode_name}" if path else field.encode_name
                yield from _paths(field.type, inner, (*seen, type_.cls))
        case inspect.ListType() | inspect.VarTupleType():
            yield from _paths(type_.item_type, f"{path}[]", seen)
        case inspect.DictType():
            yield f"{path}{{key}}"
            yield from _paths(type_.value_type, f"{path}{{}}", seen)
        case inspect.UnionType():
            for choice in type_.types:
                yield from _paths(choice, path, seen)
        case inspect.StrType() | inspect.AnyType():
            yield path


# Values of required fields whose text means something. Others have a number, which is a quantity.
_VALUES = {"operator": "Exists", "effect": "NoSchedule", "status": "False"}


def with_text(document: dict, type_: type, path: str, text: str = TEXT) -> dict:
    """Returns a copy with the text in one field, after what was there.

    Fields on the way to it are made if they are absent, with the other fields that they require. Of
    a list or a map it is the first entry.
    """
    changed = copy.deepcopy(document)
    steps = re.findall(r"[^.\[\]{}]+|\[\]|\{key\}|\{\}", path)
    _put(changed, inspect.type_info(type_), steps, text)
    return changed


def _put(place: object, type_: inspect.Type, steps: list[str], text: str) -> None:
    step, *rest = steps
    if step == "{key}":
        first = next(iter(place), "name")
        place[f"{first}{text}"] = place.pop(first, None) or _value(type_.value_type, "")
        return

    inner, key = _inner(place, type_, step)
    before = place[key] if step == "[]" and place else None
    if step != "[]":
        before = place.get(key)
    elif not place:
        place.append(None)
    if not rest:
        place[key] = f"{before or ''}{text}"
        return
    inner = _container(inner)
    if before is None:
        place[key] = _value(inner, "")
    _put(place[key], inner, rest, text)


def _inner(place: object, type_: inspect.Type, step: str) -> tuple[inspect.Type, object]:
    """Returns the type behind the step, and the index or the key that leads there."""
    if step == "[]":
        return type_.item_type, 0
    if step == "{}":
        return type_.value_type, next(iter(place), "name")
    field = next(field for field in type_.fields if field.encode_name == step)
    return field.type, step


def _container(type_: inspect.Type) -> inspect.Type:
    """Returns the choice of a union that is no None."""
    if not isinstance(type_, inspect.UnionType):
        return type_
    return next(each for each in type_.types if not isinstance(each, inspect.NoneType))


def _value(type_: inspect.Type, name: str) -> object:
    """Returns the smallest value of a type."""
    match _container(type_):
        case inspect.StructType(fields=fields):
            required = [field for field in fields if field.required]
            return {field.encode_name: _value(field.type, field.encode_name) for field in required}
        case inspect.ListType() | inspect.VarTupleType():
            return []
        case inspect.DictType():
            return {}
        case inspect.IntType():
            return 1
        case inspect.BoolType():
            return False
    return _VALUES.get(name, "1")


def leaves(document: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Yields the place of each text in plain data, for documents that no type describes."""
    if isinstance(document, str):
        yield path
    elif isinstance(document, dict):
        for key, inner in document.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(document, list):
        for index, inner in enumerate(document):
            yield from leaves(inner, (*path, index))


def with_leaf(document: dict, path: tuple[object, ...], text: str = TEXT) -> dict:
    """Returns a copy with the text after the one at this place."""
    changed = copy.deepcopy(document)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] += text
    return changed
