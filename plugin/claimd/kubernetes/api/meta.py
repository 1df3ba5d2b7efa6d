"""What every Kubernetes object has: metadata, owner references, conditions.

Only the fields that we read or write.
"""

from __future__ import annotations

import msgspec


class ApiStruct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """A piece of a Kubernetes object.

    Unknown fields are ignored on the way in, so an object of others is never written back whole: it
    is patched or applied.
    """


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class Condition(ApiStruct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str


class PartialObject(ApiStruct, frozen=True, kw_only=True):
    """Any object, as far as its metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
