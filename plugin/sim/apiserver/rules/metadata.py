"""What every object's metadata has to be: name, labels, annotations, owners, finalizers."""

from __future__ import annotations

from collections.abc import Callable

from ....api.document import Document
from . import texts
from .field_errors import FieldErrors

ANNOTATIONS = 256 * 1024
STANDARD = ("kubernetes", "orphan", "foregroundDeletion")
NOT_QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"
NO_NEW = "no new finalizers can be added if the object is being deleted, found new finalizers"
Names = Callable[[str], list[str]]


def check_new(errors: FieldErrors, metadata: Document, names: Names) -> None:
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix:
        errors.each_invalid(
            "metadata.generateName",
            prefix,
            names(prefix.rstrip("-.") if prefix[-1:] in "-." else prefix),
        )
    if not name:
        errors.required("metadata.name", "name or generateName is required")
    else:
        errors.each_invalid("metadata.name", name, names(name))
    _check_rest(errors, metadata)


def check_change(errors: FieldErrors, metadata: Document, before: Document, said: Document) -> None:
    """`said` is what the writer would have it be, before the system has its way."""
    if said.get("deletionTimestamp") not in (None, before.get("deletionTimestamp")):
        path, time = "metadata.deletionTimestamp", str(said["deletionTimestamp"])
        if errors.old:
            errors.invalid_literal(
                path, f"{time[:10]} {time[11:19]} +0000 UTC", "field is immutable"
            )
        else:
            errors.invalid(path, time, "field is immutable")
    if "deletionTimestamp" in before:
        added = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            errors.forbidden("metadata.finalizers", f"{NO_NEW} []string{{{listed}}}")
    _check_rest(errors, metadata)


def _check_rest(errors: FieldErrors, metadata: Document) -> None:
    check_labels(errors, metadata.get("labels") or {}, "metadata.labels")
    check_annotations(errors, metadata.get("annotations") or {}, "metadata.annotations")
    _check_owners(errors, metadata.get("ownerReferences") or [])
    finalizers = metadata.get("finalizers") or []
    for finalizer in finalizers:
        errors.each_invalid("metadata.finalizers", finalizer, texts.qualified(finalizer))
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD:
            errors.invalid(f"metadata.finalizers[{index}]", finalizer, NOT_QUALIFIED)


def check_labels(errors: FieldErrors, labels: dict[str, str], path: str) -> None:
    for name in sorted(labels):
        errors.each_invalid(path, name, texts.qualified(name))
        errors.each_invalid(path, labels[name], texts.label_value(labels[name]))


def check_annotations(errors: FieldErrors, annotations: dict[str, str], path: str) -> None:
    for name in sorted(annotations):
        errors.each_invalid(
            path,
            name,
            [text if errors.modern else _old(text) for text in texts.qualified(name.lower())],
        )
    if (
        sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
        > ANNOTATIONS
    ):
        errors.too_long(path, ANNOTATIONS)


def _old(text: str) -> str:
    return text.replace("a valid label key", "a qualified name")


def _check_owners(errors: FieldErrors, owners: list[Document]) -> None:
    controllers = []
    for index, owner in enumerate(owners):
        path = (
            "metadata.ownerReferences"
            if not errors.modern
            else f"metadata.ownerReferences[{index}]"
        )
        absent = [name for name in ("kind", "name", "uid") if not owner.get(name)]
        absent = (
            absent if owner.get("apiVersion", "").rpartition("/")[2] else ["apiVersion", *absent]
        )
        for name in absent:
            if not errors.modern:
                called = "version " if name == "apiVersion" else f"{name} " if errors.old else ""
                errors.invalid(
                    f"{path}.{name}", owner.get(name) or "", f"{called}must not be empty"
                )
            else:
                errors.required(f"{path}.{name}", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    for other in controllers[1:]:
        listed = [{name: owner[name] for name in ORDER if name in owner} for owner in owners]
        why = "Only one reference can have Controller set to true."
        errors.invalid(
            "metadata.ownerReferences",
            listed,
            f'{why} Found "true" in references for {controllers[0]} and {other}',
        )


ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
