"""The form in which the API server keeps each of our slices.

An API server silently drops fields that it does not know or whose feature gate is off. A slice that
differs from the desired one only by such fields must not be written again, or it would be written
forever.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import ResourceSlice

from . import pool


class StoredForms:
    """The known stored forms of our slices, by the slice's name.

    A slice is verified once we have seen how the API server stores it. `forms` has the pair (sent,
    stored) for each slice that is stored otherwise than it was sent. The pair may stay when the
    slice is deleted: it says something about what was sent, and not about the slice.
    """

    def __init__(self) -> None:
        self.forms: dict[str, tuple[Document, Document]] = {}
        self.verified: set[str] = set()

    def learn(self, sent: ResourceSlice, result: Document) -> list[str]:
        """Remembers how the API server has stored a slice.

        Returns the paths of the fields that it did not keep as sent.
        """
        name = sent.metadata.name
        desired, stored = pool.body(sent.spec), pool.body(result["spec"])
        self.verified.add(name)
        self.forms.pop(name, None)
        if desired == stored:
            return []

        self.forms[name] = (desired, stored)
        return pool.differences(desired, stored)

    def could_be_stored_form(self, slice_: ResourceSlice, current: Document) -> bool:
        """Returns True if `current` may be the stored form of this very slice.

        Only the API server can tell for sure. It needs to be asked once for each slice, and only if
        both have the same devices.
        """
        if slice_.metadata.name in self.verified:
            return False
        desired, stored = pool.body(slice_.spec), pool.body(current["spec"])
        return desired != stored and _device_names(desired) == _device_names(stored)


def _device_names(body: Document) -> list[str]:
    return [device["name"] for device in body.get("devices", [])]
