"""The answer in one line: the causes with their numbers of nodes, and the changes that help."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import brief, evictions, groups, preconditions, remedies
from .answer import fits_somewhere

if TYPE_CHECKING:
    from claimd.kubernetes.allocator.causes import Remedy

    from .answer import Answer, Group, NodeAnswer

# The number of groups that the line names, and of remedies that are offered.
_GROUPS = 3
_WAYS = 3
# The length of the line in characters, and that of the part behind a long name of the subject. The
# first group is named whatever the length of its cause.
_LONGEST = 200
_LEAST_ROOM = 150
_LENGTHS: tuple[groups.Length, ...] = ("full", "brief", "least")
# The beginning of the taints by which claimd says that a GPU cannot be used.
_OUR_TAINTS = "claimd.dev/"
_NOT_LOOKED_AT = "not looked at: "
_NOT_DECIDED = "not decided: "


def with_line(answer: Answer) -> Answer:
    """Returns the answer with its `line` filled in."""
    return dataclasses.replace(answer, line=_line(answer))


def _line(answer: Answer) -> str:
    return f"{answer.subject}: {_predicate(answer)}"


def _predicate(answer: Answer) -> str:
    room = max(_LONGEST - len(answer.subject) - 2, _LEAST_ROOM)
    if answer.blockers:
        return brief.shorten(answer.blockers[0], room)
    if not answer.nodes:
        return "no nodes are known"

    line = count(answer)
    if fits_somewhere(answer.nodes):
        return brief.shorten(_with_reservation(line, answer), room)
    return f"{line}: {'; '.join(obstacles(answer, longest=room - len(line) - 2))}"


def _with_reservation(line: str, answer: Answer) -> str:
    """Returns the line about a "yes" with its reservation: the rules that were not checked.

    The scheduler's own message about these rules is better than our note, if there is one.
    """
    for note in answer.notes:
        if note.startswith(evictions.EVICTED):
            return f"{line}, but {note}"
    for note in answer.notes:
        if note.startswith(preconditions.OTHER_SCHEDULER):
            return f"{line}, but {note}"
    for quote in answer.quotes:
        if quote.unseen:
            return (
                f"the scheduler says: {quote.unseen}; explain does not check this; otherwise {line}"
            )

    for note in answer.notes:
        if note.startswith(_NOT_LOOKED_AT):
            return f"{line} as far as it can be told; {note}"
    return line


def count(answer: Answer) -> str:
    """Returns the number of nodes that the subject fits on, as a sentence."""
    outcomes = Counter(node.outcome for node in answer.nodes)
    if outcomes["unknown"] == len(answer.nodes):
        nodes = "the only node" if len(answer.nodes) == 1 else f"any of {len(answer.nodes)} nodes"
        return f"not decided in time on {nodes}"

    line = f"{outcomes['yes']} of {len(answer.nodes)} nodes {answer.can}"
    if outcomes["unknown"]:
        line += f", {outcomes['unknown']} not decided in time"
    return line


def obstacles(answer: Answer, *, longest: int = sys.maxsize) -> list[str]:
    """Returns each group of nodes with its size as a predicate, the nearest miss first.

    If there is only one node, its own summary comes instead. The list is empty if no node was
    judged, and if the outcome of some node is yes. If the groups would take more than `longest`
    characters together, the last ones are only counted.
    """
    if answer.blockers or fits_somewhere(answer.nodes) or not answer.nodes:
        return []

    # A single node has no need of a count, and nodes without a decision have no causes.
    if len(answer.nodes) == 1 or all(node.outcome == "unknown" for node in answer.nodes):
        node = answer.nodes[0]
        words = own_words(node).removeprefix(_NOT_DECIDED)
        return [brief.shorten(_with_name(node, words, answer.subject, longest), longest)]

    if longest < sys.maxsize:
        named = _all_groups(answer, longest)
        if named:
            return named

    # A single group more takes no more room than "for other reasons".
    most = len(answer.groups) if len(answer.groups) == _GROUPS + 1 else _GROUPS
    others = sum(len(group.nodes) for group in answer.groups)
    parts: list[str] = []
    for group in answer.groups[:most]:
        others -= len(group.nodes)
        phrases = [_group_phrase(group, answer, length) for length in _LENGTHS]
        fitting = []
        for phrase in phrases:
            if len("; ".join([*parts, phrase, *_rest(others)])) <= longest:
                fitting.append(phrase)
        if parts and not fitting:
            others += len(group.nodes)
            break
        parts.append(fitting[0] if fitting else phrases[1])
    return [*parts, *_rest(others)]


def _all_groups(answer: Answer, longest: int) -> list[str]:
    """Returns all groups, each as long as the others allow, or [] if they do not fit.

    The first is not shorter than if it stood alone: it is the nearest miss.
    """
    least = [_group_phrase(group, answer, "least") for group in answer.groups]
    if len("; ".join(least)) > longest:
        return []

    parts: list[str] = []
    for index, group in enumerate(answer.groups):
        for length in _LENGTHS:
            phrase = _group_phrase(group, answer, length)
            if len("; ".join([*parts, phrase, *least[index + 1 :]])) <= longest:
                parts.append(phrase)
                break
    # The figures of the nearest miss are worth more than the names of the last groups.
    has_figures = parts[0] != least[0] or parts[0] == _group_phrase(
        answer.groups[0], answer, "brief"
    )
    return parts if has_figures else []


def _with_name(node: NodeAnswer, words: str, subject: str, longest: int) -> str:
    """Returns the words about the only node with its name, if they are about the node itself.

    Requests that compete for its devices come with their claims, unless the answer is about these
    or there is no room.
    """
    if node.refusals:
        for own, other in (("it ", f"{node.node} "), ("its ", f"{node.node}'s ")):
            if words.startswith(own):
                return other + words.removeprefix(own)
        return f"on {node.node} {words}"

    counts = node.shortage.counts
    if not counts or len(counts[0].requests) < 2 or not words.startswith(str(counts[0])):
        return words
    claims = [f"claim {request.rpartition(': ')[0]}" for request in counts[0].requests]
    who = " and ".join(dict.fromkeys(claims))
    named = f"on {node.node}: {words}" if who == subject else f"on {node.node}, {who}: {words}"
    return named if len(named) <= longest else words


def _rest(nodes: int) -> list[str]:
    return [f"{nodes} for other reasons"] if nodes else []


def _group_phrase(group: Group, answer: Answer, length: groups.Length) -> str:
    """Returns the number of the group's nodes, or the name of the only one, and the predicate."""
    who = group.nodes[0] if len(group.nodes) == 1 else str(len(group.nodes))
    if len(group.nodes) == len(answer.nodes):
        who = "both" if len(group.nodes) == 2 else f"all {len(group.nodes)}"
    return f"{who} {groups.predicate_of(group, length)}"


def own_words(node: NodeAnswer) -> str:
    """Returns the reasons that keep the pod from this node, with all figures."""
    if node.refusals:
        return "; ".join(node.refusals)

    # The allocator looked at no device: the reason is in the node's pools.
    if not groups.has_judged_devices(node):
        summary = node.summary.replace(" devices here", f" devices on {node.node}")
        return f"{summary}: {'; '.join(node.pools)}" if node.pools else summary
    if not node.shortage.counts:
        return node.summary

    # If several requests compete for the same devices, the reason of single devices does not
    # matter.
    count = node.shortage.counts[0]
    is_place_full = bool(count.there or count.scope)
    if len(count.requests) > 1 and count.there < count.needed and is_place_full:
        return str(count)
    if count.obstacle or (count.holders and count.suitable >= count.needed):
        return str(count)

    # The most frequent reason of the nearest devices completes the count.
    obstacle = groups.obstacle(count, node)
    return f"{count}: {obstacle}" if obstacle else str(count)


# What would help


def ways_out(node: NodeAnswer) -> Iterator[str]:
    """Yields the changes that would make the node fit, the easiest first, one way in each line.

    If some refusal has no remedy, it yields no change.
    """
    # Each rule's remedy is part of every way. Two rules may have the same remedy: a node that is
    # not ready has two taints.
    of_rules = [remedies.remedy_for(refusal, node.node) for refusal in node.refused_by]
    first = list(dict.fromkeys(of_rules))
    if not all(first):
        return

    # The allocator's remedies are alternatives.
    alternatives = list(map(_way, node.shortage.remedies[:_WAYS]))
    if node.devices in (None, "yes"):
        alternatives = [""]
    for remedy in alternatives:
        way = ", and ".join(filter(None, [*first, remedy]))
        if way:
            yield way


def _way(remedy: Remedy) -> str:
    """Returns the remedy in words. It is wrong to tolerate claimd's own taints on a damaged GPU."""
    words = []
    for change in remedy.changes:
        is_ours = change.kind == "tolerate" and change.subject.startswith(_OUR_TAINTS)
        words.append(f"clear the cause of {change.subject}" if is_ours else str(change))
    return " and ".join(words)


def group_title(group: Group) -> str:
    """Returns the beginning of the line about a group: "2 nodes are cordoned"."""
    noun = "node" if len(group.nodes) == 1 else "nodes"
    return f"{len(group.nodes)} {noun} {groups.predicate_of(group)}"
