"""The answer in a line: what stands in the way on how many nodes; and what would help."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimd.kubernetes.allocator import amounts

from . import groups

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.filters import Refusal

    from .answer import Answer, Group, NodeAnswer

# What the line names one by one.
_GROUPS = 3
_WAYS = 3
# Labels that say what a node is: another value would be a lie.
_LABELS_OF_FACT = (
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
)
_NOT_LOOKED_AT = "not looked at: "
_NOT_DECIDED = "not decided: "


def with_line(answer: Answer) -> Answer:
    """The answer with its line."""
    return dataclasses.replace(answer, line=_line(answer))


def _line(answer: Answer) -> str:
    if answer.blockers:
        return f"{answer.subject}: {answer.blockers[0]}"
    if not answer.nodes:
        return f"{answer.subject}: no nodes are known"
    line = f"{answer.subject}: {count(answer)}"
    if any(node.outcome == "yes" for node in answer.nodes):
        return line + _reservation(answer)
    return f"{line}: {'; '.join(obstacles(answer))}"


def _reservation(answer: Answer) -> str:
    """What a yes leaves out: the scheduler's own word of it where there is one."""
    refused = [quote.unseen for quote in answer.quotes if quote.unseen]
    if refused:
        return f" by the rules that are looked at, but the scheduler says: {refused[0]}"
    unseen = [note for note in answer.notes if note.startswith(_NOT_LOOKED_AT)]
    return f" as far as it can be told; {unseen[0]}" if unseen else ""


def count(answer: Answer) -> str:
    """How many nodes are good for it."""
    outcomes = Counter(node.outcome for node in answer.nodes)
    if outcomes["unknown"] == len(answer.nodes):
        nodes = "the only node" if len(answer.nodes) == 1 else f"any of {len(answer.nodes)} nodes"
        return f"not decided in time on {nodes}"
    line = f"{outcomes['yes']} of {len(answer.nodes)} nodes {answer.can}"
    if outcomes["unknown"]:
        line += f", {outcomes['unknown']} not decided in time"
    return line


def obstacles(answer: Answer) -> list[str]:
    """Each group with its number of nodes, the largest first; a single node with its own words.

    Nothing where no node was looked at, or where one is good for it.
    """
    is_possible = any(node.outcome == "yes" for node in answer.nodes)
    if answer.blockers or is_possible or not answer.nodes:
        return []
    if len(answer.nodes) == 1 or all(node.outcome == "unknown" for node in answer.nodes):
        node = answer.nodes[0]
        words = own_words(node).removeprefix(_NOT_DECIDED)
        return [f"on {node.node} {words}" if node.refusals else words]

    by_size = sorted(answer.groups, key=lambda group: -len(group.nodes))
    parts = []
    # One more is as short as to say that there is one more.
    named = by_size if len(by_size) == _GROUPS + 1 else by_size[:_GROUPS]
    for group in named:
        who = group.nodes[0] if len(group.nodes) == 1 else str(len(group.nodes))
        if len(group.nodes) == len(answer.nodes):
            who = "both" if len(group.nodes) == 2 else f"all {len(group.nodes)}"
        parts.append(f"{who} {groups.predicate_of(group)}")
    others = sum(len(group.nodes) for group in by_size[len(named) :])
    if others:
        parts.append(f"{others} for other reasons")
    return parts


def own_words(node: NodeAnswer) -> str:
    """What keeps the pod from this node, with all figures."""
    if node.refusals:
        return "; ".join(node.refusals)
    if not any(request.devices for request in groups.requests(node)):
        summary = node.summary.replace(" devices here", f" devices on {node.node}")
        return f"{summary}: {'; '.join(node.pools)}" if node.pools else summary
    if not node.shortage.counts:
        return node.summary
    count = node.shortage.counts[0]
    # More devices of this kind would be needed, whatever the others lack.
    if len(count.requests) > 1 and 0 < count.there < count.needed:
        return str(count)
    if count.obstacle or (count.holders and count.suitable >= count.needed):
        return str(count)
    obstacle = groups.obstacle(count, node)
    return f"{count}: {obstacle}" if obstacle else str(count)


# What would help


def ways_out(node: NodeAnswer) -> Iterator[str]:
    """Changes that would make the node good for it, each line one way; the easiest first."""
    # Two rules may be about the same: a node that is not ready has two taints.
    undone = [_remedy_for(refusal, node.node) for refusal in node.refused_by]
    first = list(dict.fromkeys(undone))
    if not all(first):
        return
    remedies = [str(remedy) for remedy in node.shortage.remedies[:_WAYS]]
    if node.devices in (None, "yes"):
        remedies = [""]
    for remedy in remedies:
        way = ", and ".join(filter(None, [*first, remedy]))
        if way:
            yield way


def _remedy_for(refusal: Refusal, node: str) -> str:
    """What would take the rule out of the way; nothing where there is no single such thing."""
    detail = refusal.detail
    match refusal.rule:
        case "NodeUnschedulable":
            return f"uncordon {node}"
        case "TaintToleration":
            _, separator, taint = detail.rpartition("taint ")
            if separator and not detail.startswith("it"):
                return f"tolerate {taint.removesuffix(' is not tolerated')}, or take it from {node}"
            return f"get {node} ready"
        case "NodeAffinity":
            asked, separator, _ = detail.partition(", it ")
            label = asked.removeprefix("nodeSelector asks for ")
            is_fact = label.partition("=")[0] in _LABELS_OF_FACT
            if separator and label != asked and not is_fact:
                return f"label {node} {label}"
        case "NodeResourcesFit":
            return _remedy_for_resource(refusal, node)
        case "NodePorts":
            return f"free {detail.partition(' is taken')[0]} on {node}"
    return ""


def _remedy_for_resource(refusal: Refusal, node: str) -> str:
    resource, separator, figures = refusal.detail.partition(": the pod requests ")
    if not separator:
        return ""
    requested, _, rest = figures.partition(", ")
    left, _, rest = rest.partition(" of ")
    whole = rest.removesuffix(" are left")

    is_enough = amounts.parse(requested) <= amounts.parse(whole)
    if left == "0":
        return f"free some {resource} on {node}" if is_enough else ""
    less = f"ask for at most {left} {resource}"
    return f"{less} or free some on {node}" if is_enough else less


def group_title(group: Group) -> str:
    """A group as a line of its own begins."""
    noun = "node" if len(group.nodes) == 1 else "nodes"
    return f"{len(group.nodes)} {noun} {groups.predicate_of(group)}"
