"""Nodes by what keeps a pod away from them, and which of them is the nearest miss."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .answer import Group, NodeAnswer

if TYPE_CHECKING:
    from claimd.kubernetes.allocator.causes import Count
    from claimd.kubernetes.allocator.verdicts import Reason, RequestVerdict
    from claimd.kubernetes.scheduling.filters import Refusal

# More than any node lacks of what it has at all.
_FAR = 1000
# In an error: another device on each node.
_ON_DEVICE = re.compile(r" on device \S+(?=:)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cause:
    """What keeps the pod from a node, in words that hold for other nodes as well.

    `verb` and `text` say it of nodes: "be" "cordoned", "have" "too few free GPUs". `detail` is what
    comes after the figures.
    """

    verb: str
    text: str
    detail: str = ""


def group_nodes(nodes: Sequence[NodeAnswer]) -> tuple[Group, ...]:
    """The nodes that are not good for it, by their causes: the nearest misses first."""
    by_causes: dict[tuple[Cause, ...], list[NodeAnswer]] = {}
    for node in nodes:
        if node.outcome != "yes":
            by_causes.setdefault(causes_of(node), []).append(node)

    ordered = sorted(
        by_causes.items(), key=lambda group: (min(map(distance, group[1])), -len(group[1]))
    )
    return tuple(_group(causes, members) for causes, members in ordered)


def _group(causes: tuple[Cause, ...], members: Sequence[NodeAnswer]) -> Group:
    nearest = min(members, key=distance)
    # What is known in full is told of rather than what is only like it.
    if nearest.like:
        nearest = next(
            (node for node in members if not node.like and distance(node) == distance(nearest)),
            nearest,
        )
    forms = _PLURAL if len(members) > 1 else _SINGULAR
    text = causes[0].text + _figures(members)
    if causes[0].detail:
        text += f": {causes[0].detail}"
    for cause in causes[1:]:
        verb = "" if cause.verb == causes[0].verb else f"{forms[cause.verb]} "
        text += f" and {verb}{cause.text}"
    return Group(
        causes=tuple(cause.text for cause in causes),
        outcome=nearest.outcome,
        verb=causes[0].verb,
        text=text,
        nodes=tuple(node.node for node in members),
        nearest=nearest.node,
        have_devices=sum(bool(node.refusals) and node.devices == "yes" for node in members),
    )


def predicate_of(group: Group) -> str:
    """The group's text with its verb, of as many nodes as there are."""
    forms = _PLURAL if len(group.nodes) > 1 else _SINGULAR
    return f"{forms[group.verb]} {group.text}"


_SINGULAR = {"be": "is", "have": "has", "do": "does"}
_PLURAL = {"be": "are", "have": "have", "do": "do"}


def distance(node: NodeAnswer) -> tuple[bool, int, int]:
    """How far the node is from good: devices that are not there at all, what is missing, rules."""
    missing = _count_missing(node)
    return missing >= _FAR, missing + len(node.refusals), len(node.refusals)


def _count_missing(node: NodeAnswer) -> int:
    """How many devices are missing; _FAR where that is no question of how many."""
    if node.devices in ("yes", None):
        return 0
    counts = node.shortage.counts
    if node.devices != "no" or not counts:
        return _FAR
    missing = 0
    for count in counts:
        if not count.suitable:
            return _FAR
        missing += max(count.needed - count.free, 1)
    return missing


def requests(node: NodeAnswer) -> list[RequestVerdict]:
    return [request for claim in node.claims for request in claim.requests]


# What keeps it away


def causes_of(node: NodeAnswer) -> tuple[Cause, ...]:
    """The rules about the node, or else what is short of devices there."""
    if node.refused_by:
        causes = [_cause_of_refusal(refusal) for refusal in node.refused_by]
        return tuple(dict.fromkeys(causes))
    if node.outcome == "unknown":
        return (Cause(verb="be", text="not decided in time"),)
    if node.outcome == "error":
        text = _ON_DEVICE.sub("", _strip_claim(node.summary))
        return (Cause(verb="have", text=f"an error: {text}"),)
    if not any(request.devices for request in requests(node)):
        if not node.pools:
            return (Cause(verb="have", text="no driver with devices"),)
        state = "incomplete" if any("is incomplete" in pool for pool in node.pools) else "invalid"
        return (Cause(verb="have", text=f"no devices that can be used: a pool is {state}"),)
    if node.shortage.counts:
        return (_cause_of_shortage(node.shortage.counts[0], node),)
    return (Cause(verb="have", text=f"not all together: {_strip_claim(node.summary)}"),)


def _strip_claim(summary: str) -> str:
    head, separator, rest = summary.partition(": ")
    return rest if separator and head.startswith("claim ") else summary


def _cause_of_refusal(refusal: Refusal) -> Cause:
    detail = refusal.detail
    match refusal.rule:
        case "NodeUnschedulable":
            return Cause(verb="be", text="cordoned")
        case "NodeResourcesFit":
            resource = refusal.message.removeprefix("Insufficient ")
            if resource == refusal.message:
                return Cause(verb="have", text="as many pods as they may")
            if detail.startswith("it has no "):
                return Cause(verb="have", text=f"no {resource}")
            return Cause(verb="have", text=f"too little {resource} left")
        case "NodePorts":
            return Cause(verb="have", text=f"{detail.partition(' is taken')[0]} taken")
        case "TaintToleration":
            return _cause_of_taint(detail)
        case "NodeAffinity":
            asked = detail.partition(", it ")[0]
            if asked.startswith("nodeSelector asks for "):
                label = asked.removeprefix("nodeSelector asks for ")
                return Cause(verb="do", text=f"not match the nodeSelector {label}")
            if asked.startswith("its labels do not match"):
                return Cause(verb="do", text="not match the pod's node affinity")
            if asked.startswith("the pod's node affinity names"):
                return Cause(verb="be", text=f"not meant: {asked}")
        case "DynamicResources":
            claim, _, place = detail.partition(" is allocated on ")
            return Cause(
                verb="do", text=f"not have the devices that {claim} got already, on {place}"
            )
    return Cause(verb="be", text=f"refused: {detail}")


def _cause_of_taint(detail: str) -> Cause:
    meaning, separator, taint = detail.rpartition("taint ")
    if not separator:
        return Cause(verb="be", text="not ready")
    if meaning.startswith("it is not ready"):
        return Cause(verb="be", text="not ready")
    if meaning.startswith("its kubelet is not heard of"):
        return Cause(verb="be", text="unreachable: the kubelet is not heard of")
    name = taint.removesuffix(" is not tolerated")
    return Cause(verb="have", text=f"the taint {name}, which is not tolerated")


def _cause_of_shortage(count: Count, node: NodeAnswer) -> Cause:
    scope = f" {count.scope}" if count.scope else ""
    detail = obstacle(count, node)
    if count.suitable >= count.needed:
        return Cause(verb="have", text=f"too few free {count.noun}{scope}", detail=detail)
    suiting = "" if count.there < count.needed else " that suit"
    return Cause(verb="have", text=f"too few {count.noun}{scope}{suiting}", detail=detail)


def obstacle(count: Count, node: NodeAnswer) -> str:
    """What keeps away most of the devices that are nearest to what the first request asks for."""
    for claim in node.claims:
        for request in claim.requests:
            if f"{claim.claim}: {request.request}" not in count.requests:
                continue
            # Who holds what differs from node to node.
            reasons = Counter(
                _strip_sharers(device.reasons[0])
                for device in request.nearest
                if device.reasons[0].rule != "held"
            )
            if reasons:
                return reasons.most_common(1)[0][0]
    return ""


def _strip_sharers(reason: Reason) -> str:
    return reason.text.partition("; ")[0] if reason.rule == "consumed" else reason.text


def _figures(members: Sequence[NodeAnswer]) -> str:
    """How many are needed, and how many the nodes have."""
    if members[0].refused_by:
        return ""
    # Nodes that were not decided in time, say, are alike whether something was counted or not.
    if not all(node.shortage.counts for node in members):
        return ""
    counts = [node.shortage.counts[0] for node in members]
    # All devices of a node are more on one node than on another.
    needed = _range([count.needed for count in counts])
    have = _range([_number_at_stage(count) for count in counts])
    held = ", others held by claims" if any(count.holders for count in counts) else ""
    return f" ({needed} needed, {have} {_stage(counts[0])}{held})"


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


def _stage(count: Count) -> str:
    """What too few of the devices are."""
    if count.there < count.needed:
        return "there"
    return "suit" if count.suitable < count.needed else "free"


def _number_at_stage(count: Count) -> int:
    if count.there < count.needed:
        return count.there
    return count.suitable if count.suitable < count.needed else count.free
