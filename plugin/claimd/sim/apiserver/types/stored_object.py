"""An object as it is stored, with its encoded forms."""

from __future__ import annotations

import copy
from typing import Any

from claimd.kubernetes.api.document import Document


class StoredObject(dict[str, Any]):
    """A document that must not be changed.

    `encoded` has its JSON by the API version of the answer. Many lists and watches send the same
    bytes, which are encoded only once. It is None for an object that has been superseded, because
    its bytes are not worth keeping.
    """

    __slots__ = ("encoded",)

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.encoded: dict[str, bytes] | None = {}

    def supersede(self) -> None:
        """Drops the encoded forms, because a newer version of the object is stored."""
        self.encoded = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Document:
        """Returns a plain document, which may be changed."""
        return copy.deepcopy(dict(self), memo)
