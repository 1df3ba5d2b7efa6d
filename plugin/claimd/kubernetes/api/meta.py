"""The parts of every Kubernetes object: metadata, owner references, conditions.

Only the fields that claimd reads or writes are here.
"""

from __future__ import annotations

import msgspec


class ApiStruct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """A part of a Kubernetes object.

    Unknown fields are dropped when it is decoded. An object that others may have written is
    therefore never written back whole, but patched or applied.
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
    """The type and the metadata of any object."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
