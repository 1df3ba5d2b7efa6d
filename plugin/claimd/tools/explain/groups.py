"""Groups of nodes that refuse a pod for the same causes, and the nearest miss of each group."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from . import remedies
from .answer import Group, NodeAnswer

if TYPE_CHECKING:
    from claimd.kubernetes.allocator.causes import Count
    from claimd.kubernetes.allocator.verdicts import Reason, RequestVerdict
    from claimd.kubernetes.scheduling.filters import Refusal

Length = Literal["full", "brief", "least"]

_NOT_TOLERATED = " is not tolerated"
# The domain with the fewest pods in `neighbours._Spread.refusal`, and the end if no other is allowed.
_FEWEST = re.compile(
    r" of its pods, (?P<who>.+) has \d+, and maxSkew is \d+(?P<only>, so only .+ is allowed)?$"
)
# The end of the detail in `question._with_class`.
_IN_PLUGIN = re.compile(r", the device plugin has \S+ of \S+ free(?P<rule>; .*)")
_WHILE = re.compile(r" while init container (?P<name>\S+) runs,")
# The figures behind a lack of devices: see `_figures`.
_FIGURES = re.compile(r" \([^()]* needed, [^()]*\)")
# The part of an error that differs between nodes with the same error.
ON_DEVICE = re.compile(r" on device \S+(?=:)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause that keeps the pod from a node, in words that hold for other nodes as well.

    `verb` and `text` form a predicate about nodes: "be" and "cordoned", or "have" and "too few free
    GPUs". `detail` follows the figures.
    """

    verb: str
    text: str
    detail: str = ""


def group_nodes(nodes: Sequence[NodeAnswer]) -> tuple[Group, ...]:
    """Returns the nodes whose outcome is not yes, by their causes, the nearest misses first."""
    by_causes: dict[tuple[Cause, ...], list[NodeAnswer]] = {}
    for node in nodes:
        if node.outcome != "yes":
            by_causes.setdefault(causes_of(node), []).append(node)

    def order(item: tuple[tuple[Cause, ...], list[NodeAnswer]]) -> tuple[object, ...]:
        _, members = item
        return min(map(distance, members)), -len(members)

    ordered = sorted(by_causes.items(), key=order)
    return tuple(_group(causes, members) for causes, members in ordered)


def _group(causes: tuple[Cause, ...], members: Sequence[NodeAnswer]) -> Group:
    nearest = min(members, key=distance)
    if nearest.like:
        # Of equally near nodes a judged one is better, as its devices are known in full.
        for node in members:
            if not node.like and distance(node) == distance(nearest):
                nearest = node
                break

    # The figures belong to the first cause. A verb is repeated only if it differs.
    forms = _PLURAL if len(members) > 1 else _SINGULAR
    brief = causes[0].text + _figures(members)
    others = ""
    for before, cause in itertools.pairwise(causes):
        verb = "" if cause.verb == before.verb else f"{forms[cause.verb]} "
        comma = "," if ", which" in before.text else ""
        others += f"{comma} and {verb}{cause.text}"
    detail = f": {causes[0].detail}" if causes[0].detail else ""

    # A rule may keep the pod from nodes that have the devices.
    have_devices = 0
    for node in members:
        if node.refusals and node.devices == "yes":
            have_devices += 1

    return Group(
        causes=tuple(cause.text for cause in causes),
        outcome=nearest.outcome,
        verb=causes[0].verb,
        text=brief + detail + others,
        brief=brief + others,
        nodes=tuple(node.node for node in members),
        nearest=nearest.node,
        have_devices=have_devices,
    )


def predicate_of(group: Group, length: Length = "full") -> str:
    """Returns the group's text with its verb in the singular or plural: "are cordoned".

    "brief" leaves out the reason of single devices, and "least" the figures as well, and that a
    taint is not tolerated.
    """
    forms = _PLURAL if len(group.nodes) > 1 else _SINGULAR
    least = group.causes[0] + group.brief[_end_of_figures(group) :]
    for cause in group.causes:
        start, is_taint, _ = cause.partition(f", which{_NOT_TOLERATED}")
        if is_taint:
            least = least.replace(f"{cause},", start).replace(cause, start)
    texts = {"full": group.text, "brief": group.brief, "least": least}
    return f"{forms[group.verb]} {texts[length]}"


def _end_of_figures(group: Group) -> int:
    """Returns where the other causes begin in the brief text, behind the figures of the first."""
    start = len(group.causes[0])
    figures = _FIGURES.match(group.brief, start)
    return figures.end() if figures else start


_SINGULAR = {"be": "is", "have": "has", "do": "does"}
_PLURAL = {"be": "are", "have": "have", "do": "do"}


def distance(node: NodeAnswer) -> tuple[int, int, int]:
    """Returns the sort key of a node, nearest first.

    Nodes with suitable devices come first, then those with devices of the class, then the others.
    Among equals the missing devices count, together with the effort to satisfy the refusing rules.
    """
    effort = sum(map(remedies.effort, node.refused_by))
    if node.devices in ("yes", None):
        return 0, effort, effort
    if node.devices != "no" or not node.shortage.counts:
        return 3, effort, effort

    stage = missing = 0
    for count in node.shortage.counts:
        if not count.suitable:
            stage = max(stage, 1 if count.there else 2)
        # One is missing at least: the devices may be there, but not in the right combination.
        missing += max(count.needed - count.free, 1)
    return stage, missing + effort, effort


def requests(node: NodeAnswer) -> list[RequestVerdict]:
    """Returns the verdicts on all requests of all claims."""
    verdicts: list[RequestVerdict] = []
    for claim in node.claims:
        verdicts += claim.requests
    return verdicts


def has_judged_devices(node: NodeAnswer) -> bool:
    """Returns True if the allocator looked at any device for the node."""
    return any(request.devices for request in requests(node))


# Causes


def causes_of(node: NodeAnswer) -> tuple[Cause, ...]:
    """Returns the refusing rules as causes, or the lack of devices if no rule refuses the pod."""
    if node.refused_by:
        # Two refusals may have the same cause.
        return tuple(dict.fromkeys(map(_cause_of_refusal, node.refused_by)))

    if node.outcome == "unknown":
        return (Cause(verb="be", text="not decided in time"),)
    if node.outcome == "error":
        text = ON_DEVICE.sub("", _strip_claim(node.summary))
        return (Cause(verb="have", text=f"an error: {text}"),)

    # The node has no devices, or its pools are not usable.
    if not has_judged_devices(node):
        if not node.pools:
            return (Cause(verb="have", text="no driver with devices"),)
        state = "incomplete" if any("is incomplete" in pool for pool in node.pools) else "invalid"
        return (Cause(verb="have", text=f"no devices that can be used: a pool is {state}"),)

    # There are devices, but too few, or they cannot be combined.
    if node.shortage.counts:
        return (_cause_of_shortage(node.shortage.counts[0], node),)
    return (Cause(verb="have", text=f"not all together: {_strip_claim(node.summary)}"),)


def _strip_claim(summary: str) -> str:
    """Removes a leading "claim NAME: ", which differs between the pods of a workload."""
    head, separator, rest = summary.partition(": ")
    return rest if separator and head.startswith("claim ") else summary


def _cause_of_refusal(refusal: Refusal) -> Cause:
    """Returns the cause without the parts of the detail that differ between nodes."""
    detail = refusal.detail
    match refusal.rule:
        case "NodeUnschedulable":
            return Cause(verb="be", text="cordoned")
        case "NodeResourcesFit":
            resource = refusal.message.removeprefix("Insufficient ")
            if resource == refusal.message:
                return Cause(verb="have", text="no room for another pod")
            if detail.startswith("it has no "):
                return Cause(verb="have", text=f"no {resource}")
            plugin = _IN_PLUGIN.search(detail)
            where = f" in the device plugin{plugin['rule']}" if plugin else ""
            when = _WHILE.search(detail)
            init = f" for init container {when['name']}" if when else ""
            return Cause(verb="have", text=f"too little {resource} left{init}{where}")
        case "NodePorts":
            return Cause(verb="have", text=f"{detail.partition(' is taken')[0]} taken")
        case "TaintToleration":
            return _cause_of_taint(detail)
        case "NodeAffinity":
            return _cause_of_affinity(detail)
        case "PodTopologySpread" if detail.startswith("topology spread over "):
            # The figures differ between the domains, and nodes of all of them go together.
            over = detail.partition(":")[0]
            fewer = _FEWEST.search(detail)
            who = fewer["who"] if fewer else "another"
            if fewer and fewer["only"]:
                text = f"refused by {over}, which allows only {who} (fewest matching pods)"
            else:
                text = f"refused by {over}: {who} has fewer matching pods"
            return Cause(verb="be", text=text)
        case "DynamicResources":
            claim, _, place = detail.partition(" is allocated on ")
            return Cause(
                verb="do", text=f"not have the devices that {claim} got already, on {place}"
            )
    if detail.startswith("it has no label "):
        return Cause(verb="have", text=detail.removeprefix("it has "))
    return Cause(verb="be", text=f"refused: {detail}")


def _cause_of_affinity(detail: str) -> Cause:
    asked = detail.partition(", it ")[0]
    if asked.startswith("nodeSelector asks for "):
        label = asked.removeprefix("nodeSelector asks for ")
        return Cause(verb="do", text=f"not match the nodeSelector {label}")
    if asked.startswith("its labels do not match"):
        return Cause(verb="do", text="not match the pod's node affinity")
    if asked.startswith("the pod's node affinity names"):
        return Cause(verb="be", text=f"not meant: {asked}")
    return Cause(verb="be", text=f"refused: {detail}")


def _cause_of_taint(detail: str) -> Cause:
    meaning, separator, taint = detail.rpartition("taint ")
    if not separator:
        return Cause(verb="be", text="not ready")
    if meaning.startswith("it is not ready"):
        return Cause(verb="be", text="not ready")
    if meaning.startswith("its kubelet has stopped reporting"):
        return Cause(verb="be", text="unreachable: its kubelet has stopped reporting")
    name, _, but = taint.partition(_NOT_TOLERATED)
    return Cause(verb="have", text=f"the taint {name}, which{_NOT_TOLERATED}{but}")


def _cause_of_shortage(count: Count, node: NodeAnswer) -> Cause:
    scope = f" {count.scope}" if count.scope else ""
    detail = obstacle(count, node)
    if count.suitable >= count.needed:
        return Cause(verb="have", text=f"too few free {count.noun}{scope}", detail=detail)
    suiting = "" if count.there < count.needed else " that suit"
    return Cause(verb="have", text=f"too few {count.noun}{scope}{suiting}", detail=detail)


def obstacle(count: Count, node: NodeAnswer) -> str:
    """Returns the most frequent reason that the nearest devices of a short request have, if any."""
    for claim in node.claims:
        for request in claim.requests:
            if f"{claim.claim}: {request.request}" not in count.requests:
                continue
            reasons: Counter[str] = Counter()
            for device in request.nearest:
                # The claims that hold a device differ from node to node.
                for reason in device.reasons:
                    if reason.rule != "held":
                        reasons[_strip_sharers(reason)] += 1
                        break
            if reasons:
                return reasons.most_common(1)[0][0]
    return ""


def _strip_sharers(reason: Reason) -> str:
    return reason.text.partition("; ")[0] if reason.rule == "consumed" else reason.text


def _figures(members: Sequence[NodeAnswer]) -> str:
    """Returns in parentheses how many devices are needed and how many the nodes have."""
    if members[0].refused_by:
        return ""

    counts = []
    for node in members:
        # Nodes that were not decided in time share a group, whether their devices were counted or
        # not.
        if not node.shortage.counts:
            return ""
        counts.append(node.shortage.counts[0])

    # A request for all devices needs more on one node than on another.
    needed = _range([count.needed for count in counts])
    have = _range(list(map(_number_at_stage, counts)))
    held = ", others held by claims" if any(map(_would_suffice, counts)) else ""
    return f" ({needed} needed, {have} {_stage(counts[0])}{held})"


def _would_suffice(count: Count) -> bool:
    """Returns True if there would be enough devices if claims gave theirs back."""
    return bool(count.holders) and count.suitable >= count.needed


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


def _stage(count: Count) -> str:
    """Returns the first stage at which too few devices are left: there, suit or free."""
    if count.there < count.needed:
        return "there"
    return "suit" if count.suitable < count.needed else "free"


def _number_at_stage(count: Count) -> int:
    """Returns the number of devices at that stage."""
    if count.there < count.needed:
        return count.there
    return count.suitable if count.suitable < count.needed else count.free
