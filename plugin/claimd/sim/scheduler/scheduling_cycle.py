"""The decision for one pod: its node and devices, or why it must wait.

The functions do no I/O: they turn a snapshot and a pod into a decision, and `binding` writes it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from typing import TYPE_CHECKING

import msgspec

from claimd.kubernetes.allocator import AllocationError, CancelledError, explain, extended, nodes
from claimd.kubernetes.scheduling import binding_conditions, node_rules, preemption, preferences
from claimd.kubernetes.scheduling.objects import Allocation, Claim, Meta, UnreadableClaim

if TYPE_CHECKING:
    from claimd.kubernetes.api.scheduling import AllocationResult, ResourceClaim
    from claimd.kubernetes.scheduling.objects import Consumer, Node, Pod

    from .snapshot import Snapshot

RESERVED_MAX = 256  # pods that may share a claim
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"  # annotation
_ENOUGH_NODES = 100  # feasible nodes after which a scheduler stops searching
_NO_DEVICES = "cannot allocate all claims"
_NOT_AVAILABLE = "resourceclaim not available on the node"
_DEALLOCATED = "deallocation of ResourceClaim completed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bind:
    """The pod is bound to the node.

    `claims` must be written first. A claim without a uid must be created: it is the
    `extended_claim`, for the pod's extended resources.
    """

    node: str
    claims: tuple[Claim, ...] = ()
    extended_claim: Claim | None = None
    waits: bool = False  # True if the pod is bound only when its devices are ready


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unschedulable:
    """The pod fits on no node; `preemption` has the pods to evict, if that would help."""

    message: str
    reason: str = "Unschedulable"
    preemption: preemption.Candidate | None = None
    keeps_nomination: bool = False

    @property
    def nominated_node(self) -> str | None:
        """The node that the pod is nominated for, empty for no node, None for no change."""
        if self.keeps_nomination:
            return None
        return self.preemption.node if self.preemption else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deallocate:
    """The allocation of the pod's claim prevents scheduling, so it must be removed."""

    claim: Claim
    report: Unschedulable


@dataclasses.dataclass(frozen=True)
class Pending:
    """No decision is possible before another component writes something. That write wakes the
    scheduler.
    """


Decision = Bind | Unschedulable | Deallocate | Pending


class ClaimNotReadyError(Exception):
    """A claim does not exist yet, is being deleted, or is another pod's. The pod waits without a
    message."""


class UnresolvableError(Exception):
    """A reason that does not depend on nodes."""


def schedule_pod(
    snapshot: Snapshot,
    pod: Pod,
    now: float = 0.0,
    cancelled: Callable[[], bool] | None = None,
    binding_timeout: float = binding_conditions.TIMEOUT,
) -> Decision:
    """Checks the claims, then the nodes' own rules, then devices, and chooses the best node.

    The same snapshot gives the same decision. `cancelled` is polled during the search for
    devices; a cancelled search makes the pod unschedulable, with a message about it.
    """
    count = len(snapshot.nodes)
    try:
        claims = claims_of(snapshot, pod)
        _check_claims(snapshot, pod, claims)
    except ClaimNotReadyError:
        return Pending()
    except UnresolvableError as error:
        if count:
            outcome = preemption.evaluate(pod, (), count, {}, (), lambda _, __: ())
            return _unschedulable(f"0/{count} nodes are available: {error}.", outcome)

    if not count:
        return Unschedulable(message="no nodes available to schedule pods", keeps_nomination=True)

    # The devices of an earlier cycle may have failed.
    given_up = {
        claim.key for claim in claims if binding_conditions.problem_of(claim, now, binding_timeout)
    }
    return _NodeSearch(snapshot, pod, claims, given_up, cancelled).decide()


def _unschedulable(message: str, outcome: preemption.Outcome) -> Unschedulable:
    return Unschedulable(
        message=f"{message} preemption: {outcome.message}",
        preemption=outcome.candidate,
        keeps_nomination=outcome.keeps_nomination,
    )


def has_claims(snapshot: Snapshot, pod: Pod) -> bool:
    """Returns False as long as a claim of the pod does not exist or cannot be used."""
    try:
        claims_of(snapshot, pod)
    except ClaimNotReadyError:
        return False
    except UnresolvableError:
        return True
    return True


def claims_of(snapshot: Snapshot, pod: Pod) -> list[Claim]:
    """Returns the pod's claims in its order, with the claim of its extended resources last."""
    claims = []
    created = {status.name: status for status in pod.status.resource_claim_statuses}
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        if entry.resource_claim_template_name:
            if entry.name not in created:
                raise ClaimNotReadyError
            name = created[entry.name].resource_claim_name
            if not name:
                continue  # the claim controller says that no claim is needed

        claim = snapshot.claims.get(f"{namespace}/{name}")
        if claim is None:
            raise ClaimNotReadyError
        if isinstance(claim, UnreadableClaim):
            raise UnresolvableError(f'resourceclaim "{name}" cannot be read: {claim.problem}')
        if claim.metadata.deletion_timestamp:
            raise ClaimNotReadyError
        if entry.resource_claim_template_name and not claim.is_made_for(pod):
            raise ClaimNotReadyError
        claims.append(claim)

    extended_claim = extended_claim_of(snapshot, pod)
    if extended_claim is not None:
        claims.append(extended_claim)
    return claims


def _consumers(snapshot: Snapshot, pod: Pod) -> dict[str, Consumer]:
    """Returns the group as the consumer of its claims, by the names of the claims."""
    group = snapshot.group_of(pod)
    if group is None:
        return {}
    created = {each.name: each for each in pod.status.resource_claim_statuses}
    consumers = {}
    for entry in pod.spec.resource_claims:
        if group.has_claim(entry):
            name = entry.resource_claim_name
            if not name and entry.name in created:
                name = created[entry.name].resource_claim_name
            consumers[name or ""] = group.as_consumer
    return consumers


def extended_claim_of(snapshot: Snapshot, pod: Pod) -> Claim | None:
    """Returns the claim of the pod's extended resources, or None if it does not exist yet."""
    requested = {name for container in pod.all_containers for name in container.resources.requests}
    if requested.isdisjoint(snapshot.published.class_by_resource):
        return None
    for claim in snapshot.claims.values():
        if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true" and claim.is_owned_by(pod):
            return claim
    return None


def _check_claims(snapshot: Snapshot, pod: Pod, claims: Sequence[Claim]) -> None:
    """Raises UnresolvableError for a problem that no node can solve."""
    for claim in claims:
        if claim.status.allocation:
            full = len(claim.status.reserved_for) >= RESERVED_MAX
            if full and not claim.is_reserved_for(pod):
                raise UnresolvableError("resourceclaim in use")
            continue
        for name, class_name in _requested_classes(claim):
            if snapshot.published.class_lister.get(class_name) is None:
                raise UnresolvableError(f"request {name}: device class {class_name} does not exist")


def _requested_classes(claim: Claim) -> Iterator[tuple[str, str]]:
    """Yields the name of each request and subrequest with its device class."""
    for request in claim.spec.devices.requests or ():
        if request.exactly:
            yield request.name, request.exactly.device_class_name
        for subrequest in request.first_available:
            yield f"{request.name}/{subrequest.name}", subrequest.device_class_name


class _NodeSearch:
    """The search for one pod's node."""

    def __init__(
        self,
        snapshot: Snapshot,
        pod: Pod,
        claims: Sequence[Claim],
        given_up: Set[str],
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._snapshot = snapshot
        self._pod = pod
        self._claims = claims
        self._given_up = given_up  # keys of claims whose devices do not get ready
        self._cancelled = cancelled
        self._rules = node_rules.NodeRules(snapshot.placement, pod)
        self._extended_claim = extended_claim_of(snapshot, pod)
        self._unallocated = [claim for claim in claims if not claim.status.allocation]
        self._reasons: Counter[str] = Counter()  # number of nodes by reason
        self._short: list[tuple[Node, list[ResourceClaim]]] = []  # nodes with too few devices
        self._resolvable: list[str] = []  # nodes where preemption may help
        self._without_devices: dict[str, str] = {}  # the reason by node name
        self._scores: dict[str, int] = {}  # by node name

    def decide(self) -> Decision:
        promised = self._bind_as_promised()
        if promised is not None:
            return promised

        feasible: list[Node] = []
        tied: list[tuple[Node, list[Claim]]] = []  # nodes that allocated claims exclude
        for node in self._snapshot.nodes:
            refusals = self._rules.refusals(node)
            if refusals:
                self._reasons.update(node_rules.messages(refusals))
                if all(refusal.is_resolvable for refusal in refusals):
                    self._resolvable.append(node.metadata.name)
                continue

            unavailable = [
                claim for claim in self._claims if not self._is_available_on(claim, node)
            ]
            if unavailable:
                tied.append((node, unavailable))
            else:
                feasible.append(node)

        snapshot = self._snapshot
        # Scores are costly, so they are computed only if they can differ.
        is_choosy = preferences.has_preferences(self._pod) or snapshot.watchful_pods
        if len(feasible) > 1 and (is_choosy or snapshot.has_soft_taints):
            self._scores = preferences.scores(
                self._pod,
                feasible,
                snapshot.nodes_by_name,
                snapshot.pods_by_node,
                snapshot.watchful_pods,
                snapshot.namespaces,
            )
        try:
            bind = self._allocate(feasible)
            held_elsewhere = [] if bind else self._held_elsewhere(tied)
        except AllocationError as error:
            return Unschedulable(
                message=f'running "DynamicResources" filter plugin: {error}',
                reason="SchedulerError",
                keeps_nomination=True,
            )
        if bind is not None:
            return bind

        # If only this pod uses a claim whose devices are on an unsuitable node, the claim can be
        # allocated again elsewhere.
        for claim in held_elsewhere:
            if all(map(self._has_to_itself, claim.status.reserved_for)):
                message = f"{self._message()} {_DEALLOCATED},"
                return Deallocate(claim=claim, report=_unschedulable(message, self._preempt()))
        return _unschedulable(self._message(), self._preempt())

    def _has_to_itself(self, consumer: Consumer) -> bool:
        """Returns True if the consumer is the pod, or its group while no pod of it is placed."""
        if consumer.is_group and consumer.includes(self._pod):
            group = self._snapshot.group_of(self._pod)
            return group is not None and not self._snapshot.members_of(group).placed
        return consumer.uid == self._pod.metadata.uid

    def _bind_as_promised(self) -> Bind | None:
        """Returns a binding to the nominated node, which is tried first, or None."""
        node = self._snapshot.nodes_by_name.get(self._pod.status.nominated_node_name)
        if node is None or self._rules.refusals(node):
            return None
        if not all(self._is_available_on(claim, node) for claim in self._claims):
            return None
        claims = self._claims_to_allocate(node)
        try:
            results = self._allocate_on(node, claims)
        except AllocationError:
            return None  # reported when the search reaches the node
        return None if results is None else self._bind(node, claims, results)

    # ------------------------------------------------------------ preemption

    def _preempt(self) -> preemption.Outcome:
        snapshot = self._snapshot
        return preemption.evaluate(
            self._pod,
            self._resolvable,
            len(snapshot.nodes),
            snapshot.pods_by_node,
            snapshot.budgets,
            self._reasons_without,
        )

    def _reasons_without(self, name: str, gone: Collection[str]) -> list[str]:
        """Returns why the pod cannot go to the node even without the pods in `gone`; devices stay
        allocated."""
        node = self._snapshot.nodes_by_name[name]
        reasons = node_rules.messages(self._rules.refusals(node, gone))
        if reasons:
            return reasons
        if name not in self._without_devices:
            self._without_devices[name] = self._reason_of_devices(node)
        return [reason for reason in (self._without_devices[name],) if reason]

    def _reason_of_devices(self, node: Node) -> str:
        """Returns why the node has no devices for the pod, or an empty text if it has."""
        if not all(self._is_available_on(claim, node) for claim in self._claims):
            return _NOT_AVAILABLE
        try:
            results = self._allocate_on(node, self._claims_to_allocate(node))
        except AllocationError as error:
            return str(error)
        return _NO_DEVICES if results is None else ""

    # ------------------------------------------------------------ devices

    def _is_available_on(self, claim: Claim, node: Node) -> bool:
        """Returns True if the claim's allocated devices can be used on the node."""
        allocation = claim.status.allocation
        if claim.key in self._given_up:
            return False
        if allocation is None or allocation.node_selector is None:
            return True
        return nodes.selects(allocation.node_selector, node)

    def _held_elsewhere(self, tied: Sequence[tuple[Node, list[Claim]]]) -> list[Claim]:
        """Returns the allocated claims that are the only reason to keep the pod from a node."""
        held: list[Claim] = []
        for node, unavailable in tied:
            claims = self._claims_to_allocate(node)
            if self._try_on(node, claims) is not None:
                self._reasons[_NOT_AVAILABLE] += 1
                held += unavailable
        return held

    def _allocate(self, feasible: Sequence[Node]) -> Bind | None:
        """Returns a binding to the best node that has the devices, or None.

        Without alternatives, that is the first node in the order of preference. If a request has
        alternatives, all nodes are tried, and the node wins whose requests get their earliest
        alternatives. All nodes are also tried if a selector may fail: an error on one node ends
        the search on all, and a scheduler examines up to a hundred feasible nodes before it
        chooses one.
        """
        has_alternatives = any(
            request.first_available
            for claim in self._unallocated
            for request in claim.spec.devices.requests or ()
        )
        takes_first = not has_alternatives and not self._may_err()
        best: Bind | None = None
        best_rank = feasible_count = 0
        for node in sorted(feasible, key=self._preference):
            claims = self._claims_to_allocate(node)
            results = self._try_on(node, claims)
            if results is None:
                continue

            rank = _alternatives_rank(claims, results)
            if best is None or rank < best_rank:
                best, best_rank = self._bind(node, claims, results), rank
            feasible_count += 1
            if takes_first or (feasible_count >= _ENOUGH_NODES and not has_alternatives):
                break
        return best

    def _may_err(self) -> bool:
        """Returns True if a selector of the pod's claims or of any class fails on any device."""
        published = self._snapshot.published
        selectors = []
        for class_ in published.classes:
            selectors += class_.spec.selectors
        for claim in self._unallocated:
            for _, request in claim.spec.alternatives():
                selectors += request.selectors

        return any(published.may_err(item.cel.expression) for item in selectors if item.cel)

    def _try_on(self, node: Node, claims: list[ResourceClaim]) -> Sequence[AllocationResult] | None:
        """Returns the results, or None after recording why the node has none.

        An error that is not specific to the node ends the whole search.
        """
        try:
            results = self._allocate_on(node, claims)
        except AllocationError as error:
            if not error.node_only:
                raise
            self._reasons[str(error)] += 1
            return None
        if results is None:
            self._short.append((node, claims))
        return results

    def _allocate_on(
        self, node: Node, claims: Sequence[ResourceClaim]
    ) -> Sequence[AllocationResult] | None:
        if not claims:
            return []

        # A claim whose devices are unreadable may hold any device.
        for held in self._snapshot.claims.values():
            if isinstance(held, UnreadableClaim) and held.is_holding_unknown:
                raise AllocationError(
                    f"the devices of ResourceClaim {held.key} cannot be read, so that none is "
                    f"given to others: {held.problem}"
                )
        try:
            return self._snapshot.allocator.allocate(node, claims, cancelled=self._cancelled)
        except CancelledError:
            raise AllocationError(
                f"node {node.metadata.name}: timed out trying to allocate devices"
            ) from None

    def _claims_to_allocate(self, node: Node) -> list[ResourceClaim]:
        """Returns the unallocated claims, and one for extended resources that the node lacks."""
        claims: list[ResourceClaim] = [*self._unallocated]
        if self._extended_claim is None:
            implicit = extended.implicit_claim(self._pod, node, self._snapshot.published.classes)
            if implicit is not None:
                claims.append(implicit)
        return claims

    def _bind(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        results: Sequence[AllocationResult],
    ) -> Bind:
        consumers = _consumers(self._snapshot, self._pod)
        own = self._pod.as_consumer
        changed = [
            claim.with_reservation(consumers.get(claim.metadata.name, own))
            for claim in self._claims
            if claim.status.allocation and not claim.is_reserved_for(self._pod)
        ]
        waits = any(map(binding_conditions.has_conditions, self._claims))
        extended_claim = self._extended_claim
        for claim, result in zip(claims, results, strict=True):
            known = claim if isinstance(claim, Claim) else self._new_claim(claim)
            allocation = Allocation(devices=result.devices, node_selector=result.node_selector)
            status = msgspec.structs.replace(known.status, allocation=allocation)
            consumer = consumers.get(known.metadata.name, own)
            allocated = msgspec.structs.replace(known, status=status).with_reservation(consumer)
            if known is not claim:
                extended_claim = allocated
            changed.append(allocated)
            waits = waits or binding_conditions.has_conditions(allocated)
        return Bind(
            node=node.metadata.name,
            claims=tuple(changed),
            extended_claim=extended_claim,
            waits=waits,
        )

    def _new_claim(self, claim: ResourceClaim) -> Claim:
        """Returns the claim for extended resources, which is named when it is created."""
        metadata = Meta(name=f"<{self._pod.metadata.uid}>", namespace=self._pod.metadata.namespace)
        return Claim(metadata=metadata, spec=claim.spec)

    def _preference(self, node: Node) -> tuple[int, int, int, str]:
        """Returns the sort key: the pod's preferences, most free devices, fewest pods, name."""
        free = 0
        if self._pod.spec.resource_claims:
            free = self._snapshot.count_free_devices(node)
        name = node.metadata.name
        pods = self._snapshot.used_resources[name].get("pods", 0)
        return -self._scores.get(name, 0), -free, pods, name

    def _message(self) -> str:
        """Returns the reasons with the number of nodes that have them, sorted as texts."""
        if self._short:
            holders = explain.gather_holdings(self._snapshot.claims.values())
            for node, claims in self._short:
                report = explain.explain_node(self._snapshot.allocator, node, claims, holders)
                self._reasons[f"{_NO_DEVICES} ({report.summary})"] += 1

        counted = sorted(f"{count} {reason}" for reason, count in self._reasons.items())
        return f"0/{len(self._snapshot.nodes)} nodes are available: {', '.join(counted)}."


def _alternatives_rank(claims: Sequence[ResourceClaim], results: Sequence[AllocationResult]) -> int:
    """Returns the sum of the positions of the chosen alternatives in their lists."""
    total = 0
    for claim, result in zip(claims, results, strict=True):
        positions: dict[str, int] = {}
        for request in claim.spec.devices.requests or ():
            for position, subrequest in enumerate(request.first_available):
                positions[f"{request.name}/{subrequest.name}"] = position
        chosen = {device.request for device in result.devices.results}
        total += sum(positions.get(path, 0) for path in chosen)
    return total
