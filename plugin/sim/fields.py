"""Which fields a document has, as paths; documents merged and cut by them; the paths as managedFields write them.

A path is a tuple of steps in the spelling of FieldsV1: `f:spec`, `k:{"uid":"u"}`, `v:"finalizer"`. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from .schema import FREE, Schema

Path = tuple[str, ...]
MEMBER = object()  # the value of a path that only says that something is there


def leaves(schema: Schema, value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every path that somebody can own, with its value: scalars, what is taken whole, items, entries."""
    found: dict[Path, Any] = {}
    if isinstance(value, dict):
        for name, below in value.items():
            at = (*path, f"f:{name}")
            found |= leaves(schema.child(name), below, at)
            if below in (None, {}) or (not schema.declares(name) and at not in found):
                found[at] = MEMBER
    elif isinstance(value, list) and (schema.keys or schema.unique):
        for item in value:
            at = (*path, step_of(schema, item))
            if schema.keys:
                found |= leaves(schema.item or FREE, item, at)
            found[at] = MEMBER
    else:
        found[path] = value
    return found


def step_of(schema: Schema, item: Any) -> str:
    if schema.unique or not isinstance(item, dict):
        return f"v:{json.dumps(item, separators=(',', ':'))}"
    key = {name: item[name] for name in sorted(schema.keys) if name in item}
    return f"k:{json.dumps(key, separators=(',', ':'))}"


def merged(schema: Schema, live: Any, config: Any) -> Any:
    """The configuration laid over what is there. Neither is changed; what is not is shared."""
    if isinstance(live, dict) and isinstance(config, dict):
        return live | {name: merged(schema.child(name), live.get(name), new) for name, new in config.items()}
    if isinstance(live, list) and isinstance(config, list) and (schema.keys or schema.unique):
        items = {step_of(schema, item): item for item in live}
        for item in config:
            step = step_of(schema, item)
            items[step] = merged(schema.item or FREE, items.get(step), item) if schema.keys else item
        return list(items.values())
    return config


def cut(schema: Schema, value: Any, gone: Collection[Path], kept: Collection[Path]) -> Any:
    """The document without what lies at the paths that are gone, unless something within is kept.

    What is left empty by it goes as well, as somebody's whole struct does when its last field goes.
    """
    needed = {path[:length] for path in kept for length in range(len(path) + 1)}
    touched = {path[:length] for path in gone for length in range(len(path) + 1)}

    def walk(below: Schema, old: Any, at: Path) -> Any:
        if isinstance(old, dict):
            left = {name: walk(below.child(name), old[name], (*at, f"f:{name}")) for name in old}
            return {name: new for name, new in left.items() if stays(old[name], new, (*at, f"f:{name}"))}
        if isinstance(old, list) and (below.keys or below.unique):
            steps = [(*at, step_of(below, item)) for item in old]
            items = [walk(below.item or FREE, item, step) for item, step in zip(old, steps, strict=True)]
            return [n for o, n, step in zip(old, items, steps, strict=True) if stays(o, n, step)]
        return old

    def stays(old: Any, new: Any, at: Path) -> bool:
        if at in needed or at not in touched:
            return True
        return at not in gone and (bool(new) or not old)

    return walk(schema, value, ())


# ---------------------------------------------------------------- managedFields


def encode(paths: Collection[Path]) -> dict[str, Any]:
    """FieldsV1: a tree of steps; `.` where a step with others below it is owned itself."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        place = tree
        for step in path:
            place = place.setdefault(step, {})
        place["."] = {}
    return _without_lone_dots(tree)


def _without_lone_dots(tree: dict[str, Any]) -> dict[str, Any]:
    return {step: {} if below == {".": {}} else _without_lone_dots(below) for step, below in tree.items()}


def decode(tree: dict[str, Any]) -> frozenset[Path]:
    return frozenset(_decode(tree, ()))


def _decode(tree: dict[str, Any], path: Path) -> Iterator[Path]:
    for step, below in tree.items():
        if step == ".":
            yield path
        elif not below:
            yield (*path, step)
        else:
            yield from _decode(below, (*path, step))


def shown(path: Path) -> str:
    """As conflicts name it: .spec.devices[driver="d",pool="p"].data"""
    said = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            said += f".{rest}"
        elif kind == "k":
            said += f"[{','.join(f'{name}={json.dumps(value)}' for name, value in json.loads(rest).items())}]"
        else:
            said += f"[={rest}]"
    return said
