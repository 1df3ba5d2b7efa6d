"""The strategies of definitions and of custom resources. Those of other kinds are in `rules`."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..rules import metadata, strategies
from ..rules.field_errors import FieldErrors
from ..rules.profile import Profile
from ..rules.strategy import Context, Strategy
from ..types.kind import Kind
from ..types.resource import DEFINITIONS
from ..types.status_errors import Cause
from ..types.structure import Structure
from . import definitions, expressions, values

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
MOST_REPLICAS = 2**31 - 1


def choose_strategy(kind: Kind, release: str) -> Strategy:
    """Returns the strategy of a kind on a release."""
    if kind.is_custom:
        return CustomStrategy(kind, Profile(release))
    if kind.resource == DEFINITIONS:
        return DefinitionStrategy(kind.resource, kind.version, Profile(release))
    return strategies.choose_strategy(kind.resource, kind.version, release)


class ExtensionStrategy(Strategy):
    """The common part: updates need a resource version, and finalizers may have any name."""

    def allows_unconditional_update(self, api_version: str) -> bool:
        return False

    def validate(self, new: Document, context: Context) -> list[Cause]:
        return _without_finalizer_rules(super().validate(new, context))

    def validate_update(
        self,
        new: Document,
        old: Document,
        requested: Document,
        subresource: str,
        context: Context,
    ) -> list[Cause]:
        # A scale writes the spec, so it is validated as an update of the spec.
        part = "" if subresource == "scale" else subresource
        causes = super().validate_update(new, old, requested, part, context)
        return _without_finalizer_rules(causes)


class DefinitionStrategy(ExtensionStrategy):
    """The strategy of CustomResourceDefinitions."""

    @property
    def empty(self) -> Document:
        names = {"plural": "", "kind": ""}
        return {
            "spec": {"group": "", "names": names, "scope": "", "versions": None},
            "status": {"conditions": None, "acceptedNames": names, "storedVersions": None},
        }

    @property
    def deletion_finalizers(self) -> tuple[str, ...]:
        """The finalizer that keeps a definition until the objects of its kind are gone."""
        return (CLEANUP,)

    def with_defaults(self, obj: Document, context: Context) -> Document:
        return definitions.with_defaults(obj)

    def prepare_for_create(self, new: Document, context: Context) -> Document:
        return definitions.add_status(new, None)

    def prepare_for_update(
        self, new: Document, old: Document, subresource: str, context: Context
    ) -> Document:
        return new if subresource else definitions.add_status(new, old)

    def warnings(self, obj: Document) -> list[str]:
        return definitions.warnings(obj)

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        definitions.validate(errors, new, old)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        names = (new.get("status") or {}).get("acceptedNames") or {}
        definitions.validate_names(errors, names, "status.acceptedNames")


class CustomStrategy(ExtensionStrategy):
    """The strategy of custom resources."""

    def __init__(self, kind: Kind, profile: Profile) -> None:
        super().__init__(kind.resource, kind.version, profile)
        self._kind = kind

    def with_defaults(self, obj: Document, context: Context) -> Document:
        complete: Document = self._structure(context).with_defaults(obj)
        return complete

    def changes_generation(self, new: Document, old: Document) -> bool:
        """Returns True if anything but the metadata has changed.

        The status does not count if it is a subresource.
        """
        ignored = {"metadata", "apiVersion"} | ({"status"} if self._kind.has_status else set())
        before = {name: value for name, value in old.items() if name not in ignored}
        return before != {name: value for name, value in new.items() if name not in ignored}

    def warnings(self, obj: Document) -> list[str]:
        """Returns a warning for each finalizer whose name may conflict with other writers."""
        advice = "to avoid accidental conflicts with other finalizer writers"
        warned = []
        for finalizer in sorted(obj["metadata"].get("finalizers") or ()):
            if "/" in finalizer or finalizer in metadata.STANDARD_FINALIZERS:
                continue
            prefer = "prefer a domain-qualified finalizer name"
            if "." in finalizer:
                prefer += " including a path (/)"
            warned.append(f'metadata.finalizers: "{finalizer}": {prefer} {advice}')
        return warned

    def _structure(self, context: Context) -> Structure:
        """Returns the structure of the request's version, the only part that versions differ in."""
        trees = self._kind.structures
        return trees.get(context.version) or trees[self._kind.version]

    def _validate(
        self, errors: FieldErrors, new: Document, old: Document | None, context: Context
    ) -> None:
        structure = self._structure(context)
        before = values.ABSENT if old is None else old
        errors.causes += values.validate(structure, new, self.profile, before)
        self._validate_scale(errors, new, ("specReplicasPath", "statusReplicasPath"), context)
        self._validate_rest(errors, structure, new, before)

    def _validate_status(
        self, errors: FieldErrors, new: Document, old: Document, context: Context
    ) -> None:
        structure = self._structure(context)
        of_status = structure.properties.get("status")
        if of_status and "status" in new:
            before = old.get("status", values.ABSENT)
            found = values.validate(of_status, new["status"], self.profile, before)
            errors.causes += values.below("status", found)
        self._validate_scale(errors, new, ("statusReplicasPath",), context)
        self._validate_rest(errors, structure, new, old)

    def _validate_scale(
        self, errors: FieldErrors, new: Document, names: tuple[str, ...], context: Context
    ) -> None:
        """Checks that the fields that a scale shows are counts, even if the schema allows more."""
        scales = self._kind.scales
        paths = scales.get(context.version or self._kind.version)
        for name in names if paths else ():
            path = str((paths or {}).get(name) or "")
            replicas, problem = values.count_at(new, path)
            if problem:
                errors.invalid(path, 0, problem)
            elif replicas < 0:
                errors.invalid(path, replicas, "should be a non-negative integer")
            elif replicas > MOST_REPLICAS:
                errors.invalid(path, replicas, f"should be less than or equal to {MOST_REPLICAS}")

    def _validate_rest(
        self, errors: FieldErrors, structure: Structure, new: Document, old: object
    ) -> None:
        values.validate_embedded(errors, structure, new)
        had_duplicates = FieldErrors(self.profile)
        if old is not values.ABSENT:
            values.validate_lists(had_duplicates, structure, old)
        if not had_duplicates.causes:
            values.validate_lists(errors, structure, new)
        errors.causes += expressions.validate(structure, new, old, errors.causes)


def _without_finalizer_rules(causes: list[Cause]) -> list[Cause]:
    """Removes the causes about finalizers without a domain, which are allowed here."""
    return [cause for cause in causes if not cause.message.endswith(metadata.NOT_QUALIFIED)]
