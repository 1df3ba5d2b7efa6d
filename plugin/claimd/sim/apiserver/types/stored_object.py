"""An object as it is stored, with what was written of it for those who asked."""

from __future__ import annotations

import copy
from typing import Any

from claimd.kubernetes.api.document import Document


class StoredObject(dict[str, Any]):
    """A document that nobody changes.

    `encoded` has its JSON by the form that versions write it in: many lists and watches send the
    same bytes, which nobody makes twice. It is None for what is not the latest of its name any
    more, of which nothing is kept.
    """

    __slots__ = ("encoded",)

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.encoded: dict[str, bytes] | None = {}

    def supersede(self) -> None:
        """Another one has taken its place."""
        self.encoded = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Document:
        """A document that may be changed."""
        return copy.deepcopy(dict(self), memo)
