"""A kind of object as it is stored: its resource, its storage version, and which halves it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from claimd.kubernetes.api.document import Document

from . import schema
from .resource import GroupResource
from .structure import Structure


@dataclass(frozen=True)
class Kind:
    resource: GroupResource
    version: str  # the storage version
    namespaced: bool
    has_status: bool  # a subresource of its own, which alone writes the status
    has_generation: bool
    # By version, of a kind that has them: those that definitions make, and definitions themselves.
    structures: Mapping[str, Structure] = field(default_factory=dict, compare=False, repr=False)
    is_custom: bool = False  # made by a definition
    # By version, the paths of the fields that its scale has.
    scales: Mapping[str, Document] = field(default_factory=dict, compare=False, repr=False)

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.version}" if self.resource.group else self.version

    @property
    def schema(self) -> schema.Schema:
        if self.version in self.structures:
            return self.structures[self.version].schema
        return schema.of_kind(self.resource.group, self.version, self.resource.kind)
