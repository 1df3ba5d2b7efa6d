"""A kind of object as it is stored: its resource, its storage version, and which halves it has."""

from __future__ import annotations

from dataclasses import dataclass

from . import schema
from .resource import GroupResource


@dataclass(frozen=True)
class Kind:
    resource: GroupResource
    version: str  # the storage version
    namespaced: bool
    has_status: bool  # a subresource of its own, which alone writes the status
    has_generation: bool

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.version}" if self.resource.group else self.version

    @property
    def schema(self) -> schema.Schema:
        return schema.of_kind(self.resource.group, self.version, self.resource.kind)
