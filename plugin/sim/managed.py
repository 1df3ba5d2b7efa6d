"""managedFields: who owns which field of an object, after an apply and after any other write. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import fields, refused
from .fields import Path
from .schema import Schema

Document = dict[str, Any]
SYSTEM = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation"),
            *("managedFields", "resourceVersion"),
        )
    ]
)


@dataclass(frozen=True)
class Writer:
    """Who writes, and what: the status alone has owners of its own."""

    manager: str
    operation: str  # Apply, Update
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """An apply is the same one in every version; any other write is not."""
        version = self.api_version if self.operation == "Update" else ""
        return self.manager, self.operation, version, self.subresource


@dataclass(frozen=True)
class Entry:
    writer: Writer
    owned: frozenset[Path]
    time: str

    @classmethod
    def of(cls, entry: Document) -> Entry:
        writer = Writer(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        return cls(writer, fields.decode(entry.get("fieldsV1") or {}), entry.get("time", ""))

    def plain(self) -> Document:
        writer = self.writer
        plain = {"manager": writer.manager, "operation": writer.operation, "apiVersion": writer.api_version}
        plain |= {"time": self.time, "fieldsType": "FieldsV1", "fieldsV1": fields.encode(self.owned)}
        return plain | ({"subresource": writer.subresource} if writer.subresource else {})


def applied(schema: Schema, live: Document, config: Document, writer: Writer, force: bool, time: str) -> Document:
    """The object after a server-side apply; a conflict names each field and who owns it."""
    entries = _entries(live)
    mine = entries.pop(writer.identity, None)
    wanted = frozenset(_owned(fields.leaves(schema, config)))
    others: frozenset[Path] = frozenset().union(*(entry.owned for entry in entries.values()))
    given_up = (mine.owned if mine else frozenset()) - wanted - others
    result = fields.merged(schema, live, _without_entries(config))
    result = fields.cut(schema, result, given_up, wanted | others)
    changed, removed = _compared(schema, live, result)
    losing = {identity: entry.owned & changed for identity, entry in entries.items() if entry.owned & changed}
    if losing and not force:
        raise _conflict([(entries[identity], owned) for identity, owned in losing.items()])
    entries = _less(entries, changed | removed)
    kept = mine.time if mine and mine.owned == wanted and mine.writer == writer else time
    entries[writer.identity] = Entry(writer, wanted, kept)
    return _with_entries(result, entries)


def updated(schema: Schema, live: Document, new: Document, writer: Writer, time: str) -> Document:
    """The object after any other write: what it changed is now the writer's, and nobody else's."""
    entries = _entries(new) if "managedFields" in new.get("metadata", {}) else _entries(live)
    changed, removed = _compared(schema, live, new)
    mine = entries.pop(writer.identity, None)
    entries = _less(entries, changed | removed)
    before = mine.owned if mine else frozenset()
    owned = (before - removed) | changed
    if owned:
        entries[writer.identity] = Entry(writer, owned, mine.time if mine and owned == before else time)
    return _with_entries(new, entries)


def _compared(schema: Schema, old: Document, new: Document) -> tuple[frozenset[Path], frozenset[Path]]:
    """What was added or has another value, and what is gone."""
    before, after = fields.leaves(schema, old), fields.leaves(schema, new)
    changed = {path for path, value in after.items() if path not in before or not _same(before[path], value)}
    return frozenset(_owned(changed)), frozenset(_owned(before.keys() - after.keys()))


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def _owned(paths: Any) -> list[Path]:
    return [path for path in paths if path not in SYSTEM and path[:2] != ("f:metadata", "f:managedFields")]


def _less(entries: dict[tuple[str, ...], Entry], paths: frozenset[Path]) -> dict[tuple[str, ...], Entry]:
    left = {identity: replace(entry, owned=entry.owned - paths) for identity, entry in entries.items()}
    return {identity: entry for identity, entry in left.items() if entry.owned}


def _entries(obj: Document) -> dict[tuple[str, ...], Entry]:
    listed = [Entry.of(entry) for entry in obj.get("metadata", {}).get("managedFields") or ()]
    return {entry.writer.identity: entry for entry in listed}


def _with_entries(obj: Document, entries: dict[tuple[str, ...], Entry]) -> Document:
    order: Callable[[Entry], tuple[str, ...]] = lambda e: (  # noqa: E731 - a name for the order
        e.writer.operation,
        e.time,
        e.writer.manager,
        e.writer.api_version,
        e.writer.subresource,
    )
    listed = [entry.plain() for entry in sorted(entries.values(), key=order)]
    return obj | {"metadata": _without_entries(obj)["metadata"] | ({"managedFields": listed} if listed else {})}


def _without_entries(obj: Document) -> Document:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    return obj | {"metadata": metadata}


def _conflict(losing: list[tuple[Entry, frozenset[Path]]]) -> refused.Refused:
    pairs = [(_named(entry), fields.shown(path)) for entry, owned in losing for path in sorted(owned)]
    causes = [refused.Cause("FieldManagerConflict", f"conflict with {name}", path) for name, path in pairs]
    if len(pairs) == 1:
        name, path = pairs[0]
        return refused.apply_conflict(causes, f"Apply failed with 1 conflict: conflict with {name}: {path}")
    lines: list[str] = []
    for name in sorted({name for name, _ in pairs}):
        lines += [f"conflicts with {name}:", *(f"- {path}" for other, path in pairs if other == name)]
    return refused.apply_conflict(causes, f"Apply failed with {len(pairs)} conflicts: {chr(10).join(lines)}")


def _named(entry: Entry) -> str:
    writer = entry.writer
    name = f'"{writer.manager}"' + (f' with subresource "{writer.subresource}"' if writer.subresource else "")
    if writer.operation != "Update":
        return name
    return f"{name} using {writer.api_version}" + (f" at {entry.time}" if entry.time else "")
