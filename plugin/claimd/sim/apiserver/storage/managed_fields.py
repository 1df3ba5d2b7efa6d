"""The managedFields of an object: the owners of its fields after an apply and after other writes.

`apply` is server-side apply, and `update` is for every other write. The module is pure: the time is
a parameter.
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

# Fields that have no owner: the system writes them, or every writer repeats them.
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
    """A writer and its kind of write. Writes to a subresource have owners of their own."""

    name: str
    # Apply or Update.
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """The key of the manager's entry.

        An apply continues its earlier entry in any version, another write only in its own version.
        """
        version = self.api_version if self.operation == "Update" else ""
        return self.name, self.operation, version, self.subresource

    def __str__(self) -> str:
        """Returns the manager in the form of conflict messages."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text


@dataclass(frozen=True)
class ManagedFieldsEntry:
    """One entry: a manager, the fields that it owns, and the time of its last change."""

    manager: Manager
    owned: frozenset[Path]
    time: str

    @classmethod
    def from_document(cls, entry: Document) -> ManagedFieldsEntry:
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
        """Returns the sort key of the entries."""
        manager = self.manager
        return (
            manager.operation,
            self.time,
            manager.name,
            manager.api_version,
            manager.subresource,
        )


# The entries by the identities of their managers.
Entries = dict[tuple[str, ...], ManagedFieldsEntry]


def apply(
    schema: Schema, live: Document, config: Document, manager: Manager, force: bool, time: str
) -> Document:
    """Returns the object after a server-side apply of the configuration.

    The values of the configuration replace those of the object. A field is removed if the manager
    applied it last time, does not apply it now, and no other manager owns it. If another manager
    owns a field with another value, the apply raises a conflict that lists each such field and its
    owner. With `force` the field gets the new owner instead.
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
        # The time of an entry does not change if the apply has changed no field.
        since = time
        if _without_managed_fields(result) == _without_managed_fields(live):
            since = last.time if last else ""
        entries[manager.identity] = ManagedFieldsEntry(manager, owned, since)
    return _with_managed_fields(result, entries)


def update(schema: Schema, live: Document, new: Document, manager: Manager, time: str) -> Document:
    """Returns the object after a write that is no apply. The manager owns what it has changed.

    A writer may change managedFields, too. If the new object has them, they are the starting point.
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
    """Returns the entry for fields that existed before the first apply and have no known owner."""
    owned, _ = _compare(schema, {}, live)
    if not owned:
        return {}
    before = Manager("before-first-apply", "Update", manager.api_version)
    return {before.identity: ManagedFieldsEntry(before, owned, time)}


def _prune(
    schema: Schema, result: Document, owners: list[frozenset[Path]], last: frozenset[Path]
) -> Document:
    """Removes the fields that the manager applied last time and that have no owner now.

    Two rules make this more than a difference of sets. A struct is owned through its fields, so a
    struct counts where any of its fields does. And a removed list item takes along all fields in
    it, also those of other owners. So this function compares the documents that removals leave.
    """

    def complete(paths: Collection[Path]) -> set[Path]:
        return fields.with_named_fields(schema, paths)

    def paths_without(removed: set[Path]) -> set[Path]:
        rest = fields.remove_items(schema, result, removed)
        return complete(fields.field_set(schema, rest))

    present, applied_last = complete(fields.field_set(schema, result)), complete(last)
    owned = complete(frozenset().union(*owners))
    unowned = present - (paths_without(applied_last) | owned)
    removed = (present - paths_without(unowned)) & applied_last
    return cast(Document, fields.remove_items(schema, result, removed))


def _disown(entries: Entries, paths: frozenset[Path]) -> Entries:
    """Returns the entries without these paths, and without entries that then own none."""
    left: Entries = {}
    for identity, entry in entries.items():
        owned = entry.owned - paths
        if owned:
            left[identity] = replace(entry, owned=owned)
    return left


# ---------------------------------------------------------------- fields that can have an owner


def _compare(
    schema: Schema, old: Document, new: Document
) -> tuple[frozenset[Path], frozenset[Path]]:
    """Returns the ownable paths that were added or changed, and those that were removed."""
    changed, removed = fields.compare(schema, old, new)
    return _ownable(changed), _ownable(removed)


def _ownable(paths: Iterable[Path]) -> frozenset[Path]:
    # A list in the metadata is one path, so there are no paths into managedFields.
    return frozenset(paths) - UNOWNED


# ---------------------------------------------------------------- entries of an object


def _entries(obj: Document) -> Entries:
    entries: Entries = {}
    for document in obj.get("metadata", {}).get("managedFields") or ():
        entry = ManagedFieldsEntry.from_document(document)
        entries[entry.manager.identity] = entry
    return entries


def _with_managed_fields(obj: Document, entries: Entries) -> Document:
    obj = _without_managed_fields(obj)
    if entries:
        ordered = sorted(entries.values(), key=ManagedFieldsEntry.order)
        obj["metadata"]["managedFields"] = [entry.to_document() for entry in ordered]
    return obj


def _without_managed_fields(obj: Document) -> Document:
    """Returns a copy of the object whose metadata is a copy, too, without managedFields."""
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

    # A single conflict fits into one line. Several are grouped by manager.
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
