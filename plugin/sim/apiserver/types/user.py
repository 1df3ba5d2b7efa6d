"""Who asks, once it is known; and what a restart must find again to know them. How one becomes
known is in `access`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from ....api.document import Document


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    def to_document(self) -> Document:
        found: Document = {"username": self.name, "groups": list(self.groups)}
        found |= {"uid": self.uid} if self.uid else {}
        return found | ({"extra": dict(self.extra)} if self.extra else {})


@dataclass(frozen=True)
class Secrets:
    """What a restart must find again for the tokens that are out there to be good."""

    admin: str
    key: bytes

    @classmethod
    def new(cls) -> Secrets:
        return cls(secrets.token_urlsafe(24), secrets.token_bytes(32))
