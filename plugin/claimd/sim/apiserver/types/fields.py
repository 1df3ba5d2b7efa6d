"""Sets of field paths, and documents merged and pruned by them.

A path is a tuple of elements in the spelling of FieldsV1: `f:spec`, `k:{"uid":"u"}`,
`v:"finalizer"`. `managed_fields` combines the paths of several managers. All functions are pure:
they never change a document, and a result shares its unchanged parts with the document.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from claimd.kubernetes.api.document import Document

from .schema import UNTYPED, Schema

Path = tuple[str, ...]
ABSENT = object()
NO_CHILD = (UNTYPED, ABSENT)


def path_element(schema: Schema, item: Any) -> str:
    """Returns the path element that tells an item of an associative list from the others."""
    if schema.is_set or not isinstance(item, dict):
        return f"v:{json.dumps(item, separators=(',', ':'))}"
    key = {name: item[name] for name in sorted(schema.keys) if name in item}
    return f"k:{json.dumps(key, separators=(',', ':'))}"


# ---------------------------------------------------------------- paths of documents


def field_set(schema: Schema, value: Any, path: Path = ()) -> set[Path]:
    """Returns the paths of everything that a manager can own: scalars, atoms, items and entries."""
    paths: set[Path] = set()
    if isinstance(value, dict) and not schema.atomic:
        for name, below in value.items():
            child_path = (*path, f"f:{name}")
            paths |= field_set(schema.child(name), below, child_path)
            # A struct is owned through its fields. An empty struct and an entry of a map have a
            # path of their own.
            if below in (None, {}) or not schema.declares(name):
                paths.add(child_path)
    elif isinstance(value, list) and schema.associative:
        for item in value:
            item_path = (*path, path_element(schema, item))
            paths |= field_set(schema.item or UNTYPED, item, item_path)
            paths.add(item_path)
    else:
        paths.add(path)
    return paths


def compare(schema: Schema, old: Any, new: Any) -> tuple[set[Path], set[Path]]:
    """Returns the paths that were added or have another value, and the paths that were removed.

    Unlike in `field_set`, a struct or list that comes or goes as a whole is a path, too.
    """
    changed: set[Path] = set()
    removed: set[Path] = set()

    def walk(below: Schema, before: Any, after: Any, path: Path) -> None:
        # If one side is absent, the other one decides whether there are children.
        present = before if after in (ABSENT, None) else after
        if _has_children(below, present) and (_is_filled(before) or _is_filled(after)):
            old_children, new_children = _children(below, before), _children(below, after)
            for element, (child_schema, _) in {**old_children, **new_children}.items():
                child_before = old_children.get(element, NO_CHILD)[1]
                child_after = new_children.get(element, NO_CHILD)[1]
                walk(child_schema, child_before, child_after, (*path, element))
            same = True
        else:
            same = _same(before, after)

        if after is ABSENT:
            removed.add(path)
        elif before is ABSENT or not same:
            changed.add(path)

    walk(schema, old, new, ())
    # The whole document is no path.
    return changed - {()}, removed - {()}


def _has_children(schema: Schema, value: Any) -> bool:
    if isinstance(value, dict):
        return not schema.atomic
    return isinstance(value, list) and schema.associative


def _children(schema: Schema, value: Any) -> dict[str, tuple[Schema, Any]]:
    """Returns the values of a map or list by their path elements."""
    if isinstance(value, dict):
        return {f"f:{name}": (schema.child(name), below) for name, below in value.items()}
    if isinstance(value, list):
        return {path_element(schema, item): (schema.item or UNTYPED, item) for item in value}
    return {}


def _is_filled(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _same(one: Any, other: Any) -> bool:
    """Compares JSON values. Python takes True for 1, JSON does not."""
    return one is other or (isinstance(one, bool) == isinstance(other, bool) and bool(one == other))


def with_named_fields(schema: Schema, paths: Collection[Path]) -> set[Path]:
    """Returns the paths and the paths of all structs that contain them."""
    complete = set(paths)
    for path in paths:
        below = schema
        for length, element in enumerate(path[:-1], start=1):
            if not element.startswith("f:"):
                below = below.item or UNTYPED
                continue
            name = element.removeprefix("f:")
            if below.declares(name):
                complete.add(path[:length])
            below = below.child(name)
    return complete


# ---------------------------------------------------------------- merging, pruning


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """Returns the live document after the applied configuration has replaced its values."""
    if isinstance(live, dict) and isinstance(config, dict) and not schema.atomic:
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(schema.child(name), live.get(name), value)
        return merged

    if isinstance(live, list) and isinstance(config, list) and schema.associative:
        items = {path_element(schema, item): item for item in live}
        applied = {path_element(schema, item): item for item in config}
        order = _merged_order(list(items), list(applied))
        for element, item in applied.items():
            items[element] = merge(schema.item or UNTYPED, items.get(element), item)
        return [items[element] for element in order]

    return config


def _merged_order(live: list[str], config: list[str]) -> list[str]:
    """Returns the order of a merged list.

    Items of the configuration have its order. Other items stay about where they are. The order is
    visible to clients, so this follows the steps of Kubernetes' structured merge.
    """
    from_live, from_config = deque(live), deque(config)
    in_live, in_config = set(live), set(config)
    shared = deque(element for element in config if element in in_live)
    placed: dict[str, None] = {}

    while from_live or from_config:
        ours = from_live[0] if from_live else None
        if ours is not None and ours not in in_config:
            placed[from_live.popleft()] = None
            continue

        # An item of both lists has its place already, or gets it at its turn in the configuration.
        out_of_turn = from_config and ours != from_config[0] and shared and shared[0] != ours
        if ours is not None and (ours in placed or out_of_turn):
            from_live.popleft()
            continue

        element = from_config.popleft()
        placed[element] = None
        if shared and shared[0] == element:
            shared.popleft()
    return list(placed)


def remove_items(schema: Schema, value: Any, removed: Collection[Path]) -> Any:
    """Returns the document without the values at these paths. A map or list that becomes empty is
    None.
    """
    # Only values above a removed path need a look. All others are shared with the old document.
    touched = {path[:length] for path in removed for length in range(1, len(path) + 1)}

    def walk(below: Schema, old: Any, path: Path) -> Any:
        if isinstance(old, dict) and not below.atomic:
            # A map or list that becomes empty is removed, too.
            kept = {}
            for name, child in old.items():
                child_path = (*path, f"f:{name}")
                if child_path not in removed:
                    kept[name] = prune(below.child(name), child, child_path)
            return kept or None

        if isinstance(old, list) and below.associative:
            items = []
            for item in old:
                item_path = (*path, path_element(below, item))
                if item_path not in removed:
                    items.append(prune(below.item or UNTYPED, item, item_path))
            return items or None
        return old

    def prune(below: Schema, old: Any, path: Path) -> Any:
        return walk(below, old, path) if path in touched else old

    return walk(schema, value, ())


def without_nulls(value: Any) -> Any:
    """Returns a copy in which no map has a null value."""
    if isinstance(value, dict):
        return {name: without_nulls(below) for name, below in value.items() if below is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


# ---------------------------------------------------------------- FieldsV1


def to_fields_v1(paths: Collection[Path]) -> Document:
    """Returns the paths as a FieldsV1 tree.

    An element that has an owner itself, and not only through others below it, has a `.` entry.
    """
    tree: Document = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _without_lone_dots(tree)


def _without_lone_dots(tree: Document) -> Document:
    """Replaces each `{".": {}}` by `{}`, the short form of FieldsV1 for a leaf."""
    plain = {}
    for element, below in tree.items():
        plain[element] = {} if below == {".": {}} else _without_lone_dots(below)
    return plain


def from_fields_v1(tree: Document) -> frozenset[Path]:
    """Returns the paths of a FieldsV1 tree."""
    return frozenset(_paths(tree, ()))


def _paths(tree: Document, path: Path) -> Iterator[Path]:
    for element, below in tree.items():
        if element == ".":
            yield path
        elif not below:
            yield (*path, element)
        else:
            yield from _paths(below, (*path, element))


# ---------------------------------------------------------------- paths in messages


def conflict_order(path: Path) -> list[tuple[bool, str]]:
    """Returns the sort key of a conflict.

    Of a struct's fields, those that are leaves come first.
    """
    return [(length < len(path), element) for length, element in enumerate(path, start=1)]


def path_text(path: Path) -> str:
    """Returns a path in the form of conflict messages: .spec.devices[driver="d",pool="p"].data"""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            pairs = [f"{name}={json.dumps(value)}" for name, value in json.loads(rest).items()]
            text += f"[{','.join(pairs)}]"
        else:
            text += f"[={rest}]"
    return text
