"""A kind of object as the server stores it: its resource, storage version and subresources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from claimd.kubernetes.api.document import Document

from . import schema
from .resource import GroupResource
from .structure import Structure


@dataclass(frozen=True)
class Kind:
    resource: GroupResource
    # The storage version.
    version: str
    namespaced: bool
    # The status is a subresource. Writes of the object itself do not change it.
    has_status: bool
    has_generation: bool
    # The structural schemas by version. Only CustomResourceDefinitions and the kinds that they
    # define have them.
    structures: Mapping[str, Structure] = field(default_factory=dict, compare=False, repr=False)
    # The kind is defined by a CustomResourceDefinition.
    is_custom: bool = False
    # The paths of the scale's fields by version.
    scales: Mapping[str, Document] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.version}" if self.resource.group else self.version

    @property
    def schema(self) -> schema.Schema:
        if self.version in self.structures:
            return self.structures[self.version].schema
        return schema.kind_schema(self.resource.group, self.version, self.resource.kind)
