"""Garbage collection by owner references, which a controller does in a real cluster.

It works in passes. A pass does everything that is due and returns the number of its writes. The
next pass sees their effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claimd.kubernetes.api.document import Document

from ..types.kind import Kind
from ..types.options import DeleteOptions, WriteOptions
from ..types.status_errors import StatusError
from .deletion import FOREGROUND, ORPHAN
from .registry import Registry

WRITE = WriteOptions(field_manager="kube-controller-manager")


def collect(registry: Registry, kinds: Sequence[Kind]) -> int:
    """Runs one pass. Returns the number of objects that were changed or deleted.

    The caller repeats it until the number is 0.
    """
    return _Pass(registry, kinds).run()


class _Pass:
    """One pass over all objects as they are at its start."""

    def __init__(self, registry: Registry, kinds: Sequence[Kind]) -> None:
        self._registry = registry
        self._objects: list[tuple[Kind, Document]] = []
        for kind in kinds:
            for obj in registry.store.page(kind.resource).items:
                self._objects.append((kind, obj))
        self._by_uid = {obj["metadata"]["uid"]: obj["metadata"] for _, obj in self._objects}

    def run(self) -> int:
        done = 0
        for kind, obj in self._objects:
            try:
                if "deletionTimestamp" in obj["metadata"]:
                    done += self._release(kind, obj)
                elif obj["metadata"].get("ownerReferences"):
                    done += self._follow_owners(kind, obj)
            except StatusError as error:
                if error.code not in (404, 409):
                    raise
                # The object has changed since this pass began. The next pass sees the change.
                done += 1
        return done

    def _follow_owners(self, kind: Kind, obj: Document) -> int:
        """Deletes the object if all its owners are gone or wait for their dependents."""
        metadata = obj["metadata"]
        waited_for = False
        for reference in metadata["ownerReferences"]:
            owner = self._by_uid.get(reference.get("uid", ""))
            if owner is None:
                continue
            # An owner with this finalizer is being deleted and waits for its dependents.
            if FOREGROUND not in (owner.get("finalizers") or ()):
                return 0
            waited_for = True

        # If an owner waits, dependents of this object must be gone before the object itself.
        policy = "Foreground" if waited_for else "Background"
        options = DeleteOptions(uid=metadata["uid"], propagation_policy=policy)
        self._registry.delete(kind, metadata.get("namespace", ""), metadata["name"], options)
        return 1

    def _release(self, kind: Kind, obj: Document) -> int:
        """Removes our finalizers once their work is done."""
        finalizers = obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            return self._orphan(kind, obj)
        if FOREGROUND in finalizers and not self._is_blocked(obj):
            self._remove_finalizer(kind, obj, FOREGROUND)
            return 1
        return 0

    def _orphan(self, kind: Kind, owner: Document) -> int:
        """Removes the owner reference from all dependents, then the finalizer from their owner."""
        uid = owner["metadata"]["uid"]
        dependents = self._dependents(uid)
        for dependent_kind, dependent in dependents:
            references = dependent["metadata"]["ownerReferences"]
            others = [reference for reference in references if reference.get("uid") != uid]
            self._set_metadata(dependent_kind, dependent, "ownerReferences", others)
        self._remove_finalizer(kind, owner, ORPHAN)
        return 1 + len(dependents)

    def _is_blocked(self, owner: Document) -> bool:
        """Returns True if a dependent with blockOwnerDeletion still exists."""
        uid = owner["metadata"]["uid"]
        for _, dependent in self._dependents(uid):
            for reference in dependent["metadata"]["ownerReferences"]:
                if reference.get("uid") == uid and reference.get("blockOwnerDeletion"):
                    return True
        return False

    def _dependents(self, uid: str) -> list[tuple[Kind, Document]]:
        dependents = []
        for kind, obj in self._objects:
            references = obj["metadata"].get("ownerReferences") or ()
            if any(reference.get("uid") == uid for reference in references):
                dependents.append((kind, obj))
        return dependents

    def _remove_finalizer(self, kind: Kind, obj: Document, finalizer: str) -> None:
        finalizers = [name for name in obj["metadata"]["finalizers"] if name != finalizer]
        self._set_metadata(kind, obj, "finalizers", finalizers)

    def _set_metadata(self, kind: Kind, obj: Document, field: str, values: list[Any]) -> None:
        metadata = {name: value for name, value in obj["metadata"].items() if name != field}
        if values:
            metadata[field] = values
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        self._registry.update(kind, namespace, name, obj | {"metadata": metadata}, WRITE)
