"""Validation of the metadata: name, labels, annotations, owners, finalizers."""

from __future__ import annotations

from collections.abc import Callable

from claimd.kubernetes.api.document import Document

from . import formats
from .field_errors import FieldErrors

ValidateName = Callable[[str], list[str]]

# The most bytes of all names and values.
MAX_ANNOTATIONS = 256 * 1024
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
OWNER_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
NOT_QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"
NO_NEW_FINALIZERS = (
    "no new finalizers can be added if the object is being deleted, found new finalizers"
)
ONE_CONTROLLER = "Only one reference can have Controller set to true."


def validate(errors: FieldErrors, metadata: Document, validate_name: ValidateName) -> None:
    """Checks the metadata of a new object. `validate_name` checks the name for the kind."""
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix:
        # The server appends letters, so the prefix may end with a character that a name may not.
        stem = prefix.rstrip("-.") if prefix[-1:] in "-." else prefix
        errors.each_invalid("metadata.generateName", prefix, validate_name(stem))
    if not name:
        errors.required("metadata.name", "name or generateName is required")
    else:
        errors.each_invalid("metadata.name", name, validate_name(name))
    _validate_rest(errors, metadata)


def validate_update(
    errors: FieldErrors, metadata: Document, before: Document, requested: Document
) -> None:
    """Validates the metadata of a changed object.

    `requested` is the metadata of the request, before the system's fields were restored.
    """
    uid = requested.get("uid")
    if uid not in (None, before["uid"]):
        errors.invalid("metadata.uid", uid, "field is immutable")
    time = requested.get("deletionTimestamp")
    if time is not None and time != before.get("deletionTimestamp"):
        _immutable_time(errors, "metadata.deletionTimestamp", str(time))

    # An object that is being deleted can only lose finalizers.
    if "deletionTimestamp" in before:
        finalizers = set(metadata.get("finalizers") or ())
        added = sorted(finalizers - set(before.get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            errors.forbidden("metadata.finalizers", f"{NO_NEW_FINALIZERS} []string{{{listed}}}")
    _validate_rest(errors, metadata)


def _immutable_time(errors: FieldErrors, path: str, time: str) -> None:
    """Adds the cause. Early releases printed times in Go's format."""
    if errors.is_early:
        text = f"{time[:10]} {time[11:19]} +0000 UTC"
        errors.invalid_literal(path, text, "field is immutable")
    else:
        errors.invalid(path, time, "field is immutable")


def _validate_rest(errors: FieldErrors, metadata: Document) -> None:
    validate_labels(errors, metadata.get("labels") or {}, "metadata.labels")
    validate_annotations(errors, metadata.get("annotations") or {}, "metadata.annotations")
    _validate_owners(errors, metadata.get("ownerReferences") or [])
    finalizers, path = metadata.get("finalizers") or [], "metadata.finalizers"
    for finalizer in finalizers:
        errors.each_invalid(path, finalizer, formats.qualified_name(finalizer))
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            errors.invalid(f"{path}[{index}]", finalizer, NOT_QUALIFIED)


def validate_labels(errors: FieldErrors, labels: dict[str, str], path: str) -> None:
    for name in sorted(labels):
        errors.each_invalid(path, name, formats.qualified_name(name))
        errors.each_invalid(path, labels[name], formats.label_value(labels[name]))


def validate_annotations(errors: FieldErrors, annotations: dict[str, str], path: str) -> None:
    for name in sorted(annotations):
        problems = formats.qualified_name(name.lower())
        if not errors.has_declarative_validation:
            problems = [why.replace("a valid label key", "a qualified name") for why in problems]
        errors.each_invalid(path, name, problems)

    size = sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
    if size > MAX_ANNOTATIONS:
        errors.too_long(path, MAX_ANNOTATIONS)


# ---------------------------------------------------------------- owners


def _validate_owners(errors: FieldErrors, owners: list[Document]) -> None:
    path = "metadata.ownerReferences"
    controllers = []
    for index, owner in enumerate(owners):
        item_path = f"{path}[{index}]" if errors.has_declarative_validation else path
        _validate_owner(errors, owner, item_path)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")

    for other in controllers[1:]:
        listed = [_known_fields(owner) for owner in owners]
        both = f'Found "true" in references for {controllers[0]} and {other}'
        errors.invalid(path, listed, f"{ONE_CONTROLLER} {both}")


def _known_fields(owner: Document) -> Document:
    return {name: owner[name] for name in OWNER_FIELDS if name in owner}


def _validate_owner(errors: FieldErrors, owner: Document, path: str) -> None:
    empty = [name for name in ("kind", "name", "uid") if not owner.get(name)]
    if not owner.get("apiVersion", "").rpartition("/")[2]:
        empty.insert(0, "apiVersion")
    for name in empty:
        if errors.has_declarative_validation:
            errors.required(f"{path}.{name}", "must not be empty")
            continue

        # Earlier releases named some of the fields in the message, and the first ones named all.
        named = ""
        if name == "apiVersion":
            named = "version "
        elif errors.is_early:
            named = f"{name} "
        errors.invalid(f"{path}.{name}", owner.get(name) or "", f"{named}must not be empty")
