"""What several controllers ask of an object. Plain data in the shape of the API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from claimd.kubernetes.api.document import Document

Objects = Mapping[str, Mapping[str, Document]]  # by resource, then by namespace/name

# Of generated names: no vowels, so that no words come of it, and nothing that looks like another.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def status_of(obj: Document) -> Document:
    """The status, empty where there is none yet."""
    return obj.get("status") or {}


def is_terminating(obj: Document) -> bool:
    """Whether its deletion was asked for."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def has_ended(pod: Document) -> bool:
    return status_of(pod).get("phase") in ("Succeeded", "Failed")


def is_done(pod: Document) -> bool:
    """Whether it will not run any more, and no kubelet has anything of it."""
    if has_ended(pod):
        return True
    return is_terminating(pod) and not pod["spec"].get("nodeName")


def controller_reference(api_version: str, kind: str, obj: Document) -> Document:
    """A reference to the object as the controller of another."""
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


def tolerates(toleration: Document, taint: Document) -> bool:
    """Of nodes and of devices: an empty key or effect stands for every one."""
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
    """Letters that look random and are always the same for the text.

    A name that is made with it is the same on a second try, which therefore makes no second object.
    """
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)
