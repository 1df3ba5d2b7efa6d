"""The core API's nodes and pods, as far as the allocator reads them. No behaviour."""

from __future__ import annotations

from .meta import ObjectMeta, Wire


class NodeSelectorRequirement(Wire, frozen=True, kw_only=True):
    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: list[str] = []


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Wire, frozen=True, kw_only=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class NodeStatus(Wire, frozen=True, kw_only=True):
    declared_features: list[str] = []
    allocatable: dict[str, str] = {}


class Node(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    status: NodeStatus = NodeStatus()


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    requests: dict[str, str] = {}


class Container(Wire, frozen=True, kw_only=True):
    name: str = ""
    restart_policy: str | None = None
    resources: ResourceRequirements = ResourceRequirements()


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(Wire, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None


class NodeAffinity(Wire, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Wire, frozen=True, kw_only=True):
    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    init_containers: list[Container] = []
    containers: list[Container] = []
    resource_claims: list[PodResourceClaim] = []


class PodStatus(Wire, frozen=True, kw_only=True):
    resource_claim_statuses: list[PodResourceClaimStatus] = []


class Pod(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
