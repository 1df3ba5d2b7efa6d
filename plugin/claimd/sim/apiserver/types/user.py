"""The user that a request comes from. `access` finds out the user."""

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
        """Returns the user as a UserInfo."""
        user: Document = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            user["uid"] = self.uid
        if self.extra:
            user["extra"] = dict(self.extra)
        return user


@dataclass(frozen=True)
class ServerSecrets:
    """The secrets that a server must keep over a restart, so that its issued tokens stay valid."""

    admin_token: str
    signing_key: bytes

    @classmethod
    def new(cls) -> ServerSecrets:
        return cls(secrets.token_urlsafe(24), secrets.token_bytes(32))
