"""What every object's metadata has to be: name, labels, annotations, owners, finalizers."""

from __future__ import annotations

from collections.abc import Callable

from ....api.document import Document
from . import texts
from .causes import Causes

ANNOTATIONS = 256 * 1024
STANDARD = ("kubernetes", "orphan", "foregroundDeletion")
NOT_QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"
NO_NEW = "no new finalizers can be added if the object is being deleted, found new finalizers"
Names = Callable[[str], list[str]]


def check_new(causes: Causes, metadata: Document, names: Names) -> None:
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix:
        causes.texts(
            "metadata.generateName",
            prefix,
            names(prefix.rstrip("-.") if prefix[-1:] in "-." else prefix),
        )
    if not name:
        causes.required("metadata.name", "name or generateName is required")
    else:
        causes.texts("metadata.name", name, names(name))
    _check_rest(causes, metadata)


def check_change(causes: Causes, metadata: Document, before: Document, said: Document) -> None:
    """`said` is what the writer would have it be, before the system has its way."""
    if said.get("deletionTimestamp") not in (None, before.get("deletionTimestamp")):
        at, time = "metadata.deletionTimestamp", str(said["deletionTimestamp"])
        if causes.old:
            causes.literally(at, f"{time[:10]} {time[11:19]} +0000 UTC", "field is immutable")
        else:
            causes.invalid(at, time, "field is immutable")
    if "deletionTimestamp" in before:
        added = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            causes.forbidden("metadata.finalizers", f"{NO_NEW} []string{{{listed}}}")
    _check_rest(causes, metadata)


def _check_rest(causes: Causes, metadata: Document) -> None:
    check_labels(causes, metadata.get("labels") or {}, "metadata.labels")
    check_annotations(causes, metadata.get("annotations") or {}, "metadata.annotations")
    _check_owners(causes, metadata.get("ownerReferences") or [])
    finalizers = metadata.get("finalizers") or []
    for finalizer in finalizers:
        causes.texts("metadata.finalizers", finalizer, texts.qualified(finalizer))
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD:
            causes.invalid(f"metadata.finalizers[{index}]", finalizer, NOT_QUALIFIED)


def check_labels(causes: Causes, labels: dict[str, str], at: str) -> None:
    for name in sorted(labels):
        causes.texts(at, name, texts.qualified(name))
        causes.texts(at, labels[name], texts.label_value(labels[name]))


def check_annotations(causes: Causes, annotations: dict[str, str], at: str) -> None:
    for name in sorted(annotations):
        causes.texts(
            at,
            name,
            [text if causes.modern else _old(text) for text in texts.qualified(name.lower())],
        )
    if (
        sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
        > ANNOTATIONS
    ):
        causes.too_long(at, ANNOTATIONS)


def _old(text: str) -> str:
    return text.replace("a valid label key", "a qualified name")


def _check_owners(causes: Causes, owners: list[Document]) -> None:
    controllers = []
    for index, owner in enumerate(owners):
        at = (
            "metadata.ownerReferences"
            if not causes.modern
            else f"metadata.ownerReferences[{index}]"
        )
        absent = [name for name in ("kind", "name", "uid") if not owner.get(name)]
        absent = (
            absent if owner.get("apiVersion", "").rpartition("/")[2] else ["apiVersion", *absent]
        )
        for name in absent:
            if not causes.modern:
                called = "version " if name == "apiVersion" else f"{name} " if causes.old else ""
                causes.invalid(f"{at}.{name}", owner.get(name) or "", f"{called}must not be empty")
            else:
                causes.required(f"{at}.{name}", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    for other in controllers[1:]:
        listed = [{name: owner[name] for name in ORDER if name in owner} for owner in owners]
        why = "Only one reference can have Controller set to true."
        causes.invalid(
            "metadata.ownerReferences",
            listed,
            f'{why} Found "true" in references for {controllers[0]} and {other}',
        )


ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
