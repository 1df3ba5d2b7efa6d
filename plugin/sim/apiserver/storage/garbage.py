"""Garbage collection by owner references: what a controller does for the API server, one look at a
time.

A look does what is due and says whether there was anything; the next one sees what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....api.document import Document
from ..types import status_errors
from ..types.kind import Kind
from ..types.options import DeleteOptions, WriteOptions
from .registry import FOREGROUND, ORPHAN, Registry

WRITE = WriteOptions(field_manager="kube-controller-manager")


def collect(registry: Registry, kinds: Sequence[Kind]) -> int:
    """How many objects were changed or deleted."""
    found = [(kind, obj) for kind in kinds for obj in registry.store.page(kind.resource).items]
    there = {obj["metadata"]["uid"]: obj["metadata"] for _, obj in found}
    done = 0
    for kind, obj in found:
        try:
            if "deletionTimestamp" in obj["metadata"]:
                done += _let_go(registry, kind, obj, found)
            elif owners := obj["metadata"].get("ownerReferences"):
                done += _follow(
                    registry, kind, obj, [there.get(owner.get("uid", "")) for owner in owners]
                )
        except status_errors.StatusError as error:
            if error.code not in (404, 409):
                raise
            done += 1  # it has changed since this look began: the next one sees how
    return done


def _follow(registry: Registry, kind: Kind, obj: Document, owners: list[Document | None]) -> int:
    """An object goes when nobody is left who owns it, or who owns it is only waiting for it."""
    waiting = [owner for owner in owners if owner and FOREGROUND in (owner.get("finalizers") or ())]
    if any(owner and owner not in waiting for owner in owners):
        return 0
    metadata = obj["metadata"]
    options = DeleteOptions(
        uid=metadata["uid"], propagation_policy="Foreground" if waiting else "Background"
    )
    registry.delete(kind, metadata.get("namespace", ""), metadata["name"], options)
    return 1


def _let_go(
    registry: Registry, kind: Kind, obj: Document, found: Sequence[tuple[Kind, Document]]
) -> int:
    """The finalizers that are ours: orphans are set free, and who waits for its dependents goes
    after the last.
    """
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or []
    dependents = list(_owned_by(metadata["uid"], found))
    if ORPHAN in finalizers:
        for other, dependent in dependents:
            owners = [
                o
                for o in dependent["metadata"]["ownerReferences"]
                if o.get("uid") != metadata["uid"]
            ]
            _with(registry, other, dependent, "ownerReferences", owners)
        _with(registry, kind, obj, "finalizers", [name for name in finalizers if name != ORPHAN])
        return 1 + len(dependents)
    blocking = [
        d
        for _, d in dependents
        if any(_blocks(owner, metadata["uid"]) for owner in d["metadata"]["ownerReferences"])
    ]
    if FOREGROUND in finalizers and not blocking:
        _with(
            registry, kind, obj, "finalizers", [name for name in finalizers if name != FOREGROUND]
        )
        return 1
    return 0


def _owned_by(uid: str, found: Sequence[tuple[Kind, Document]]) -> Iterator[tuple[Kind, Document]]:
    for kind, obj in found:
        if any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences") or ()):
            yield kind, obj


def _blocks(owner: Document, uid: str) -> bool:
    return owner.get("uid") == uid and bool(owner.get("blockOwnerDeletion"))


def _with(registry: Registry, kind: Kind, obj: Document, name: str, values: list[Any]) -> None:
    metadata = {part: value for part, value in obj["metadata"].items() if part != name}
    new = obj | {"metadata": metadata | ({name: values} if values else {})}
    registry.update(kind, metadata.get("namespace", ""), metadata["name"], new, WRITE)
