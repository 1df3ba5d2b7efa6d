"""Which fields a document has, as paths; documents merged and cut by them; the paths as
managedFields write them.

A path is a tuple of steps in the spelling of FieldsV1: `f:spec`, `k:{"uid":"u"}`, `v:"finalizer"`.
Pure.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from .schema import FREE, Schema

Path = tuple[str, ...]
NOTHING = object()
NONE = (FREE, NOTHING)


def paths_of(schema: Schema, value: Any, path: Path = ()) -> set[Path]:
    """Every path of the document that somebody can own: scalars, what is one value, items, entries."""
    found: set[Path] = set()
    if isinstance(value, dict) and not schema.whole:
        for name, below in value.items():
            at = (*path, f"f:{name}")
            found |= paths_of(schema.child(name), below, at)
            if below in (None, {}) or not schema.declares(name):
                found.add(at)
    elif isinstance(value, list) and schema.granular:
        for item in value:
            at = (*path, step_of(schema, item))
            found |= paths_of(schema.item or FREE, item, at)
            found.add(at)
    else:
        found.add(path)
    return found


def compared(schema: Schema, old: Any, new: Any) -> tuple[set[Path], set[Path]]:
    """The paths that were added or have another value, and those that are gone.

    Unlike in `paths_of`, a struct or list that comes or goes whole is a path too.
    """
    changed: set[Path] = set()
    removed: set[Path] = set()

    def walk(below: Schema, one: Any, other: Any, path: Path) -> None:
        shown = one if other in (NOTHING, None) else other
        parts = (isinstance(shown, dict) and not below.whole) or (
            isinstance(shown, list) and below.granular
        )
        if parts and (_filled(one) or _filled(other)):
            ours, theirs = _children(below, one), _children(below, other)
            for step, child in {**ours, **theirs}.items():
                walk(child[0], ours.get(step, NONE)[1], theirs.get(step, NONE)[1], (*path, step))
            same = True
        else:
            same = _same(one, other)
        if other is NOTHING:
            removed.add(path)
        elif one is NOTHING or not same:
            changed.add(path)

    walk(schema, old, new, ())
    return changed - {()}, removed - {()}


def _children(schema: Schema, value: Any) -> dict[str, tuple[Schema, Any]]:
    if isinstance(value, dict):
        return {f"f:{name}": (schema.child(name), below) for name, below in value.items()}
    if isinstance(value, list):
        return {step_of(schema, item): (schema.item or FREE, item) for item in value}
    return {}


def _filled(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, bool) == isinstance(other, bool) and bool(one == other))


def step_of(schema: Schema, item: Any) -> str:
    if schema.unique or not isinstance(item, dict):
        return f"v:{json.dumps(item, separators=(',', ':'))}"
    key = {name: item[name] for name in sorted(schema.keys) if name in item}
    return f"k:{json.dumps(key, separators=(',', ':'))}"


def merged(schema: Schema, live: Any, config: Any) -> Any:
    """The configuration laid over what is there. Neither is changed; what is not is shared."""
    if isinstance(live, dict) and isinstance(config, dict) and not schema.whole:
        return live | {
            name: merged(schema.child(name), live.get(name), new) for name, new in config.items()
        }
    if isinstance(live, list) and isinstance(config, list) and schema.granular:
        ours = {step_of(schema, item): item for item in live}
        theirs = {step_of(schema, item): item for item in config}
        both = {
            step: merged(schema.item or FREE, ours.get(step), item) for step, item in theirs.items()
        }
        return [
            both[step] if step in both else ours[step]
            for step in _in_order(list(ours), list(theirs))
        ]
    return config


def _in_order(live: list[str], config: list[str]) -> list[str]:
    """Items of both in the configuration's order; those that are only there already stay about
    where they are.
    """
    ours, theirs = deque(live), deque(config)
    shared = deque(step for step in config if step in set(live))
    placed: dict[str, None] = {}
    while ours or theirs:
        mine = ours[0] if ours else None
        if mine is not None and mine not in config:
            placed[ours.popleft()] = None
        elif mine is not None and (
            mine in placed or (theirs and mine != theirs[0] and shared and shared[0] != mine)
        ):
            ours.popleft()  # it has its place, or gets it when its turn comes
        else:
            step = theirs.popleft()
            placed[step] = None
            if shared and shared[0] == step:
                shared.popleft()
    return list(placed)


def without(schema: Schema, value: Any, gone: Collection[Path]) -> Any:
    """The document without what lies at these paths. A map or list that is left empty by it is
    null.
    """
    touched = {path[:length] for path in gone for length in range(1, len(path) + 1)}

    def walk(below: Schema, old: Any, at: Path) -> Any:
        if isinstance(old, dict) and not below.whole:
            steps = {name: (*at, f"f:{name}") for name in old}
            return {
                name: keep(below.child(name), old[name], steps[name])
                for name in old
                if steps[name] not in gone
            } or None
        if isinstance(old, list) and below.granular:
            pairs = [(item, (*at, step_of(below, item))) for item in old]
            return [
                keep(below.item or FREE, item, step) for item, step in pairs if step not in gone
            ] or None
        return old

    def keep(below: Schema, old: Any, at: Path) -> Any:
        return walk(below, old, at) if at in touched else old

    return walk(schema, value, ())


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(below) for name, below in value.items() if below is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def with_structs(schema: Schema, paths: Collection[Path]) -> set[Path]:
    """The paths, and those of the structs that they are in."""
    found = set(paths)
    for path in paths:
        below = schema
        for length, step in enumerate(path[:-1], start=1):
            name = step.removeprefix("f:")
            named = step.startswith("f:")
            if named and below.declares(name):
                found.add(path[:length])
            below = below.child(name) if named else below.item or FREE
    return found


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
    return {
        step: {} if below == {".": {}} else _without_lone_dots(below)
        for step, below in tree.items()
    }


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


def order(path: Path) -> list[tuple[bool, str]]:
    """Among the fields of a struct, those that end there come first, as conflicts list them."""
    return [(length < len(path), step) for length, step in enumerate(path, start=1)]


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
