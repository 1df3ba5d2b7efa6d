"""Where one pod goes and which devices it gets, or why nowhere. Pure: a world and a pod in, a
decision out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...allocator import AllocationError, CancelledError, explain, extended, nodes
from .. import client
from . import filters
from .objects import Allocation, Claim, Meta, reserved

if TYPE_CHECKING:
    from ...api.scheduling import AllocationResult, ResourceClaim
    from .objects import Node, Pod
    from .world import World

RESERVED_MAX = 256  # pods that share a claim
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
BINDING_TIMEOUT = 600.0  # seconds that devices have to become ready after their allocation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bind:
    """`claims` as they are to be written first; one without a uid is to be made, for `extended`
    resources.
    """

    node: str
    claims: tuple[Claim, ...] = ()
    extended: Claim | None = None
    ready: bool = True  # False: devices must say that they are ready before the pod is bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refuse:
    message: str
    reason: str = "Unschedulable"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """What the pod holds is in its way: the claim is to be free again."""

    claim: Claim


@dataclasses.dataclass(frozen=True)
class Wait:
    """For somebody else, who will be heard of."""


Decision = Bind | Refuse | Release | Wait


class _NotYet(Exception):
    """A claim will be made from a template."""


class _NotAnywhere(Exception):
    """A reason that has nothing to do with nodes."""


def decide(
    world: World, pod: Pod, now: float = 0.0, cancelled: Callable[[], bool] | None = None
) -> Decision:
    """The claims, then the nodes' own rules, then devices; of the nodes that do, the best
    (`_rank`).
    """
    total = len(world.nodes)
    try:
        claims = claims_of(world, pod)
        _check(world, pod, claims)
    except _NotYet:
        return Wait()
    except _NotAnywhere as error:
        return Refuse(message=f"0/{total} nodes are available: {error}.")
    if not total:
        return Refuse(message="no nodes available to schedule pods")
    if (at := _being_readied(pod, claims, now)) is not None:
        return at
    return _Choice(world, pod, claims, cancelled).made()


def claims_of(world: World, pod: Pod) -> list[Claim]:
    found = []
    made = {one.name: one for one in pod.status.resource_claim_statuses}
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        if entry.resource_claim_template_name:
            if entry.name not in made:
                raise _NotYet
            name = made[entry.name].resource_claim_name
            if not name:
                continue  # the template's owner says that none is needed
        claim = world.claims.get(f"{namespace}/{name}")
        if claim is None:
            if entry.resource_claim_template_name:
                raise _NotYet
            raise _NotAnywhere(f'resourceclaim "{name}" not found')
        if claim.metadata.deletion_timestamp:
            raise _NotAnywhere(f'resourceclaim "{name}" is being deleted')
        if entry.resource_claim_template_name and not claim.is_owned_by(pod):
            raise _NotAnywhere(
                f"ResourceClaim {claim.key} was not created for Pod {namespace}/{pod.metadata.name}"
            )
        found.append(claim)
    special = special_of(world, pod)
    return [*found, special] if special else found


def special_of(world: World, pod: Pod) -> Claim | None:
    """The claim of the pod's extended resources, if it is made already."""
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    asked = {name for container in containers for name in container.resources.requests}
    if asked.isdisjoint(world.published.by_resource):
        return None
    for claim in world.claims.values():
        if claim.metadata.annotations.get(EXTENDED) == "true" and claim.is_owned_by(pod):
            return claim
    return None


def _check(world: World, pod: Pod, claims: Sequence[Claim]) -> None:
    for claim in claims:
        if claim.status.allocation:
            if not claim.is_reserved_for(pod) and len(claim.status.reserved_for) >= RESERVED_MAX:
                raise _NotAnywhere("resourceclaim in use")
            continue
        for request in claim.spec.devices.requests or ():
            for asked in (request.exactly, *request.first_available):
                if asked and world.published.class_lister.get(asked.device_class_name) is None:
                    name = (
                        request.name
                        if asked is request.exactly
                        else f"{request.name}/{getattr(asked, 'name', '')}"
                    )
                    raise _NotAnywhere(
                        f"request {name}: device class {asked.device_class_name} does not exist"
                    )


def _being_readied(pod: Pod, claims: Sequence[Claim], now: float) -> Decision | None:
    """While devices that were chosen have to get ready, or say that they never will."""
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None or not claim.is_reserved_for(pod):
            continue
        for one in allocation.devices.results:
            if not one.binding_conditions:
                continue
            same = [
                device
                for device in claim.status.devices
                if (device.driver, device.pool, device.device) == (one.driver, one.pool, one.device)
            ]
            true = {
                told.type for told in (same[0].conditions if same else ()) if told.status == "True"
            }
            if true.intersection(one.binding_failure_conditions):
                return Release(claim=claim)
            if not true.issuperset(one.binding_conditions):
                since = allocation.allocation_timestamp
                late = since is not None and now - client.seconds(since) > BINDING_TIMEOUT
                return Release(claim=claim) if late else Wait()
    return None


class _Choice:
    """One pod's way through the nodes."""

    def __init__(
        self, world: World, pod: Pod, claims: Sequence[Claim], cancelled: Callable[[], bool] | None
    ) -> None:
        self.world = world
        self.pod = pod
        self.claims = claims
        self.special = special_of(world, pod)
        self.waiting = [claim for claim in claims if not claim.status.allocation]
        self.cancelled = cancelled
        self.reasons: Counter[str] = Counter()
        self.failed: list[tuple[Node, list[ResourceClaim]]] = []  # nodes with too few devices

    def made(self) -> Decision:
        suitable: list[Node] = []
        elsewhere: list[Claim] = []
        for node in self.world.nodes:
            why = filters.refusals(self.world, self.pod, node)
            far = [claim for claim in self.claims if not _available(claim, node)]
            if not why and far:
                why, elsewhere = ["resourceclaim not available on the node"], elsewhere + far
            if why:
                self.reasons.update(why)
            else:
                suitable.append(node)
        try:
            best = self._allocate(suitable)
        except AllocationError as error:
            return Refuse(
                message=f'running "DynamicResources" filter plugin: {error}',
                reason="SchedulerError",
            )
        if best is not None:
            return best
        for claim in elsewhere:
            if all(one.uid == self.pod.metadata.uid for one in claim.status.reserved_for):
                return Release(claim=claim)
        return Refuse(message=self._message())

    def _allocate(self, suitable: Sequence[Node]) -> Bind | None:
        """On the first node in the order of preference; on all of them where a request has
        alternatives.
        """
        alternatives = any(
            request.first_available
            for one in self.waiting
            for request in one.spec.devices.requests or ()
        )
        best: tuple[int, Bind] | None = None
        for node in sorted(suitable, key=lambda node: _rank(self.world, self.pod, node)):
            wanted = self._wanted(node)
            try:
                found = (
                    self.world.allocator.allocate(node, wanted, cancelled=self.cancelled)
                    if wanted
                    else []
                )
            except CancelledError:
                raise AllocationError(
                    f"node {node.metadata.name}: timed out trying to allocate devices"
                ) from None
            except AllocationError as error:
                if not error.node_only:
                    raise
                self.reasons[str(error)] += 1
                continue
            if found is None:
                self.failed.append((node, wanted))
                continue
            second = _second_choices(wanted, found)
            if best is None or second < best[0]:
                best = second, self._bind(node, wanted, found)
            if not alternatives:
                break
        return best[1] if best else None

    def _wanted(self, node: Node) -> list[ResourceClaim]:
        implicit = (
            None
            if self.special
            else extended.implicit_claim(self.pod, node, self.world.published.classes)
        )
        return [*self.waiting, *([implicit] if implicit else [])]

    def _bind(
        self, node: Node, wanted: Sequence[ResourceClaim], found: Sequence[AllocationResult]
    ) -> Bind:
        changed = [
            reserved(claim, self.pod)
            for claim in self.claims
            if claim.status.allocation and not claim.is_reserved_for(self.pod)
        ]
        ready, special = True, self.special
        for claim, result in zip(wanted, found, strict=True):
            waits = any(one.binding_conditions for one in result.devices.results)
            ready = ready and not waits
            allocation = Allocation(devices=result.devices, node_selector=result.node_selector)
            own = claim if isinstance(claim, Claim) else self._made(claim)
            status = msgspec.structs.replace(own.status, allocation=allocation)
            own = reserved(msgspec.structs.replace(own, status=status), self.pod)
            special = special if isinstance(claim, Claim) else own
            changed.append(own)
        return Bind(node=node.metadata.name, claims=tuple(changed), extended=special, ready=ready)

    def _made(self, claim: ResourceClaim) -> Claim:
        """For extended resources; it gets its name when it is made."""
        metadata = Meta(name=f"<{self.pod.metadata.uid}>", namespace=self.pod.metadata.namespace)
        return Claim(metadata=metadata, spec=claim.spec)

    def _message(self) -> str:
        """Reasons with the number of nodes that have them, as texts in order."""
        held = explain.holders(self.world.claims.values()) if self.failed else {}
        for node, wanted in self.failed:
            report = explain.node(self.world.allocator, node, wanted, held)
            self.reasons[f"cannot allocate all claims ({report.summary})"] += 1
        told = ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons.items()))
        return f"0/{len(self.world.nodes)} nodes are available: {told}."


def _available(claim: Claim, node: Node) -> bool:
    selector = claim.status.allocation.node_selector if claim.status.allocation else None
    return selector is None or nodes.selects(selector, node)


def _rank(world: World, pod: Pod, node: Node) -> tuple[int, int, str]:
    """Pods that want devices go where most are free, others where the fewest pods are; then by
    name.
    """
    free = world.free(node) if pod.spec.resource_claims else 0
    return -free, world.used[node.metadata.name].get("pods", 0), node.metadata.name


def _second_choices(wanted: Sequence[ResourceClaim], found: Sequence[AllocationResult]) -> int:
    """How far down their lists the requests had to go."""
    far = 0
    for claim, result in zip(wanted, found, strict=True):
        places: Mapping[str, int] = {
            f"{request.name}/{one.name}": place
            for request in claim.spec.devices.requests or ()
            for place, one in enumerate(request.first_available)
        }
        far += sum(places.get(path, 0) for path in {one.request for one in result.devices.results})
    return far
