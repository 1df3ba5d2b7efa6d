"""A kind of object as it is kept: its resource, its version, and which halves it has."""

from __future__ import annotations

from dataclasses import dataclass

from . import schema
from .resource import GroupResource


@dataclass(frozen=True)
class Kind:
    resource: GroupResource
    version: str  # in which it is stored
    namespaced: bool = True
    status: bool = False  # the status is written through a subresource of its own
    generation: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.version}" if self.resource.group else self.version

    @property
    def schema(self) -> schema.Schema:
        return schema.of_kind(self.resource.group, self.version, self.resource.kind)
