"""The nodes and pods of the core API, with the fields that the allocator reads."""

from __future__ import annotations

import msgspec

from .meta import ApiStruct, ObjectMeta


class NodeSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: list[str] = []


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class NodeSystemInfo(ApiStruct, frozen=True, kw_only=True):
    kubelet_version: str = ""


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    declared_features: list[str] = []
    allocatable: dict[str, str] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    status: NodeStatus = NodeStatus()


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    requests: dict[str, str] = {}


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class Container(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    ports: list[ContainerPort] = []
    restart_policy: str | None = None
    resources: ResourceRequirements = ResourceRequirements()


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(ApiStruct, frozen=True, kw_only=True):
    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    init_containers: list[Container] = []
    containers: list[Container] = []
    resource_claims: list[PodResourceClaim] = []


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    resource_claim_statuses: list[PodResourceClaimStatus] = []


class Pod(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
