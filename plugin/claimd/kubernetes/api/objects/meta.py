"""The types that the resource API shares with other APIs: metadata, conditions, node selectors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .model import Model
from .shapes import Amount, Keys, Unique

Quantity = Annotated[str, Amount()]


class OwnerReference(Model, kw_only=True):
    atomic = True
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Model, kw_only=True):
    manager: str | None = None
    operation: str | None = None
    api_version: str | None = None
    time: str | None = None
    fields_type: str | None = None
    fields_v1: Any = msgspec.field(name="fieldsV1", default=None)
    subresource: str | None = None


class ObjectMeta(Model, kw_only=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    self_link: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: Annotated[list[OwnerReference], Keys("uid")] | None = None
    finalizers: Annotated[list[str], Unique()] | None = None
    managed_fields: list[ManagedFieldsEntry] | None = None


class ShardInfo(Model, kw_only=True):
    selector: str


class ListMeta(Model, kw_only=True):
    self_link: str | None = None
    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)
    remaining_item_count: int | None = None
    shard_info: ShardInfo | None = None


class Object(Model, kw_only=True):
    """An object with a kind, which can be a document."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None


class ObjectList(Model, kw_only=True):
    """A list of objects of one kind."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ListMeta | None = None


class Condition(Model, kw_only=True):
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int | None = None


class NodeSelectorRequirement(Model, kw_only=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class NodeSelectorTerm(Model, kw_only=True):
    atomic = True
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Model, kw_only=True):
    atomic = True
    node_selector_terms: list[NodeSelectorTerm]
