"""What several controllers ask of an object. Plain data in the shape of the API."""

from __future__ import annotations

from collections.abc import Mapping

from ...api.document import Document

World = Mapping[str, Mapping[str, Document]]  # by kind in the plural, then by namespace/name


def has_ended(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_done(pod: Document) -> bool:
    """It will not run any more, and no kubelet has anything of it."""
    return has_ended(pod) or bool(
        pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName")
    )


def owner(api_version: str, kind: str, obj: Document) -> Document:
    """A reference to the object as the controller of another."""
    metadata = obj["metadata"]
    reference = {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return reference | {"controller": True}


def owned_by(obj: Document, controller: Document) -> bool:
    uid = controller["metadata"]["uid"]
    return any(
        one.get("controller") and one["uid"] == uid
        for one in obj["metadata"].get("ownerReferences") or ()
    )
