"""The scheduler's filter plugins that look at one node and one pod, except those for devices.

The rules, their order and their messages are those of kube-scheduler.
"""

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

# The taint of a cordoned node. A pod that tolerates it may go to a cordoned node.
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """A rule that keeps the pod from a node.

    `rule` is the name of the scheduler's plugin and `message` is the plugin's own message. `detail`
    is the same for people: it has what the pod asks for and what the node has. `is_resolvable` is
    True if the removal of pods from the node could help.
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
    """Yields the reasons why the pod cannot go to this node, in the order of the scheduler's rules.

    A node that takes the pod has no reasons. The scheduler itself stops after the first rule that
    refuses, and reports all reasons of that rule: see `first_refusals`. `used` is the sum of the
    requests of the node's pods, and `neighbours` are these pods. `by_claims` has the resources that
    a claim provides instead of the node.
    """
    # The scheduler leaves out the nodes that the affinity does not name before it runs any filter.
    named_elsewhere = list(_refusals_by_named_nodes(pod, node))
    yield from named_elsewhere

    yield from _refusals_of_cordon(pod, node)
    yield from _refusals_by_taints(pod, node)
    if not named_elsewhere:
        # Otherwise the same affinity would refuse the node a second time.
        yield from _refusals_by_selector(pod, node)

    yield from _refusals_by_ports(pod, neighbours)
    yield from _refusals_by_resources(pod, node, used, by_claims)


def first_refusals(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Returns the refusals of the first rule that refuses: the scheduler reports no others."""
    first: list[Refusal] = []
    for refusal in refusals:
        if first and refusal.rule != first[0].rule:
            break
        first.append(refusal)
    return first


def is_selected(pod: Pod, node: Node) -> bool:
    """Returns True if the pod's nodeSelector and required node affinity match the node."""
    return not any(_refusals_by_selector(pod, node))


def is_tolerating(pod: Pod, node: Node) -> bool:
    """Returns True if the pod tolerates all NoSchedule and NoExecute taints of the node."""
    return not any(_refusals_by_taints(pod, node))


def count_unwelcome_taints(pod: Pod, node: Node) -> int:
    """Returns the number of PreferNoSchedule taints that the pod does not tolerate."""
    count = 0
    for taint in node.spec.taints:
        if taint.effect == "PreferNoSchedule" and not _is_tolerated(taint, pod.spec.tolerations):
            count += 1
    return count


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Returns True if the label selector matches the labels; an empty selector matches all."""
    for name, value in selector.match_labels.items():
        if labels.get(name) != value:
            return False

    for requirement in selector.match_expressions:
        match requirement.operator:
            case "In":
                matches = labels.get(requirement.key) in requirement.values
            case "NotIn":
                # A missing label matches, too.
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
        # The node controller adds this taint to a cordoned node a moment later. The cordon itself
        # is reported already.
        if taint.key == UNSCHEDULABLE.key and node.spec.unschedulable:
            continue

        if not _is_tolerated(taint, pod.spec.tolerations):
            value = f"={taint.value}" if taint.value else ""
            meaning = _CONDITIONS.get(taint.key, "")
            # The API server adds tolerations of such conditions to every pod: nobody meant these.
            but = "" if meaning else _describe_near_misses(taint, pod.spec.tolerations)
            yield Refusal(
                rule="TaintToleration",
                message="node(s) had untolerated taint(s)",
                detail=f"{meaning}taint {taint.key}{value}:{taint.effect} is not tolerated{but}",
            )


# The taints that the node controller derives from a node's conditions, in words for people.
_CONDITIONS = {
    "node.kubernetes.io/not-ready": "it is not ready: ",
    "node.kubernetes.io/unreachable": "its kubelet has stopped reporting: ",
    "node.kubernetes.io/disk-pressure": "its disk is full: ",
    "node.kubernetes.io/memory-pressure": "its memory is short: ",
    "node.kubernetes.io/pid-pressure": "it has too many processes: ",
    "node.kubernetes.io/network-unavailable": "its network is not set up: ",
    "node.cloudprovider.kubernetes.io/uninitialized": "its cloud has not set it up: ",
}


def _is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Returns True if the toleration matches the taint."""
    # An empty effect or key matches every one.
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _describe_near_misses(taint: Taint, tolerations: Iterable[Toleration]) -> str:
    """Returns in parentheses what the pod tolerates of this key instead, or "" if nothing."""
    near = []
    for toleration in tolerations:
        if toleration.key != taint.key:
            continue
        match toleration.operator:
            case "Exists":
                words = toleration.key
            case "" | "Equal":
                value = f"={toleration.value}" if toleration.value else " without a value"
                words = toleration.key + value
            case operator:
                words = f"{toleration.key} {operator} {toleration.value}"
        if toleration.effect not in ("", taint.effect):
            words += f" only for {toleration.effect}"
        near.append(words)
    return f" (the pod tolerates {', '.join(near)})" if near else ""


def _refusals_by_named_nodes(pod: Pod, node: Node) -> Iterator[Refusal]:
    """Refuses a node that the pod's affinity does not name, if it names its nodes."""
    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None or not required.node_selector_terms:
        return

    # The terms are alternatives. One term without names allows nodes of any name.
    named: set[str] = set()
    for term in required.node_selector_terms:
        lists = []
        for field in term.match_fields:
            if (field.key, field.operator) == ("metadata.name", "In"):
                lists.append(set(field.values))
        if not lists:
            return
        # All requirements of one term have to hold.
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
        # The API server refuses such a selector. One that was read from a file selects no node.
        detail = f"the pod's node affinity cannot be evaluated: {error}"
    yield Refusal(rule="NodeAffinity", message=message, detail=detail)


def _describe_unmet(required: NodeSelector, node: Node) -> str:
    """Describes the unmet requirements and what the node has; "" if there are several terms."""
    # The terms are alternatives, so none of them alone is the reason.
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
    """Formats a requirement in the syntax of kubectl's label selectors."""
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
    """Returns True if two host ports cannot be open at once; 0.0.0.0 stands for every address."""
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
