"""managedFields: who owns which field of an object, after an apply and after any other write.

`apply` is server-side apply; `update` is every other way of writing. Pure: the time is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import cast

from claimd.kubernetes.api.document import Document

from ..types import fields, status_errors
from ..types.fields import Path
from ..types.schema import Schema
from ..types.status_errors import Cause, StatusError

# What the system writes or every writer repeats: nobody owns it.
UNOWNED_METADATA = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
)
UNOWNED: frozenset[Path] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {("f:metadata", f"f:{name}") for name in UNOWNED_METADATA}
)


@dataclass(frozen=True)
class Manager:
    """Who writes and how; a subresource's writes have owners of their own."""

    name: str
    operation: str  # Apply, Update
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """An apply is the same one in every version; any other write is not."""
        version = self.api_version if self.operation == "Update" else ""
        return self.name, self.operation, version, self.subresource

    def __str__(self) -> str:
        """As conflicts name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text


@dataclass(frozen=True)
class ManagedFieldsEntry:
    manager: Manager
    owned: frozenset[Path]
    time: str

    @classmethod
    def of(cls, entry: Document) -> ManagedFieldsEntry:
        manager = Manager(
            entry.get("manager", ""),
            entry.get("operation", "Update"),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        tree = entry.get("fieldsV1")
        owned = fields.from_fields_v1(tree) if isinstance(tree, dict) else frozenset()
        return cls(manager, owned, entry.get("time", ""))

    def to_document(self) -> Document:
        manager = self.manager
        entry: Document = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
        }
        if self.time:
            entry["time"] = self.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields.to_fields_v1(self.owned)}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        return entry

    def order(self) -> tuple[str, ...]:
        """The order that entries stand in."""
        manager = self.manager
        return (
            manager.operation,
            self.time,
            manager.name,
            manager.api_version,
            manager.subresource,
        )


Entries = dict[tuple[str, ...], ManagedFieldsEntry]  # by the identity of their managers


def apply(
    schema: Schema, live: Document, config: Document, manager: Manager, force: bool, time: str
) -> Document:
    """The object after a server-side apply of the configuration.

    The configuration is laid over the object; what the manager applied last time, does not apply
    any more and nobody else owns goes. A field that another manager owns with another value is a
    conflict, which names each field and its owner. With `force`, the field changes hands.
    """
    entries = _entries(live) or _before_first_apply(schema, live, manager, time)
    last = entries.pop(manager.identity, None)
    applied = frozenset(fields.field_set(schema, config))

    result = fields.merge(schema, live, _without_managed_fields(config))
    if last:
        owners = [*(entry.owned for entry in entries.values()), applied]
        result = _prune(schema, result, owners, last.owned)

    changed, removed = _compare(schema, live, result)
    conflicts = [entry for entry in entries.values() if entry.owned & changed]
    if conflicts and not force:
        raise _conflict(conflicts, changed)

    entries = _disown(entries, changed | removed)
    result = fields.without_nulls(result)
    owned = _ownable(applied)
    if owned:
        # Who applies the same again is not remembered for when he did.
        since = time
        if _without_managed_fields(result) == _without_managed_fields(live):
            since = last.time if last else ""
        entries[manager.identity] = ManagedFieldsEntry(manager, owned, since)
    return _with_managed_fields(result, entries)


def update(schema: Schema, live: Document, new: Document, manager: Manager, time: str) -> Document:
    """The object after any other write: what it changed is the manager's, and nobody else's.

    A writer may change managedFields, too: where the new object has them, they count.
    """
    says_owners = "managedFields" in new.get("metadata", {})
    entries = _entries(new) if says_owners else _entries(live)
    changed, removed = _compare(schema, live, new)

    last = entries.pop(manager.identity, None)
    entries = _disown(entries, changed | removed)
    owned = ((last.owned if last else frozenset()) - removed) | changed
    if owned:
        since = last.time if last and not changed else time
        entries[manager.identity] = ManagedFieldsEntry(manager, owned, since)
    return _with_managed_fields(new, entries)


def _before_first_apply(schema: Schema, live: Document, manager: Manager, time: str) -> Entries:
    """Of what was there before anybody applied, the owner, if nobody is known to own it."""
    owned, _ = _compare(schema, {}, live)
    if not owned:
        return {}
    before = Manager("before-first-apply", "Update", manager.api_version)
    return {before.identity: ManagedFieldsEntry(before, owned, time)}


def _prune(
    schema: Schema, result: Document, owners: list[frozenset[Path]], last: frozenset[Path]
) -> Document:
    """Without what the manager applied last time and nobody owns now, not even itself.

    Two things keep it from being a difference of sets. Structs are owned through their fields, so
    that they count wherever a field of theirs does. And with an item of a list all that is in it
    goes, whoever wrote it: so what a removal leaves is looked at, not what it names.
    """

    def complete(paths: Collection[Path]) -> set[Path]:
        return fields.with_named_fields(schema, paths)

    def left_without(removed: set[Path]) -> set[Path]:
        left = fields.remove_items(schema, result, removed)
        return complete(fields.field_set(schema, left))

    present, applied_last = complete(fields.field_set(schema, result)), complete(last)
    owned = complete(frozenset().union(*owners))
    unowned = present - (left_without(applied_last) | owned)
    removed = (present - left_without(unowned)) & applied_last
    return cast(Document, fields.remove_items(schema, result, removed))


def _disown(entries: Entries, paths: frozenset[Path]) -> Entries:
    """Without these paths, and without whoever then owns nothing."""
    left: Entries = {}
    for identity, entry in entries.items():
        owned = entry.owned - paths
        if owned:
            left[identity] = replace(entry, owned=owned)
    return left


# ---------------------------------------------------------------- what can be owned


def _compare(
    schema: Schema, old: Document, new: Document
) -> tuple[frozenset[Path], frozenset[Path]]:
    """What was added or has another value, and what is gone, less what nobody owns."""
    changed, removed = fields.compare(schema, old, new)
    return _ownable(changed), _ownable(removed)


def _ownable(paths: Iterable[Path]) -> frozenset[Path]:
    # Lists of metadata count as one: there are no paths into managedFields.
    return frozenset(paths) - UNOWNED


# ---------------------------------------------------------------- entries of an object


def _entries(obj: Document) -> Entries:
    entries: Entries = {}
    for document in obj.get("metadata", {}).get("managedFields") or ():
        entry = ManagedFieldsEntry.of(document)
        entries[entry.manager.identity] = entry
    return entries


def _with_managed_fields(obj: Document, entries: Entries) -> Document:
    obj = _without_managed_fields(obj)
    if entries:
        ordered = sorted(entries.values(), key=ManagedFieldsEntry.order)
        obj["metadata"]["managedFields"] = [entry.to_document() for entry in ordered]
    return obj


def _without_managed_fields(obj: Document) -> Document:
    """Another object with other metadata, whatever was in it."""
    metadata = dict(obj.get("metadata") or {})
    metadata.pop("managedFields", None)
    return obj | {"metadata": metadata}


# ---------------------------------------------------------------- conflicts


def _conflict(entries: list[ManagedFieldsEntry], changed: frozenset[Path]) -> StatusError:
    by_manager: dict[str, list[str]] = {}
    causes = []
    for entry in entries:
        manager = str(entry.manager)
        for path in sorted(entry.owned & changed, key=fields.conflict_order):
            field = fields.path_text(path)
            by_manager.setdefault(manager, []).append(field)
            causes.append(Cause("FieldManagerConflict", f"conflict with {manager}", field))

    if len(causes) == 1:
        conflict = f"{causes[0].message}: {causes[0].field}"
        return status_errors.apply_conflict(causes, f"Apply failed with 1 conflict: {conflict}")
    lines = []
    for manager in sorted(by_manager):
        lines.append(f"conflicts with {manager}:")
        lines += [f"- {field}" for field in by_manager[manager]]
    listed = "\n".join(lines)
    return status_errors.apply_conflict(
        causes, f"Apply failed with {len(causes)} conflicts: {listed}"
    )
