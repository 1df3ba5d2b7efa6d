"""Who sends a request, once that is known; how it becomes known is in `access`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from claimd.kubernetes.api.document import Document


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    def to_document(self) -> Document:
        """As UserInfo."""
        user: Document = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            user["uid"] = self.uid
        if self.extra:
            user["extra"] = dict(self.extra)
        return user


@dataclass(frozen=True)
class ServerSecrets:
    """What a server must have again after a restart, or no token that is out there is good."""

    admin_token: str
    signing_key: bytes

    @classmethod
    def new(cls) -> ServerSecrets:
        return cls(secrets.token_urlsafe(24), secrets.token_bytes(32))
