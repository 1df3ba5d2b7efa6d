"""The controllers of CustomResourceDefinitions: they accept names, and serve and remove kinds.

A real server has controllers for this. Here it happens as soon as a definition has changed, before
the next request can see the change.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..catalog import Catalog
from ..custom import definitions
from ..custom.strategies import CLEANUP
from ..kinds import ApiResource
from ..types.options import DeleteOptions, WriteOptions
from ..types.resource import DEFINITIONS, GroupResource
from .registry import Registry
from .store import Change

WRITE = WriteOptions(field_manager="kube-apiserver")
WRITE_STATUS = WriteOptions(field_manager="kube-apiserver", subresource="status")

# The parts of the names in the order of their checks, and the reason of a conflict for each.
NAMES = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "shortNames": "ShortNamesConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}


class Definitions:
    """The controller of all definitions."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry, self._catalog = registry, catalog
        self._kind = catalog.kind(DEFINITIONS.plural, DEFINITIONS.group)
        # The resources of each definition by its name, with the state that they were built from.
        self._built: dict[str, tuple[str, dict[str, ApiResource]]] = {}
        # The resources whose definitions are being deleted.
        self._ending: set[GroupResource] = set()

    def concerns(self, change: Change) -> bool:
        """Returns True if a change makes a call of `reconcile` necessary."""
        if change.resource == DEFINITIONS:
            return True
        return change.new is None and change.resource in self._ending

    def reconcile(self) -> None:
        """Serves the kinds of all definitions. May be repeated at any time."""
        for definition in self._all():
            self._accept(definition)

        # Deletion comes last: an object can be deleted only while its kind is served.
        self._serve()
        for definition in self._all():
            if "deletionTimestamp" in definition["metadata"]:
                self._end(definition)

    def _all(self) -> list[Document]:
        """Returns the definitions, older ones first, so that the first user of a name keeps it."""
        items = self._registry.store.page(DEFINITIONS).items
        return sorted(items, key=lambda each: each["metadata"]["creationTimestamp"])

    # ------------------------------------------------------------ names

    def _accept(self, definition: Document) -> None:
        """Writes the accepted names and the conditions into the status, if they have changed."""
        status = definition["status"]
        wanted, accepted = definition["spec"]["names"], dict(status.get("acceptedNames") or {})
        reason, message = "NoConflicts", "no conflicts found"

        # A name that another definition uses is refused. The name that was accepted before stays.
        taken = self._names_in_use(definition)
        for part, conflict in NAMES.items():
            words = wanted.get(part) or []
            words = [words] if isinstance(words, str) else words
            in_use = [word for word in words if word in taken]
            if in_use and wanted.get(part) != accepted.get(part):
                reason, message = conflict, f'"{in_use[0]}" is already in use'
            elif wanted.get(part):
                accepted[part] = wanted[part]
            else:
                accepted.pop(part, None)

        # Categories may be shared, so they never conflict.
        accepted.pop("categories", None)
        if wanted.get("categories"):
            accepted["categories"] = wanted["categories"]

        is_accepted = reason == "NoConflicts"
        was_established = definitions.is_true(definition, "Established")
        conditions = list(status.get("conditions") or ())
        names_accepted = ("NamesAccepted", is_accepted, reason, message)
        conditions = self._with_condition(conditions, *names_accepted)

        # A definition that was established once stays so, whatever its new names are.
        if is_accepted or was_established:
            why = ("InitialNamesAccepted", "the initial names have been accepted")
            conditions = self._with_condition(conditions, "Established", True, *why)
        else:
            why = ("NotAccepted", "not all names are accepted")
            conditions = self._with_condition(conditions, "Established", False, *why)

        if "deletionTimestamp" in definition["metadata"]:
            why = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
            conditions = self._with_condition(conditions, "Terminating", True, *why)

        new_status = status | {"conditions": conditions, "acceptedNames": accepted}
        if new_status != status:
            new = definition | {"status": new_status}
            name = definition["metadata"]["name"]
            self._registry.update(self._kind, "", name, new, WRITE_STATUS)

    def _names_in_use(self, definition: Document) -> set[str]:
        """Returns the names that other definitions of the group use."""
        taken: set[str] = set()
        for other in self._all():
            is_same = other["metadata"]["name"] == definition["metadata"]["name"]
            if is_same or other["spec"]["group"] != definition["spec"]["group"]:
                continue
            names = (other.get("status") or {}).get("acceptedNames") or {}
            for part in NAMES:
                words = names.get(part) or []
                taken.update([words] if isinstance(words, str) else words)
        return taken - {""}

    def _with_condition(
        self, conditions: list[Document], of_type: str, holds: bool, reason: str, message: str
    ) -> list[Document]:
        """Returns the conditions with this one in its old place.

        Its transition time changes only if its status does.
        """
        status = "True" if holds else "False"
        condition = {
            "lastTransitionTime": self._registry.now(),
            "message": message,
            "reason": reason,
            "status": status,
            "type": of_type,
        }
        for index, each in enumerate(conditions):
            if each["type"] != of_type:
                continue
            # The transition time is that of the status, not of the reason.
            if each["status"] == status:
                condition["lastTransitionTime"] = each["lastTransitionTime"]
            return [*conditions[:index], condition, *conditions[index + 1 :]]
        return [*conditions, condition]

    # ------------------------------------------------------------ kinds

    def _serve(self) -> None:
        """Hands the resources of all established definitions to the catalog."""
        built_in = {kind.resource for kind in self._catalog.kinds if not kind.is_custom}
        served: list[dict[str, ApiResource]] = []
        self._ending = set()
        for definition in self._all():
            if not definitions.is_true(definition, "Established"):
                continue
            resource = _resource(definition)
            # A definition cannot take the place of a built-in kind.
            if resource in built_in:
                continue
            served.append(self._api_resources(definition))
            if "deletionTimestamp" in definition["metadata"]:
                self._ending.add(resource)
        self._catalog.serve(served)

    def _api_resources(self, definition: Document) -> dict[str, ApiResource]:
        """Returns the resources of a definition.

        They are built again only if the definition has changed, because that takes long for a large
        schema.
        """
        metadata = definition["metadata"]
        ends = "deletionTimestamp" in metadata
        state = f"{metadata['uid']}/{metadata['generation']}/{ends}"
        known = self._built.get(metadata["name"])
        if known is None or known[0] != state:
            known = self._built[metadata["name"]] = state, definitions.api_resources(definition)
        return known[1]

    def _end(self, definition: Document) -> None:
        """Deletes the objects of the kind, and removes the definition's finalizer when all are
        gone.
        """
        resource, store = _resource(definition), self._registry.store
        objects = store.page(resource).items
        if objects:
            kind = definitions.kind_of(definition)
            for obj in objects:
                metadata = obj["metadata"]
                if "deletionTimestamp" not in metadata:
                    namespace, name = metadata.get("namespace", ""), metadata["name"]
                    self._registry.delete(kind, namespace, name, DeleteOptions())

        finalizers = definition["metadata"].get("finalizers") or []
        if store.page(resource).items or CLEANUP not in finalizers:
            return

        metadata = dict(definition["metadata"])
        metadata["finalizers"] = [name for name in finalizers if name != CLEANUP]
        gone = definition | {"metadata": metadata}
        self._registry.update(self._kind, "", metadata["name"], gone, WRITE)


def _resource(definition: Document) -> GroupResource:
    spec = definition["spec"]
    return GroupResource(spec["names"]["plural"], spec["group"], spec["names"]["kind"])
