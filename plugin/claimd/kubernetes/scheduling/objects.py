"""Nodes, pods and claims with the fields that a scheduler reads, in addition to the allocator's."""

from __future__ import annotations

from typing import Any

import msgspec

from ..api import core, meta, scheduling

# The API group of PodGroups.
GROUP = "scheduling.k8s.io"


class Meta(meta.ObjectMeta, frozen=True, kw_only=True):
    creation_timestamp: str = ""


class Namespace(meta.ApiStruct, frozen=True, kw_only=True):
    metadata: meta.ObjectMeta


class Taint(meta.ApiStruct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(meta.ApiStruct, frozen=True, kw_only=True):
    taints: list[Taint] = []
    unschedulable: bool = False


class Condition(meta.ApiStruct, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def explanation(self) -> str:
        """The message, or the reason or type of a condition without one."""
        return self.message or self.reason or self.type


class NodeStatus(core.NodeStatus, frozen=True, kw_only=True):
    conditions: list[Condition] = []


class Node(core.Node, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def readiness(self) -> str:
        """The status of the Ready condition. A node without this condition counts as ready."""
        for condition in self.status.conditions:
            if condition.type == "Ready":
                return condition.status
        return "True"


class Toleration(meta.ApiStruct, frozen=True, kw_only=True):
    key: str = ""
    # Exists or Equal; empty means Equal.
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(meta.ApiStruct, frozen=True, kw_only=True):
    name: str


class SchedulingGroup(meta.ApiStruct, frozen=True, kw_only=True):
    pod_group_name: str = ""


class Volume(meta.ApiStruct, frozen=True, kw_only=True):
    """The two kinds of volumes that restrict the choice of a node; only their presence counts."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class LabelSelectorRequirement(meta.ApiStruct, frozen=True, kw_only=True):
    key: str
    # In, NotIn, Exists or DoesNotExist.
    operator: str
    values: list[str] = []


class LabelSelector(meta.ApiStruct, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class PodAffinityTerm(meta.ApiStruct, frozen=True, kw_only=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(meta.ApiStruct, frozen=True, kw_only=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(meta.ApiStruct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class PreferredSchedulingTerm(meta.ApiStruct, frozen=True, kw_only=True):
    weight: int
    preference: core.NodeSelectorTerm


class NodeAffinity(core.NodeAffinity, frozen=True, kw_only=True):
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class Affinity(core.Affinity, frozen=True, kw_only=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TopologySpread(meta.ApiStruct, frozen=True, kw_only=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    # Honor or Ignore; empty means Honor for the affinity and Ignore for the taints.
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class PodSpec(core.PodSpec, frozen=True, kw_only=True):
    affinity: Affinity = Affinity()
    resources: core.ResourceRequirements = core.ResourceRequirements()
    volumes: list[Volume] = []
    topology_spread_constraints: list[TopologySpread] = []
    scheduler_name: str = ""
    scheduling_gates: list[SchedulingGate] = []
    scheduling_group: SchedulingGroup | None = None
    tolerations: list[Toleration] = []
    priority: int | None = None
    priority_class_name: str = ""
    # PreemptLowerPriority or Never; empty means PreemptLowerPriority.
    preemption_policy: str = ""
    overhead: dict[str, str] = {}


class ExtendedClaimStatus(meta.ApiStruct, frozen=True, kw_only=True):
    resource_claim_name: str = ""


class WaitingState(meta.ApiStruct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class TerminatedState(meta.ApiStruct, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(meta.ApiStruct, frozen=True, kw_only=True):
    waiting: WaitingState | None = None
    running: dict[str, Any] | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(meta.ApiStruct, frozen=True, kw_only=True):
    name: str
    ready: bool = False
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(core.PodStatus, frozen=True, kw_only=True):
    phase: str = ""
    # Why a pod has ended that its kubelet did not run, or stopped: OutOfcpu, DeadlineExceeded.
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    conditions: list[Condition] = []
    start_time: str = ""
    nominated_node_name: str = ""
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class Pod(core.Pod, frozen=True, kw_only=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def group(self) -> str:
        """The name of its PodGroup, or an empty text."""
        return self.spec.scheduling_group.pod_group_name if self.spec.scheduling_group else ""

    @property
    def as_consumer(self) -> Consumer:
        """The pod in the form of a claim's `reservedFor`."""
        return Consumer(resource="pods", name=self.metadata.name, uid=self.metadata.uid)

    @property
    def has_ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def all_containers(self) -> list[core.Container]:
        return [*self.spec.init_containers, *self.spec.containers]

    @property
    def host_ports(self) -> set[tuple[int, str, str]]:
        """The ports of the node that the containers open: number, protocol and address.

        Of the init containers only sidecars count. The others have ended when the pod runs.
        """
        sidecars = [each for each in self.spec.init_containers if each.restart_policy == "Always"]
        ports: set[tuple[int, str, str]] = set()
        for container in (*sidecars, *self.spec.containers):
            for port in container.ports:
                if port.host_port:
                    ports.add((port.host_port, port.protocol or "TCP", port.host_ip or "0.0.0.0"))  # noqa: S104
        return ports


class DisruptionBudgetSpec(meta.ApiStruct, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class DisruptionBudgetStatus(meta.ApiStruct, frozen=True, kw_only=True):
    disruptions_allowed: int = 0
    # The time of the eviction by the pod's name.
    disrupted_pods: dict[str, str] = {}


class DisruptionBudget(meta.ApiStruct, frozen=True, kw_only=True):
    metadata: Meta
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class Consumer(meta.ApiStruct, frozen=True, kw_only=True):
    """The pod, or other object, that a claim is reserved for."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @property
    def is_pod(self) -> bool:
        return (self.api_group, self.resource) == ("", "pods")

    @property
    def is_group(self) -> bool:
        return (self.api_group, self.resource) == (GROUP, "podgroups")

    def includes(self, pod: Pod) -> bool:
        """Returns True if this is the pod, or its PodGroup.

        A pod does not know the uid of its PodGroup, so the name counts.
        """
        if self.is_group and pod.group == self.name:
            return True
        return self.uid == pod.metadata.uid


class DeviceStatus(meta.ApiStruct, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    conditions: list[Condition] = []


class Allocation(scheduling.AllocationResult, frozen=True, kw_only=True):
    allocation_timestamp: str | None = None


class ClaimStatus(scheduling.ResourceClaimStatus, frozen=True, kw_only=True):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []
    devices: list[DeviceStatus] = []


class Claim(scheduling.ResourceClaim, frozen=True, kw_only=True):
    metadata: Meta
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def is_reserved_for(self, pod: Pod) -> bool:
        """Returns True if the claim is reserved for the pod or for its PodGroup."""
        return any(consumer.includes(pod) for consumer in self.status.reserved_for)

    def is_owned_by(self, pod: Pod) -> bool:
        """Returns True if the claim was created for this pod alone."""
        return any(
            owner.controller and owner.uid == pod.metadata.uid
            for owner in self.metadata.owner_references
        )

    @property
    def owning_group(self) -> str:
        """The name of the PodGroup that the claim was created for, or an empty text."""
        for owner in self.metadata.owner_references:
            group, _, _ = owner.api_version.partition("/")
            if owner.controller and (group, owner.kind) == (GROUP, "PodGroup"):
                return owner.name
        return ""

    def is_made_for(self, pod: Pod) -> bool:
        """Returns True if the claim was created for this pod, or for its PodGroup."""
        return self.is_owned_by(pod) or (bool(pod.group) and self.owning_group == pod.group)

    def with_reservation(self, consumer: Consumer) -> Claim:
        """Returns a copy of the claim that is reserved for this consumer, too."""
        consumers = [*self.status.reserved_for, consumer]
        status = msgspec.structs.replace(self.status, reserved_for=consumers)
        return msgspec.structs.replace(self, status=status)


class UnreadableClaim(Claim, frozen=True, kw_only=True):
    """A claim whose object could be read only in part.

    Its devices count as taken, and no pod can use the claim. `is_holding_unknown` is True if not
    even the devices could be read; any device may then belong to the claim.
    """

    problem: str
    is_holding_unknown: bool = False


class Class(scheduling.DeviceClass, frozen=True, kw_only=True):
    pass


Slice = scheduling.ResourceSlice
Rule = scheduling.DeviceTaintRule
