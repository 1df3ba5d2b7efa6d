"""Whether a node takes a pod, devices aside, by the rules and in the order of the real scheduler."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..allocator import nodes
from ..api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from . import resources
from .objects import Taint, Toleration

if TYPE_CHECKING:
    from .objects import LabelSelector, Node, Pod

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """A rule that keeps the pod from a node.

    `rule` is the scheduler's plugin, `message` what it says, `detail` the same for people, with
    what was seen and what the pod asks for. `is_resolvable`: it could change if pods went.
    """

    rule: str
    message: str
    detail: str
    is_resolvable: bool = False


def refusals(
    pod: Pod,
    node: Node,
    *,
    used: Mapping[str, int],
    by_claims: Collection[str] = (),
    neighbours: Iterable[Pod] = (),
) -> Iterator[Refusal]:
    """Why the pod cannot go to this node, the first reason first; nothing if it may.

    The scheduler stops at the first rule that refuses; of the rule's reasons it has all. `used` are
    the requests of the node's pods, `neighbours` these pods themselves, and `by_claims` the
    resources that a claim gives instead of the node.
    """
    elsewhere = list(_refusals_by_named_nodes(pod, node))
    yield from elsewhere
    yield from _refusals_of_cordon(pod, node)
    yield from _refusals_by_taints(pod, node)
    if not elsewhere:
        yield from _refusals_by_selector(pod, node)
    yield from _refusals_by_ports(pod, neighbours)
    yield from _refusals_by_resources(pod, node, used, by_claims)


def first_refusals(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Those of the first rule that refuses."""
    first: list[Refusal] = []
    for refusal in refusals:
        if first and refusal.rule != first[0].rule:
            break
        first.append(refusal)
    return first


def is_selected(pod: Pod, node: Node) -> bool:
    """Whether the pod's nodeSelector and node affinity let it go there."""
    return not any(_refusals_by_selector(pod, node))


def is_tolerating(pod: Pod, node: Node) -> bool:
    """Whether no taint of the node keeps the pod away."""
    return not any(_refusals_by_taints(pod, node))


def count_unwelcome_taints(pod: Pod, node: Node) -> int:
    """Taints that the pod does not tolerate, and that are only a preference."""
    return sum(
        taint.effect == "PreferNoSchedule" and not _is_tolerated(taint, pod.spec.tolerations)
        for taint in node.spec.taints
    )


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    if any(labels.get(name) != value for name, value in selector.match_labels.items()):
        return False
    for requirement in selector.match_expressions:
        match requirement.operator:
            case "In":
                matches = labels.get(requirement.key) in requirement.values
            case "NotIn":
                matches = labels.get(requirement.key) not in requirement.values
            case "Exists":
                matches = requirement.key in labels
            case _:
                matches = requirement.key not in labels
        if not matches:
            return False
    return True


def _refusals_of_cordon(pod: Pod, node: Node) -> Iterator[Refusal]:
    if node.spec.unschedulable and not _is_tolerated(UNSCHEDULABLE, pod.spec.tolerations):
        yield Refusal(
            rule="NodeUnschedulable",
            message="node(s) were unschedulable",
            detail="it is cordoned",
        )


def _refusals_by_taints(pod: Pod, node: Node) -> Iterator[Refusal]:
    for taint in node.spec.taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        # A cordoned node has this one as well, a moment later.
        if taint.key == UNSCHEDULABLE.key and node.spec.unschedulable:
            continue
        if not _is_tolerated(taint, pod.spec.tolerations):
            value = f"={taint.value}" if taint.value else ""
            meaning = _CONDITIONS.get(taint.key, "")
            yield Refusal(
                rule="TaintToleration",
                message="node(s) had untolerated taint(s)",
                detail=f"{meaning}taint {taint.key}{value}:{taint.effect} is not tolerated",
            )


# Taints that the node controller keeps in step with a node's conditions.
_CONDITIONS = {
    "node.kubernetes.io/not-ready": "it is not ready: ",
    "node.kubernetes.io/unreachable": "its kubelet is not heard of: ",
    "node.kubernetes.io/disk-pressure": "its disk is full: ",
    "node.kubernetes.io/memory-pressure": "its memory is short: ",
    "node.kubernetes.io/pid-pressure": "it has too many processes: ",
    "node.kubernetes.io/network-unavailable": "its network is not set up: ",
    "node.cloudprovider.kubernetes.io/uninitialized": "its cloud has not set it up: ",
}


def _is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _refusals_by_named_nodes(pod: Pod, node: Node) -> Iterator[Refusal]:
    """Of a pod whose affinity names its nodes the scheduler looks at no others at all."""
    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None or not required.node_selector_terms:
        return

    named: set[str] = set()
    for term in required.node_selector_terms:
        lists = [
            set(field.values)
            for field in term.match_fields
            if (field.key, field.operator) == ("metadata.name", "In")
        ]
        if not lists:
            return
        named |= set.intersection(*lists)
    if named and node.metadata.name not in named:
        yield Refusal(
            rule="NodeAffinity",
            message="node(s) didn't satisfy plugin(s) [NodeAffinity]",
            detail=f"the pod's node affinity names {', '.join(sorted(named))}",
        )


def _refusals_by_selector(pod: Pod, node: Node) -> Iterator[Refusal]:
    message = "node(s) didn't match Pod's node affinity/selector"
    labels = node.metadata.labels
    for name, value in pod.spec.node_selector.items():
        if labels.get(name) != value:
            actual = f"has {name}={labels[name]}" if name in labels else f"has no label {name}"
            detail = f"nodeSelector asks for {name}={value}, it {actual}"
            yield Refusal(rule="NodeAffinity", message=message, detail=detail)

    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return
    try:
        if nodes.selects(required, node):
            return
        detail = f"its labels do not match the pod's node affinity{_describe_unmet(required, node)}"
    except ValueError as error:
        # The API server refuses such a selector; one that came by another way selects nothing.
        detail = f"the pod's node affinity cannot be evaluated: {error}"
    yield Refusal(rule="NodeAffinity", message=message, detail=detail)


def _describe_unmet(required: NodeSelector, node: Node) -> str:
    """What the affinity asks for beside what the node has; nothing where it has alternatives."""
    if len(required.node_selector_terms) != 1:
        return ""

    labels = node.metadata.labels
    unmet = []
    for requirement in required.node_selector_terms[0].match_expressions:
        term = NodeSelectorTerm(match_expressions=[requirement])
        if nodes.selects(NodeSelector(node_selector_terms=[term]), node):
            continue
        key = requirement.key
        actual = f"has {key}={labels[key]}" if key in labels else f"has no label {key}"
        unmet.append(f"{_format_requirement(requirement)}, it {actual}")
    return f": {'; '.join(unmet)}" if unmet else ""


def _format_requirement(requirement: NodeSelectorRequirement) -> str:
    """As kubectl writes it."""
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            return f"{key} in ({', '.join(values)})"
        case "NotIn":
            return f"{key} notin ({', '.join(values)})"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case "Gt":
            return f"{key}>{values[0]}"
    return f"{key}<{values[0]}"


def _refusals_by_ports(pod: Pod, neighbours: Iterable[Pod]) -> Iterator[Refusal]:
    wanted = pod.host_ports
    if not wanted:
        return
    for neighbour in neighbours:
        for port in sorted(wanted):
            if any(_is_conflicting(port, other) for other in neighbour.host_ports):
                number, protocol, _ = port
                yield Refusal(
                    rule="NodePorts",
                    message="node(s) didn't have free ports for the requested pod ports",
                    detail=f"host port {number}/{protocol} is taken by pod {neighbour.key}",
                    is_resolvable=True,
                )


def _is_conflicting(left: tuple[int, str, str], right: tuple[int, str, str]) -> bool:
    """Whether two host ports cannot be open at the same time; 0.0.0.0 is every address."""
    addresses = {left[2], right[2]}
    return left[:2] == right[:2] and (len(addresses) == 1 or "0.0.0.0" in addresses)  # noqa: S104


def _refusals_by_resources(
    pod: Pod, node: Node, used: Mapping[str, int], by_claims: Collection[str]
) -> Iterator[Refusal]:
    for shortage in resources.shortages(pod, node, used, by_claims):
        yield Refusal(
            rule="NodeResourcesFit",
            message=shortage.message,
            detail=shortage.detail,
            is_resolvable=shortage.is_resolvable,
        )
