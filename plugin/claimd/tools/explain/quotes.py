"""What the scheduler itself says of a pod, beside what we find, and where the two differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimd.kubernetes.scheduling import filters

from .answer import Answer, Quote

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod

    from .objects import Event, Objects

# "0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. …"
_MESSAGE = re.compile(r"^\d+/(\d+) nodes are available:? ?(.*?)(?:\. |\.?$)", re.DOTALL)
_BETWEEN_REASONS = re.compile(r", (?=\d+ )")
_NO_DEVICES = "cannot allocate all claims"
_ELSEWHERE = "resourceclaim not available on the node"
# Words of the rules that we do not look at.
_NOT_OURS = ("volume", "PersistentVolume", "persistentvolumeclaim", "NodeVolumeLimits")


def quotes_for_pod(pod: Pod, objects: Objects, answer: Answer) -> Iterator[Quote]:
    """The pod's condition and the newest Event of the scheduler, if it has not the same words."""
    if answer.verdict == "settled":
        return
    condition = next(
        (
            one
            for one in pod.status.conditions
            if one.type == "PodScheduled" and one.status == "False"
        ),
        None,
    )
    said = ""
    if condition:
        said = condition.message or condition.reason
        yield Quote(
            text=said, differences=tuple(_differences(said, answer)), unseen=_unseen_reasons(said)
        )
    event = _newest_event(pod, objects)
    if event and event.text and event.text != said:
        yield Quote(
            text=event.text,
            when=event.last_seen,
            source="event",
            differences=tuple(_differences(event.text, answer)),
            unseen=_unseen_reasons(event.text),
        )


def _newest_event(pod: Pod, objects: Objects) -> Event | None:
    events = [
        event
        for event in objects.events
        if event.reason == "FailedScheduling"
        and event.is_about("Pod", pod.metadata.namespace, pod.metadata.name)
    ]
    return max(events, key=lambda event: event.last_seen, default=None)


def _differences(said: str, answer: Answer) -> Iterator[str]:
    """Where the scheduler's count of nodes by reason is not ours."""
    match = _MESSAGE.match(said)
    if match is None or not answer.nodes:
        return
    total = int(match[1])
    if total != len(answer.nodes):
        yield f"it saw {total} nodes, here are {len(answer.nodes)}"
    yes = [node.node for node in answer.nodes if node.outcome == "yes"]
    if yes:
        more = f" and {len(yes) - 1} more" if len(yes) > 1 else ""
        yield (
            f"it found no node, we find {yes[0]}{more}: something has changed since, "
            "or a rule says no that is not looked at here"
        )

    # Some releases name the claim behind a reason, the simulated scheduler what a node lacks.
    said_by_reason: Counter[str] = Counter()
    told = {}
    for count, reason in _split_reasons(match[2]):
        known = reason if _is_unseen(reason) else reason.partition(" (")[0]
        told[known] = known if known in told else reason
        said_by_reason[known] += count

    ours = _our_reasons(answer)
    for reason, count in said_by_reason.items():
        if _is_unseen(reason):
            yield f"{_node_count(count)} by a rule that is not looked at here: {reason}"
            continue
        found = _count_of(reason, ours)
        if found != count and not yes:
            yield f'it counts {count} with "{told[reason]}", we find {found}'


def _split_reasons(text: str) -> Iterator[tuple[int, str]]:
    """The scheduler's reasons, each with its number of nodes."""
    reason = ""
    for part in _BETWEEN_REASONS.split(text):
        # What stands in parentheses may look like the next reason.
        reason = f"{reason}, {part}" if reason else part
        if reason.count("(") > reason.count(")"):
            continue
        number, _, words = reason.partition(" ")
        if number.isdecimal():
            yield int(number), words
        reason = ""


def _is_unseen(reason: str) -> bool:
    return any(word in reason for word in _NOT_OURS)


def _unseen_reasons(said: str) -> str:
    match = _MESSAGE.match(said)
    reasons = _split_reasons(match[2]) if match else ()
    return ", ".join(f"{count} {reason}" for count, reason in reasons if _is_unseen(reason))


def _our_reasons(answer: Answer) -> Counter[str]:
    """As the scheduler counts: each node by the first rule that refuses it."""
    reasons: Counter[str] = Counter()
    for node in answer.nodes:
        first = filters.first_refusals(node.refused_by)
        messages = {refusal.message for refusal in first}
        # Devices that cannot be had are told before those of a claim that has them elsewhere.
        is_elsewhere = messages == {_ELSEWHERE} and node.devices == "no"
        if is_elsewhere or (not first and node.outcome != "yes"):
            messages = {_NO_DEVICES}
        reasons.update(messages)
    return reasons


def _count_of(reason: str, ours: Counter[str]) -> int:
    """How often we found it; a taint is named in the scheduler's words, which differ by release."""
    if "taint" in reason:
        return sum(count for ours_, count in ours.items() if "taint" in ours_)
    return ours[reason]


def _node_count(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
