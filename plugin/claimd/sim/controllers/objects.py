"""Helpers that several controllers share; they work on plain API objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from claimd.kubernetes.api.document import Document

Objects = Mapping[str, Mapping[str, Document]]  # by resource, then by namespace/name

# The alphabet of generated names, without vowels and look-alikes, as Kubernetes has it.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def status_of(obj: Document) -> Document:
    """Returns the object's status, or an empty dict if it has no status yet."""
    return obj.get("status") or {}


def is_terminating(obj: Document) -> bool:
    """Returns True if the object's deletion was requested."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def has_ended(pod: Document) -> bool:
    """Returns True if the pod has succeeded or failed."""
    return status_of(pod).get("phase") in ("Succeeded", "Failed")


def is_done(pod: Document) -> bool:
    """Returns True if the pod will not run any more and no kubelet still holds resources for it."""
    if has_ended(pod):
        return True
    return is_terminating(pod) and not pod["spec"].get("nodeName")


def controller_reference(api_version: str, kind: str, obj: Document) -> Document:
    """Returns an owner reference to the object as a controller."""
    metadata = obj["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def is_controlled_by(obj: Document, controller: Document) -> bool:
    uid = controller["metadata"]["uid"]
    references = obj["metadata"].get("ownerReferences") or ()
    return any(reference.get("controller") and reference["uid"] == uid for reference in references)


def group_of(pod: Document) -> str:
    """Returns the name of the pod's PodGroup, or an empty text."""
    return (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""


def includes(consumer: Document, pod: Document) -> bool:
    """Returns True if the consumer of a claim is the pod, or the pod's PodGroup."""
    if consumer["resource"] == "podgroups" and consumer["name"] == group_of(pod):
        return True
    return bool(consumer["uid"] == pod["metadata"]["uid"])


def tolerates(toleration: Document, taint: Document) -> bool:
    """Returns True if the toleration matches the taint of a node or device.

    An empty key or effect matches any.
    """
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def is_tolerated(taint: Document, tolerations: Iterable[Document]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def name_suffix(text: str, length: int) -> str:
    """Returns letters that look random but are always the same for the text.

    A retry therefore generates the same name, and does not create a second object.
    """
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)
