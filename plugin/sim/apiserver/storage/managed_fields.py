"""managedFields: who owns which field of an object, after an apply and after any other write. The
time is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import cast

from ....api.document import Document
from ..types import fields, status_errors
from ..types.fields import Path
from ..types.schema import Schema

SYSTEM = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            *(
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
            ),
            *("managedFields", "resourceVersion"),
        )
    ]
)


@dataclass(frozen=True)
class Manager:
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
class ManagedFieldsEntry:
    writer: Manager
    owned: frozenset[Path]
    time: str

    @classmethod
    def of(cls, entry: Document) -> ManagedFieldsEntry:
        writer = Manager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        said = entry.get("fieldsV1")
        owned = fields.decode(said) if isinstance(said, dict) else frozenset()
        return cls(writer, owned, entry.get("time", ""))

    def to_document(self) -> Document:
        writer = self.writer
        plain: Document = {
            "manager": writer.manager,
            "operation": writer.operation,
            "apiVersion": writer.api_version,
        }
        plain |= {"time": self.time} if self.time else {}
        plain |= {"fieldsType": "FieldsV1", "fieldsV1": fields.encode(self.owned)}
        return plain | ({"subresource": writer.subresource} if writer.subresource else {})


def apply(
    schema: Schema, live: Document, config: Document, writer: Manager, force: bool, time: str
) -> Document:
    """The object after a server-side apply; a conflict names each field and who owns it."""
    entries = _entries(live) or _first(schema, live, writer, time)
    mine = entries.pop(writer.identity, None)
    said = frozenset(fields.paths_of(schema, config))
    wanted = _owned(said)
    result = fields.merged(schema, live, _without_entries(config))
    owners = [*(entry.owned for entry in entries.values()), said]
    result = _pruned(schema, result, owners, mine.owned if mine else frozenset())
    changed, removed = _compared(schema, live, result)
    losing = {
        identity: entry.owned & changed
        for identity, entry in entries.items()
        if entry.owned & changed
    }
    if losing and not force:
        raise _conflict([(entries[identity], owned) for identity, owned in losing.items()])
    entries = _less(entries, changed | removed)
    result = fields.without_nulls(result)
    before = mine.time if mine else ""
    same = _without_entries(result) == _without_entries(live)
    if wanted:
        entries[writer.identity] = ManagedFieldsEntry(writer, wanted, before if same else time)
    return _with_entries(result, entries)


def update(schema: Schema, live: Document, new: Document, writer: Manager, time: str) -> Document:
    """The object after any other write: what it changed is now the writer's, and nobody else's."""
    entries = _entries(new) if "managedFields" in new.get("metadata", {}) else _entries(live)
    changed, removed = _compared(schema, live, new)
    mine = entries.pop(writer.identity, None)
    entries = _less(entries, changed | removed)
    before = mine.owned if mine else frozenset()
    owned = (before - removed) | changed
    if owned:
        entries[writer.identity] = ManagedFieldsEntry(
            writer, owned, mine.time if mine and not changed else time
        )
    return _with_entries(new, entries)


def _first(
    schema: Schema, live: Document, writer: Manager, time: str
) -> dict[tuple[str, ...], ManagedFieldsEntry]:
    """The owner of what was there before anybody applied, if nobody is known to own it."""
    owned, _ = _compared(schema, {}, live)
    before = Manager("before-first-apply", "Update", writer.api_version)
    return {before.identity: ManagedFieldsEntry(before, owned, time)} if owned else {}


def _pruned(
    schema: Schema, result: Document, entries: list[frozenset[Path]], last: frozenset[Path]
) -> Document:
    """Without what the writer applied last time, does not apply any more, and nobody else owns."""
    if not last:
        return result

    def complete(paths: Collection[Path]) -> set[Path]:
        return fields.with_structs(schema, paths)

    def left(gone: set[Path]) -> set[Path]:
        return complete(fields.paths_of(schema, fields.without(schema, result, gone)))

    there, before = complete(fields.paths_of(schema, result)), complete(last)
    owned = complete(frozenset().union(*entries))
    gone = there - (left(before) | owned)
    return cast(Document, fields.without(schema, result, (there - left(gone)) & before))


def _compared(
    schema: Schema, old: Document, new: Document
) -> tuple[frozenset[Path], frozenset[Path]]:
    """What was added or has another value, and what is gone, less what has no owner."""
    changed, removed = fields.compared(schema, old, new)
    return _owned(changed), _owned(removed)


def _owned(paths: Collection[Path]) -> frozenset[Path]:
    return frozenset(
        p for p in paths if p not in SYSTEM and p[:2] != ("f:metadata", "f:managedFields")
    )


def _less(
    entries: dict[tuple[str, ...], ManagedFieldsEntry], paths: frozenset[Path]
) -> dict[tuple[str, ...], ManagedFieldsEntry]:
    left = {
        identity: replace(entry, owned=entry.owned - paths) for identity, entry in entries.items()
    }
    return {identity: entry for identity, entry in left.items() if entry.owned}


def _entries(obj: Document) -> dict[tuple[str, ...], ManagedFieldsEntry]:
    listed = [
        ManagedFieldsEntry.of(entry) for entry in obj.get("metadata", {}).get("managedFields") or ()
    ]
    return {entry.writer.identity: entry for entry in listed}


def _with_entries(obj: Document, entries: dict[tuple[str, ...], ManagedFieldsEntry]) -> Document:
    order: Callable[[ManagedFieldsEntry], tuple[str, ...]] = lambda e: (  # noqa: E731 - a name for the order
        e.writer.operation,
        e.time,
        e.writer.manager,
        e.writer.api_version,
        e.writer.subresource,
    )
    listed = [entry.to_document() for entry in sorted(entries.values(), key=order)]
    return obj | {
        "metadata": _without_entries(obj)["metadata"]
        | ({"managedFields": listed} if listed else {})
    }


def _without_entries(obj: Document) -> Document:
    metadata = {
        name: value
        for name, value in (obj.get("metadata") or {}).items()
        if name != "managedFields"
    }
    return obj | {"metadata": metadata}


def _conflict(
    losing: list[tuple[ManagedFieldsEntry, frozenset[Path]]],
) -> status_errors.StatusError:
    pairs = [
        (_named(entry), fields.shown(path))
        for entry, owned in losing
        for path in sorted(owned, key=fields.order)
    ]
    causes = [
        status_errors.Cause("FieldManagerConflict", f"conflict with {name}", path)
        for name, path in pairs
    ]
    if len(pairs) == 1:
        name, path = pairs[0]
        return status_errors.apply_conflict(
            causes, f"Apply failed with 1 conflict: conflict with {name}: {path}"
        )
    lines: list[str] = []
    for name in sorted({name for name, _ in pairs}):
        lines += [
            f"conflicts with {name}:",
            *(f"- {path}" for other, path in pairs if other == name),
        ]
    return status_errors.apply_conflict(
        causes, f"Apply failed with {len(pairs)} conflicts: {chr(10).join(lines)}"
    )


def _named(entry: ManagedFieldsEntry) -> str:
    writer = entry.writer
    name = f'"{writer.manager}"' + (
        f' with subresource "{writer.subresource}"' if writer.subresource else ""
    )
    if writer.operation != "Update":
        return name
    return f"{name} using {writer.api_version}"
