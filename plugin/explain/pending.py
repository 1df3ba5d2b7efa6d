"""Why is my pod pending: a pod or a claim against each node.

First what stands before any node (`preconditions`), then on each node the scheduler's rules about
pods and nodes (`plugin.scheduling`), then the allocator's about devices.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from .. import allocator, cel, errors
from ..allocator import explain, extended, features, nodes, state, taints
from ..allocator.requests import claim_name
from ..api.scheduling import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from ..scheduling import filters, resources
from ..scheduling.objects import Claim, Meta, Node, Pod
from . import preconditions
from .answer import Answer, NodeAnswer
from .preconditions import Preconditions

if TYPE_CHECKING:
    from ..allocator.verdicts import NodeVerdict, RequestVerdict
    from ..scheduling.resources import Amounts
    from .manifests import Workload
    from .objects import Objects

# Seconds; the scheduler has as many for each node.
TIME_LIMIT = 10.0
_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Seconds that each node has in any case.
_LEAST_SHARE = 0.05
_UNDECIDED = (
    "the scheduler has 10 s for a node, and may not decide it either: "
    'it says "timed out trying to allocate devices" then'
)


def find(objects: Objects, name: str, namespace: str) -> Pod | Claim:
    """The pod or claim that is meant; errors.Fatal where there is none.

    `name` is a claim or a pod, or claim/NAME or pod/NAME where both exist.
    """
    kind, _, plain = name.rpartition("/")
    candidates: list[Pod | Claim] = []
    if kind in ("", "claim", "resourceclaim"):
        candidates += objects.claims
    if kind in ("", "pod"):
        candidates += objects.pods
    for candidate in candidates:
        if (candidate.metadata.namespace, candidate.metadata.name) == (namespace, plain):
            return candidate

    unseen = ", and pods cannot be seen" if "pods" in objects.unseen else ""
    raise errors.Fatal(
        f"neither a claim nor a pod {plain!r} in namespace {namespace!r}{unseen}: "
        "look with -n elsewhere?"
    )


def would_be(made: Objects) -> list[Pod | Claim]:
    """What a file would make: its pods, or else its claims, or the claims of its templates."""
    if made.pods:
        return [*made.pods]
    templates = [
        preconditions.of_template(template, template.metadata.name) for template in made.templates
    ]
    claims: list[Pod | Claim] = [*made.claims, *templates]
    if not claims:
        raise errors.Fatal(
            "a file for --dry has a pod, something that makes pods (a Deployment, a Job, …), "
            "a claim or a claim template; this has none"
        )
    return claims


def of_class(
    objects: Objects, name: str, *, node: str = "", time_limit: float = TIME_LIMIT
) -> Answer:
    """Which devices belong to a class and are free, and what keeps the others out."""
    request = DeviceRequest(name="one", exactly=ExactDeviceRequest(device_class_name=name))
    claim = Claim(
        metadata=Meta(name="for-the-class"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=[request])),
    )
    question = _Question(objects, None, Preconditions(waiting=[claim]))
    answers = []
    for answer in question.ask(_nodes(objects, node), time_limit, always=True):
        summary = answer.summary
        if answer.claims:
            summary = in_class(answer.claims[0].requests[0])
        answers.append(dataclasses.replace(answer, summary=summary))
    return Answer(
        subject=f"class {name}",
        can="have a free device of it",
        notes=tuple(_unseen(objects)),
        nodes=tuple(answers),
    )


def in_class(verdict: RequestVerdict) -> str:
    return f"{verdict.suitable} of {len(verdict.devices)} devices are of the class and free"


def report(
    objects: Objects,
    subject: Pod | Claim,
    *,
    node: str = "",
    new: bool = False,
    time_limit: float = TIME_LIMIT,
) -> Answer:
    """Whether each node could have the pod or claim, and if not, why.

    With `node` only that one is looked at; errors.Fatal where it is not known. `new`: the subject
    is not there yet, and the API server may refuse its selectors. After `time_limit` seconds what
    is not decided is unknown.
    """
    if isinstance(subject, Pod):
        pod, kind = subject, "pod"
        found = preconditions.of_pod(subject, objects)
    else:
        pod, kind = None, "claim"
        found = preconditions.of_claim(subject, objects)
    notes = [*_unseen(objects), *found.notes]
    if new:
        notes += _refused(found.waiting)

    places = _nodes(objects, node)
    if not places:
        notes.append("no nodes are known")
    # A claim that has its devices, and a pod that has its node, ask for none.
    settled = not found.waiting if pod is None else bool(pod.spec.node_name)
    answers: list[NodeAnswer] = []
    if not settled and not found.undecidable:
        answers = list(_Question(objects, pod, found).ask(places, time_limit, always=bool(node)))
    if any(answer.outcome == "unknown" for answer in answers):
        notes.append(_UNDECIDED)
    return Answer(
        subject=f"{kind} {subject.key}",
        can="could run it" if pod else "could have it",
        blockers=tuple(found.blockers),
        notes=tuple(notes),
        nodes=tuple(answers),
    )


def of_workload(answer: Answer, subject: Pod | Claim, workloads: Sequence[Workload]) -> Answer:
    """The answer about a pod, said of the workload that would make it, if one would."""
    for workload in workloads:
        if (
            not isinstance(subject, Pod)
            or subject.metadata.name != workload.pod["metadata"]["name"]
        ):
            continue
        notes = answer.notes
        if workload.kind == "DaemonSet":
            notes = (*notes, "it makes a pod for each node that could run it")
        elif workload.count != 1:
            notes = (*notes, f"it makes {workload.count} pods: this is about the first of them")
        kind, namespace = workload.kind.lower(), subject.metadata.namespace
        name = f"{kind} {namespace}/{workload.name}"
        return dataclasses.replace(answer, subject=name, notes=notes)
    return answer


def _refused(claims: Sequence[ResourceClaim]) -> Iterator[str]:
    """Selectors that the API server would not take."""
    for claim in claims:
        for request in claim.spec.devices.requests or ():
            for alternative in (request.exactly, *request.first_available):
                selectors = alternative.selectors if alternative else ()
                for number, selector in enumerate(selectors, 1):
                    expression = selector.cel.expression if selector.cel else ""
                    try:
                        cel.compile(expression, new=True)
                    except cel.CompileError as error:
                        yield (
                            f"the API server refuses selector {number} "
                            f"of request {request.name}: {error}"
                        )


def _unseen(objects: Objects) -> Iterator[str]:
    for resource in objects.unseen:
        if resource == "pods of other namespaces":
            yield f"not allowed to see {resource}: what they use of nodes is not counted"
        else:
            yield f"not allowed to see {resource}: the answer may be wrong"


def _nodes(objects: Objects, only: str) -> list[Node]:
    """Nodes by name; where none were given, the ones that slices name."""
    places = sorted(objects.nodes, key=lambda node: node.metadata.name)
    if not objects.nodes:
        names = {slice_.spec.node_name for slice_ in objects.slices} - {""}
        places = [Node(metadata=Meta(name=name)) for name in sorted(names)]
    if not only:
        return places

    chosen = [node for node in places if node.metadata.name == only]
    if not chosen:
        raise errors.Fatal(f"no node {only!r} is known")
    return chosen


class _Question:
    """The objects as the rules take them, and a pod or claims put to one node after the other."""

    def __init__(self, objects: Objects, pod: Pod | None, found: Preconditions) -> None:
        self._objects = objects
        self._pod = pod
        self._waiting, self._allocated = found.waiting, found.allocated
        self._held = explain.holders(objects.claims)
        # What the question itself asks for may be of a feature that nothing in the cluster has yet.
        enabled = features.in_use(objects.slices, [*objects.claims, *found.waiting])
        self._allocator = allocator.Allocator(
            class_lister=allocator.Classes(objects.classes),
            slices=taints.apply_rules(objects.slices, objects.rules),
            allocated=state.of_claims(objects.claims, enabled),
            features=enabled,
        )
        self._pods_by_node: dict[str, list[Pod]] = {}
        self._used: dict[str, Amounts] = {}
        self._resources_of_classes: set[str] = set()
        if pod:
            self._count_pods()
            self._resources_of_classes = set(extended.classes_by_resource(objects.classes))

    def _count_pods(self) -> None:
        for pod in self._objects.pods:
            name = pod.spec.node_name
            if name and not pod.has_ended:
                self._pods_by_node.setdefault(name, []).append(pod)
                resources.add(self._used.setdefault(name, {}), resources.pod_requests(pod))

    def ask(
        self, places: Sequence[Node], time_limit: float, *, always: bool = False
    ) -> Iterator[NodeAnswer]:
        """Each node's answer. With `always` devices are told of where the answer is yes, too."""
        end = time.monotonic() + time_limit
        for index, node in enumerate(places):
            # Each gets its share of what is left, so that one node cannot take it all.
            share = (end - time.monotonic()) / (len(places) - index)
            refusals = self._refusals(node)
            yield _answer(node, refusals, self._verdict(node, share, always))

    def _verdict(self, node: Node, seconds: float, always: bool) -> NodeVerdict | None:
        """What the allocator says; None where no devices are asked for."""
        claims: list[ResourceClaim] = [*self._waiting]
        if self._pod:
            implicit = extended.implicit_claim(self._pod, node, self._objects.classes)
            if implicit:
                claims.append(implicit)
        if not claims:
            return None
        return explain.node(
            self._allocator,
            node,
            claims,
            self._held,
            always=always,
            expired=_after(max(seconds, _LEAST_SHARE)),
        )

    # The scheduler's rules about pods and nodes

    def _refusals(self, node: Node) -> tuple[str, ...]:
        pod = self._pod
        if pod is None:
            return tuple(_elsewhere(self._allocated, node))

        name, allocatable = node.metadata.name, node.status.allocatable
        by_claims = {
            resource
            for resource in self._resources_of_classes
            if allocatable.get(resource, "0") == "0"
        }
        details = list(_unready(node))
        for refusal in filters.refusals(
            pod,
            node,
            used=self._used.get(name, {}),
            by_claims=by_claims,
            neighbours=self._pods_by_node.get(name, ()),
        ):
            # A node that nobody has described, in a file of slices alone, has resources too.
            if refusal.rule != "NodeResourcesFit" or allocatable:
                details.append(refusal.detail)
        return (*details, *_elsewhere(self._allocated, node))


def _unready(node: Node) -> Iterator[str]:
    """A node that is not ready has a taint that says so, a moment later."""
    if any(taint.key in _READY_TAINTS for taint in node.spec.taints):
        return
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            why = condition.message or condition.reason
            yield f"it is not ready: {why}" if why else "it is not ready"


def _elsewhere(claims: Sequence[Claim], node: Node) -> Iterator[str]:
    """Claims whose devices cannot be used on this node."""
    for claim in claims:
        selector = claim.status.allocation.node_selector if claim.status.allocation else None
        if selector is None:
            continue
        try:
            here = nodes.selects(selector, node)
        except ValueError:
            here = False
        if not here:
            place = preconditions.allocated_on(claim)
            yield f"claim {claim_name(claim)} is allocated on {place}"


def _answer(node: Node, refusals: tuple[str, ...], verdict: NodeVerdict | None) -> NodeAnswer:
    name = node.metadata.name
    if verdict is None:
        return NodeAnswer(
            node=name,
            outcome="no" if refusals else "yes",
            summary="; ".join(refusals),
            refusals=refusals,
        )
    summary = "; ".join(filter(None, (*refusals, verdict.summary)))
    return NodeAnswer(
        node=name,
        outcome="no" if refusals else verdict.outcome,
        summary=summary,
        refusals=refusals,
        allocation=verdict.allocation,
        claims=verdict.claims,
        pools=verdict.pools,
    )


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
