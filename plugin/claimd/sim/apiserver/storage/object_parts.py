"""The parts of an object that a writer may change, and those that it may not.

The module is pure.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..types.kind import Kind

# Fields that only the system changes, whatever a client sends.
SYSTEM_METADATA = (
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "namespace",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
# Groups whose kinds take metadata from a write of the status, too.
STATUS_TAKES_METADATA = ("apps", "batch")
IDENTITY = ("name", "namespace", "uid", "resourceVersion")


def with_type_meta(kind: Kind, obj: Document) -> Document:
    """Returns the object with the apiVersion and kind of `kind` as its first fields."""
    type_meta = {"apiVersion": kind.api_version, "kind": kind.resource.kind}
    return type_meta | drop_fields(obj, "apiVersion", "kind")


def drop_fields(obj: Document, *names: str) -> Document:
    return {name: value for name, value in obj.items() if name not in names}


def writable(kind: Kind, obj: Document, subresource: str) -> Document:
    """Returns the part of an object that a request writes.

    A write to a subresource has the status and the fields that identify the object. Any other write
    has the rest.
    """
    if not subresource:
        return drop_fields(obj, "status") if kind.has_status else dict(obj)
    metadata = obj["metadata"]
    part: Document = {name: obj[name] for name in ("apiVersion", "kind", "status") if name in obj}
    part["metadata"] = {name: metadata[name] for name in IDENTITY if name in metadata}
    return part


def carry_over(kind: Kind, old: Document, new: Document, subresource: str) -> Document:
    """Returns the new object with the old values of all parts that this request may not change."""
    if subresource == "status":
        if kind.resource.group in STATUS_TAKES_METADATA:
            return _with_status(old, new) | {"metadata": _with_system_metadata(kind, old, new)}
        return _with_status(old, new)

    # The finalizers in a namespace's spec change only through its `finalize` subresource.
    if kind.resource.kind == "Namespace" and subresource != "finalize":
        new = new | {"spec": old.get("spec") or {}}

    new = new | {"metadata": _with_system_metadata(kind, old, new, "")}

    if kind.has_status:
        new = drop_fields(new, "status")
        if "status" in old:
            new["status"] = old["status"]
    return new


def _with_system_metadata(
    kind: Kind, old: Document, new: Document, subresource: str = "status"
) -> Document:
    """Returns the new metadata with the old values of the system's fields.

    A write of a Deployment's status does not change the labels either.
    """
    before, metadata = old["metadata"], dict(new["metadata"])
    unchangeable: tuple[str, ...] = SYSTEM_METADATA
    if subresource and kind.resource.kind == "Deployment":
        unchangeable = (*SYSTEM_METADATA, "labels")
    for name in unchangeable:
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    return metadata


def _with_status(old: Document, new: Document) -> Document:
    """Returns the old object with the status and managedFields of the new one."""
    result = drop_fields(old, "status")
    if "managedFields" in new["metadata"]:
        entries = new["metadata"]["managedFields"]
        result["metadata"] = old["metadata"] | {"managedFields": entries}
    if "status" in new:
        result["status"] = new["status"]
    return result


def without_times(obj: Document) -> Document:
    """Returns the object without its resource version and the times of its managedFields."""
    metadata = dict(obj["metadata"])
    metadata.pop("resourceVersion", None)
    entries = metadata.get("managedFields", ())
    metadata["managedFields"] = [drop_fields(entry, "time") for entry in entries]
    return obj | {"metadata": metadata}
