"""The parts of an object that writers have a say in, and those that stay as they are. Pure."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..types.kind import Kind

# What a client may say, and only the system changes.
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
# Groups whose kinds' metadata may be written together with the status.
STATUS_TAKES_METADATA = ("apps", "batch")
IDENTITY = ("name", "namespace", "uid", "resourceVersion")


def with_type_meta(kind: Kind, obj: Document) -> Document:
    """The object with its version and kind in front, whatever it said itself."""
    type_meta = {"apiVersion": kind.api_version, "kind": kind.resource.kind}
    return type_meta | without(obj, "apiVersion", "kind")


def without(obj: Document, *names: str) -> Document:
    return {name: value for name, value in obj.items() if name not in names}


def writable(kind: Kind, obj: Document, subresource: str) -> Document:
    """What a request may write: the status with what identifies the object, or the rest."""
    if not subresource:
        return without(obj, "status") if kind.has_status else dict(obj)
    metadata = obj["metadata"]
    part: Document = {name: obj[name] for name in ("apiVersion", "kind", "status") if name in obj}
    part["metadata"] = {name: metadata[name] for name in IDENTITY if name in metadata}
    return part


def carry_over(kind: Kind, old: Document, new: Document, subresource: str) -> Document:
    """The new object, with everything as it was that this request may not change."""
    if subresource == "status":
        if kind.resource.group in STATUS_TAKES_METADATA:
            return _with_status(old, new) | {"metadata": _with_system_metadata(kind, old, new)}
        return _with_status(old, new)
    if kind.resource.kind == "Namespace" and subresource != "finalize":
        new = new | {"spec": old.get("spec") or {}}

    new = new | {"metadata": _with_system_metadata(kind, old, new, "")}

    if kind.has_status:
        new = without(new, "status")
        if "status" in old:
            new["status"] = old["status"]
    return new


def _with_system_metadata(
    kind: Kind, old: Document, new: Document, subresource: str = "status"
) -> Document:
    """The new object's, with what is the system's as it was; and of a status what is not its."""
    before, metadata = old["metadata"], dict(new["metadata"])
    kept: tuple[str, ...] = SYSTEM_METADATA
    if subresource and kind.resource.kind == "Deployment":
        kept = (*SYSTEM_METADATA, "labels")
    for name in kept:
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    return metadata


def _with_status(old: Document, new: Document) -> Document:
    """The old object with the new status, and with the owners that the new one says."""
    result = without(old, "status")
    if "managedFields" in new["metadata"]:
        entries = new["metadata"]["managedFields"]
        result["metadata"] = old["metadata"] | {"managedFields": entries}
    if "status" in new:
        result["status"] = new["status"]
    return result


def without_times(obj: Document) -> Document:
    """Without when its fields were written, and in which version of the store."""
    metadata = dict(obj["metadata"])
    metadata.pop("resourceVersion", None)
    entries = metadata.get("managedFields", ())
    metadata["managedFields"] = [without(entry, "time") for entry in entries]
    return obj | {"metadata": metadata}
