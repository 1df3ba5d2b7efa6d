"""Answers as text for people, and as data for tools."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from claimd.common import plain_text

from . import groups, headline, pending

if TYPE_CHECKING:
    from claimd.kubernetes.allocator import DeviceID
    from claimd.kubernetes.allocator.verdicts import ClaimVerdict, DeviceVerdict, RequestVerdict

    from .answer import Answer, Group, NodeAnswer, Quote
    from .survey import Survey

# The numbers of items that text names one by one. It counts the rest, and JSON has everything.
_NODES = 3
_GROUPS = 6
_REASONS = 3
_DEVICES = 2
_NAMES = 4
_WAYS = 2
_PODS = 12


def as_data(answer: Answer) -> dict[str, Any]:
    """Returns the whole answer as plain data, with the fields that text derives from it.

    If another node was judged in place of a node, the node has only the facts that hold for both.
    The devices of the judged node, and the claims that hold them, are in the data of the judged
    node alone.
    """
    nodes = tuple(map(_strip_judged_node, answer.nodes))
    answer = dataclasses.replace(answer, nodes=nodes)
    data: dict[str, Any] = msgspec.to_builtins(answer)

    # Ids of devices become text, and derived values are added.
    for node, of_node in zip(answer.nodes, data["nodes"], strict=True):
        of_node["allocation"] = list(map(str, node.allocation))
        for claim, of_claim in zip(node.claims, of_node["claims"], strict=True):
            for request, of_request in zip(claim.requests, of_claim["requests"], strict=True):
                _add_derived_fields(of_request, request)
    return data


def _strip_judged_node(node: NodeAnswer) -> NodeAnswer:
    """Returns the node's answer without the details of the node that was judged in its place."""
    if not node.like:
        return node

    counts = tuple(dataclasses.replace(count, holders=()) for count in node.shortage.counts)
    summary = node.summary
    if node.shortage.counts:
        # The claims that hold devices differ from node to node.
        own = node.shortage.counts[0].headline
        summary = summary.replace(str(node.shortage.counts[0]), own)
    return dataclasses.replace(
        node,
        summary=summary,
        claims=(),
        shortage=dataclasses.replace(node.shortage, counts=counts, remedies=()),
    )


def _add_derived_fields(data: dict[str, Any], request: RequestVerdict) -> None:
    data["suitable"] = request.suitable
    data["nearest"] = [str(verdict.device) for verdict in request.nearest]
    for verdict, of_device in zip(request.devices, data["devices"], strict=True):
        of_device["device"] = str(verdict.device)


def survey_data(survey: Survey) -> dict[str, Any]:
    """Returns a survey as plain data, without the single nodes of its answers."""
    data: dict[str, Any] = msgspec.to_builtins(survey)
    for group in data["groups"]:
        del group["answer"]["nodes"]
    return data


def survey_text(survey: Survey) -> str:
    """Returns a survey as text, with a few lines for each group of pods."""
    lines = [survey.line, *(f"  note: {note}" for note in survey.notes)]
    for group in survey.groups[:_PODS]:
        shown = ", ".join(group.pods[:_NAMES])
        more = f" and {len(group.pods) - _NAMES} more" if len(group.pods) > _NAMES else ""
        noun = "pod" if len(group.pods) == 1 else "pods"
        lines += ["", f"{len(group.pods)} {noun}: {group.line}", f"    {shown}{more}"]

        # The first line of the head is that of the group, and the notes hold for all groups.
        for line in list(_head(group.answer))[1:]:
            if "note: " not in line:
                lines.append(f"  {line}")

    others = sum(len(group.pods) for group in survey.groups[_PODS:])
    if others:
        lines += ["", f"and {others} more pods for other reasons: look with -o json"]
    return _join(lines)


def as_text(answer: Answer, *, wide: bool = False) -> str:
    """Returns an answer as text of about one screen, for clusters of any size.

    `wide` shows the nodes one by one, for an answer that was asked in full.
    """
    return _join(_lines(answer, wide))


def _join(lines: Iterable[str]) -> str:
    """Returns the lines as one text.

    Each may quote objects of strangers, so none becomes two lines or controls the terminal.
    """
    return "\n".join(map(plain_text.plain_line, lines)) + "\n"


def _lines(answer: Answer, wide: bool) -> Iterator[str]:
    yield from _head(answer)

    good: list[NodeAnswer] = []
    others: list[NodeAnswer] = []
    for node in answer.nodes:
        (good if node.outcome == "yes" else others).append(node)

    # The nodes one by one, those that fit first.
    if wide or len(answer.nodes) == 1:
        for node in (*good, *sorted(others, key=groups.distance)):
            yield from _node_lines(node)
        return

    # The first nodes that fit, and the groups of those that do not.
    for node in good[:_NODES]:
        yield from _node_lines(node)
    if good[_NODES:]:
        yield f"{len(good) - _NODES} more: yes"

    by_name = {node.node: node for node in answer.nodes}
    for index, group in enumerate(answer.groups[:_GROUPS]):
        yield ""
        yield from _group_lines(group, by_name[group.nearest], in_full=index < _NODES)

    others_count = sum(len(group.nodes) for group in answer.groups[_GROUPS:])
    if others_count:
        yield ""
        yield f"and {others_count} more nodes for other reasons: look with --node, --all or -o json"


def _head(answer: Answer) -> Iterator[str]:
    """Yields the answer, the changes that would help, and all quotes, changes and notes."""
    yield answer.line
    if answer.blockers and answer.blockers[0] not in answer.line:
        yield f"  in full: {answer.blockers[0]}"
    for detail in answer.details:
        yield f"  {detail}"
    for blocker in answer.blockers[1:]:
        yield f"  also: {blocker}"
    for remedy in answer.remedies:
        yield f"  would help: {remedy}"
    if answer.blockers and answer.nodes:
        yield f"  without that: {headline.count(answer)}"
    if answer.nearest and len(answer.nodes) > 1:
        nearest = next(node for node in answer.nodes if node.node == answer.nearest)
        yield f"  nearest miss: {nearest.node}: {headline.own_words(nearest)}"
    if answer.help:
        yield f"  would help on {answer.nearest}: {'; or '.join(answer.help[:_WAYS])}"
    for quote in answer.quotes:
        yield from _quote_lines(quote)
    for change in answer.changes:
        yield f"  as if: {change}"
    for note in answer.notes:
        yield f"  note: {note}"


def _quote_lines(quote: Quote) -> Iterator[str]:
    when = f" at {quote.when}" if quote.when else ""
    yield f'  the scheduler says{when}: "{quote.text}"'
    for difference in quote.differences:
        yield f"    but {difference}"


# Groups of nodes


def _group_lines(group: Group, nearest: NodeAnswer, *, in_full: bool) -> Iterator[str]:
    """Yields the group with its names, and the reasons of the devices on its nearest node."""
    if len(group.nodes) == 1:
        if in_full:
            yield from _rows(nearest)
        else:
            yield f"node {nearest.node}: {_outcome(nearest)}"
        return

    shown = ", ".join(group.nodes[:_NAMES])
    more = f" and {len(group.nodes) - _NAMES} more" if len(group.nodes) > _NAMES else ""
    yield f"{headline.group_title(group)}: {shown}{more}"
    if group.have_devices:
        have = "has" if group.have_devices == 1 else "have"
        yield f"    {group.have_devices} of them {have} the devices"
    if in_full and not nearest.refusals and not nearest.like:
        for row in list(_rows(nearest))[: 1 + _REASONS]:
            yield f"  {row}"


# Single nodes


def _node_lines(node: NodeAnswer) -> Iterator[str]:
    yield ""
    yield from _rows(node)


def _rows(node: NodeAnswer) -> Iterator[str]:
    yield f"node {node.node}: {_outcome(node)}"
    for trouble in node.pools:
        yield f"  {trouble}"
    for claim in node.claims:
        yield from _claim_lines(node, claim)


def _outcome(node: NodeAnswer) -> str:
    if node.outcome == "yes" and not node.summary:
        if not node.allocation:
            return "yes"
        return f"yes: would get {_join_devices(node, node.allocation)}"
    if node.refusals and node.allocation and node.summary.endswith(")"):
        return f"{node.outcome}: {node.summary.removesuffix(')')}; the node has the devices)"
    if node.refusals and node.allocation:
        return f"{node.outcome}: {node.summary} (the node has the devices)"
    return f"{node.outcome}: {node.summary}"


def _claim_lines(node: NodeAnswer, claim: ClaimVerdict) -> Iterator[str]:
    """Yields the constraints and requests that are not in the node's own line."""
    for constraint in claim.constraints:
        if constraint not in node.summary:
            yield f"  {constraint}"
    for request in claim.requests:
        is_short = bool(request.devices) and request.suitable < request.needed
        if node.outcome != "yes" and not is_short:
            continue

        if not node.summary.endswith((str(request), pending.count_in_class(request))):
            yield f"  claim {claim.claim}: {request}"
        yield from _reason_lines(node, request)


def _reason_lines(node: NodeAnswer, request: RequestVerdict) -> Iterator[str]:
    """Yields the devices by their reasons, the nearest misses first."""
    by_text: dict[str, list[DeviceVerdict]] = {}
    for verdict in request.devices:
        if verdict.reasons:
            text = "; ".join(reason.text for reason in verdict.reasons)
            by_text.setdefault(text, []).append(verdict)

    def order(item: tuple[str, list[DeviceVerdict]]) -> tuple[int, int]:
        _, verdicts = item
        return len(verdicts[0].reasons), -len(verdicts)

    ordered = sorted(by_text.items(), key=order)
    for text, verdicts in ordered[:_REASONS]:
        names = _join_devices(node, [verdict.device for verdict in verdicts[:_DEVICES]])
        more = f" and {len(verdicts) - _DEVICES} more" if len(verdicts) > _DEVICES else ""
        yield f"    {names}{more}: {text}"

    # The other devices are counted by kinds of reasons.
    kinds: Counter[str] = Counter()
    for _, verdicts in ordered[_REASONS:]:
        kinds.update(map(_kind, verdicts))
    remaining = kinds.total()
    for kind, count in kinds.most_common(_REASONS):
        yield f"    {count} more: {kind}"
        remaining -= count
    if remaining:
        yield f"    {remaining} more for other reasons"


def _kind(verdict: DeviceVerdict) -> str:
    """Returns the reasons of a device in words that hold for other devices, too."""
    kinds = set()
    for reason in verdict.reasons:
        kinds.add("held by claims" if reason.rule == "held" else reason.text.partition(": ")[0])
    return " and ".join(sorted(kinds))


def _join_devices(node: NodeAnswer, devices: Iterable[DeviceID]) -> str:
    """Lists devices by name, with their pool unless it has the node's name."""
    names = []
    for device in devices:
        is_own_pool = device.pool in (node.node, node.like)
        names.append(device.device if is_own_pool else f"{device.pool}/{device.device}")
    return ", ".join(names)
