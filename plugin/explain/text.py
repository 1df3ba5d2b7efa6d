"""An answer as text for people, and as data for tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from . import pending

if TYPE_CHECKING:
    from ..allocator import DeviceID
    from ..allocator.verdicts import ClaimVerdict, DeviceVerdict, RequestVerdict
    from .answer import Answer, NodeAnswer

# What text names one by one; the rest is counted, and JSON has all.
_NODES = 3
_GROUPS = 6
_REASONS = 3
_DEVICES = 2
_NAMES = 4


def as_data(answer: Answer) -> dict[str, Any]:
    """Everything, with what text works out from it."""
    data: dict[str, Any] = msgspec.to_builtins(answer)
    for node, of_node in zip(answer.nodes, data["nodes"], strict=True):
        of_node["allocation"] = [str(device) for device in node.allocation]
        for claim, of_claim in zip(node.claims, of_node["claims"], strict=True):
            for request, of_request in zip(claim.requests, of_claim["requests"], strict=True):
                _complete(of_request, request)
    return data


def _complete(data: dict[str, Any], request: RequestVerdict) -> None:
    data["suitable"] = request.suitable
    data["nearest"] = [str(verdict.device) for verdict in request.nearest]
    for verdict, of_device in zip(request.devices, data["devices"], strict=True):
        of_device["device"] = str(verdict.device)


def as_text(answer: Answer) -> str:
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: Answer) -> Iterator[str]:
    yield _first_line(answer)
    for blocker in answer.blockers[1:]:
        yield f"  also: {blocker}"
    if answer.blockers and answer.nodes:
        yield f"  without that: {_count(answer)}"
    for note in answer.notes:
        yield f"  note: {note}"

    good = [node for node in answer.nodes if node.outcome == "yes"]
    refused = [node for node in answer.nodes if node.refusals]
    short = [node for node in answer.nodes if node.outcome != "yes" and not node.refusals]
    short.sort(key=_missing)
    for nodes in (good, short):
        for node in nodes[:_NODES]:
            yield from _node_lines(node)
    yield from _counted(good[_NODES:], short[_NODES:])
    # One node is told of in full, whatever keeps the pod away from it.
    if len(answer.nodes) == 1:
        for node in refused:
            yield from _node_lines(node)
    else:
        yield from _refused(refused)


def _first_line(answer: Answer) -> str:
    if answer.blockers:
        return f"{answer.subject}: {answer.blockers[0]}"
    if answer.nodes:
        return f"{answer.subject}: {_count(answer)}"
    return answer.subject


def _count(answer: Answer) -> str:
    outcomes = Counter(node.outcome for node in answer.nodes)
    count = f"{outcomes['yes']} of {len(answer.nodes)} nodes {answer.can}"
    if outcomes["unknown"]:
        count += f", {outcomes['unknown']} not decided in time"
    return count


# Nodes one by one


def _node_lines(node: NodeAnswer) -> Iterator[str]:
    yield ""
    yield f"node {node.node}: {_outcome(node)}"
    for trouble in node.pools:
        yield f"  {trouble}"
    for claim in node.claims:
        yield from _claim_lines(node, claim)


def _outcome(node: NodeAnswer) -> str:
    if node.outcome == "yes" and not node.summary:
        if not node.allocation:
            return "yes"
        return f"yes: would get {', '.join(_short(node, device) for device in node.allocation)}"
    if node.refusals and node.allocation:
        return f"{node.outcome}: {node.summary} (it has the devices)"
    return f"{node.outcome}: {node.summary}"


def _missing(node: NodeAnswer) -> tuple[bool, int]:
    """The nodes that lack the fewest devices come first, those that have nothing to look at last."""
    requests = [request for claim in node.claims for request in claim.requests]
    has_devices = any(request.devices for request in requests)
    missing = sum(max(0, request.needed - request.suitable) for request in requests)
    return not has_devices, missing


def _claim_lines(node: NodeAnswer, claim: ClaimVerdict) -> Iterator[str]:
    """What the node's own line has not said."""
    for constraint in claim.constraints:
        if constraint not in node.summary:
            yield f"  {constraint}"
    for request in claim.requests:
        is_short = bool(request.devices) and request.suitable < request.needed
        if node.outcome != "yes" and not is_short:
            continue
        if not node.summary.endswith((str(request), pending.in_class(request))):
            yield f"  claim {claim.claim}: {request}"
        yield from _reason_lines(node, request)


def _reason_lines(node: NodeAnswer, request: RequestVerdict) -> Iterator[str]:
    """Devices that lack the same, the nearest misses first."""
    by_text: dict[str, list[DeviceVerdict]] = {}
    for verdict in request.devices:
        if verdict.reasons:
            text = "; ".join(reason.text for reason in verdict.reasons)
            by_text.setdefault(text, []).append(verdict)
    groups = sorted(by_text.items(), key=lambda group: (len(group[1][0].reasons), -len(group[1])))

    for text, verdicts in groups[:_REASONS]:
        names = ", ".join(_short(node, verdict.device) for verdict in verdicts[:_DEVICES])
        more = f" and {len(verdicts) - _DEVICES} more" if len(verdicts) > _DEVICES else ""
        yield f"    {names}{more}: {text}"

    kinds: Counter[str] = Counter()
    for _, verdicts in groups[_REASONS:]:
        kinds.update(map(_kind, verdicts))
    for kind, count in kinds.most_common(_REASONS):
        yield f"    {count} more: {kind}"
    if len(kinds) > _REASONS:
        told = sum(count for _, count in kinds.most_common(_REASONS))
        yield f"    {kinds.total() - told} more for other reasons"


def _kind(verdict: DeviceVerdict) -> str:
    """The reasons without what is this device's alone."""
    kinds = set()
    for reason in verdict.reasons:
        kinds.add("held by claims" if reason.rule == "held" else reason.text.partition(": ")[0])
    return " and ".join(sorted(kinds))


def _short(node: NodeAnswer, device: DeviceID) -> str:
    """Most pools are named after their node."""
    return device.device if device.pool == node.node else f"{device.pool}/{device.device}"


# Nodes by what they have in common


def _counted(good: Sequence[NodeAnswer], short: Sequence[NodeAnswer]) -> Iterator[str]:
    """The nodes that are not named, by their outcome."""
    outcomes = Counter(map(_outcome, short))
    if good:
        outcomes["yes"] = len(good)
    if not outcomes:
        return
    yield ""
    for outcome, count in outcomes.most_common(_GROUPS):
        yield f"{count} more nodes: {outcome}"
    untold = len(outcomes) - _GROUPS
    if untold > 0:
        yield f"and nodes with {untold} other outcomes: look with --node or -o json"


def _refused(nodes: Sequence[NodeAnswer]) -> Iterator[str]:
    """The nodes that the pod may not go to, whatever devices they have."""
    by_refusals: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        by_refusals.setdefault(node.refusals, []).append(node.node)
    if not by_refusals:
        return

    yield ""
    groups = sorted(by_refusals.items(), key=lambda group: -len(group[1]))
    for refusals, names in groups[:_GROUPS]:
        shown = ", ".join(names[:_NAMES])
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        noun = "node" if len(names) == 1 else "nodes"
        yield f"{noun} {shown}{more}: no: {'; '.join(refusals)}"
    untold = sum(len(names) for _, names in groups[_GROUPS:])
    if untold:
        yield f"and {untold} more nodes for other reasons: look with --node or -o json"
