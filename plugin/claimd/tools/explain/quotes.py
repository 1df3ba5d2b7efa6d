"""The scheduler's own messages about a pod, and where they differ from the answer of explain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimd.kubernetes.scheduling import filters

from . import started
from .answer import Answer, Quote

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod

    from .objects import Objects

# "0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. …"
_MESSAGE = re.compile(r"^\d+/(\d+) nodes are available:? ?(.*?)(?:\. |\.?$)", re.DOTALL)
# A comma belongs to a reason unless a count follows.
_BETWEEN_REASONS = re.compile(r", (?=\d+ )")
_NO_DEVICES = "cannot allocate all claims"
_ELSEWHERE = "resourceclaim not available on the node"
# The scheduler has released a claim, so its counts are about devices that the pod no longer has.
_RELEASED = "deallocation of ResourceClaim completed"
# Words in the messages of the rules that explain does not check.
_NOT_OURS = ("volume", "PersistentVolume", "persistentvolumeclaim", "NodeVolumeLimits")


def quotes_for_pod(pod: Pod, objects: Objects, answer: Answer) -> Iterator[Quote]:
    """Yields the message of the pod's condition, and the scheduler's newest Event if it differs."""
    if answer.verdict == "settled":
        return

    message = ""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            message = condition.message or condition.reason
            yield Quote(
                text=message,
                differences=tuple(_differences(message, answer)),
                unseen=_unseen_reasons(message, pod),
            )
            break

    # The Event is newer than the condition if only the reasons have changed.
    event = started.newest_event(pod, objects, "FailedScheduling")
    if event and event.text and event.text != message:
        yield Quote(
            text=event.text,
            when=event.last_seen,
            source="event",
            differences=tuple(_differences(event.text, answer)),
            unseen=_unseen_reasons(event.text, pod),
        )


def _differences(message: str, answer: Answer) -> Iterator[str]:
    """Yields the differences between the scheduler's counts of nodes by reason and ours."""
    match = _MESSAGE.match(message)
    if match is None or not answer.nodes or _RELEASED in message:
        return

    total = int(match[1])
    if total != len(answer.nodes):
        yield f"the scheduler saw {total} nodes, here are {len(answer.nodes)}"

    # Its message is about a moment in the past.
    yes = [node.node for node in answer.nodes if node.outcome == "yes"]
    if yes:
        more = f" and {len(yes) - 1} more" if len(yes) > 1 else ""
        why = "explain does not check that rule"
        if not _unseen_reasons(message, None):
            why = (
                "either something has changed since, "
                "or a rule that explain does not check refuses it"
            )
        yield f"the scheduler found no node, explain finds {yes[0]}{more}: {why}"

    # Some releases append the claim in parentheses, and the simulated scheduler what a node lacks.
    # Reasons that differ only in that are one reason.
    counts: Counter[str] = Counter()
    shown = {}
    for count, reason in _split_reasons(match[2]):
        plain = reason if _is_unseen(reason) else reason.partition(" (")[0]
        shown[plain] = plain if plain in shown else reason
        counts[plain] += count

    ours = _our_reasons(answer)
    for reason, count in counts.items():
        if _is_unseen(reason):
            yield f"{_node_count(count)} by a rule that explain does not check: {reason}"
            continue
        our_count = _count_of(reason, ours)
        if our_count != count and not yes:
            yield f'the scheduler counts {count} with "{shown[reason]}", explain finds {our_count}'


def _split_reasons(text: str) -> Iterator[tuple[int, str]]:
    """Yields each of the scheduler's reasons with its number of nodes."""
    reason = ""
    for part in _BETWEEN_REASONS.split(text):
        # Text in parentheses may look like the next reason.
        reason = f"{reason}, {part}" if reason else part
        if reason.count("(") > reason.count(")"):
            continue
        number, _, words = reason.partition(" ")
        if number.isdecimal():
            yield int(number), words
        reason = ""


def _is_unseen(reason: str) -> bool:
    return any(word in reason for word in _NOT_OURS)


def _unseen_reasons(message: str, pod: Pod | None) -> str:
    """Returns the scheduler's reasons that come from rules which explain does not check.

    The scheduler often leaves out which volumes it means, so those of the `pod` are named.
    """
    match = _MESSAGE.match(message)
    unseen = []
    # A volume that does not exist is a reason without a number of nodes.
    if match and _is_unseen(match[2]) and not match[2][:1].isdecimal():
        return match[2] + _describe_volumes(pod, match[2])
    for count, reason in _split_reasons(match[2]) if match else ():
        if _is_unseen(reason):
            unseen.append(f"{count} {reason}")
    said = ", ".join(unseen)
    return said + _describe_volumes(pod, said) if said else ""


def _describe_volumes(pod: Pod | None, said: str) -> str:
    """Returns in parentheses the volume claims of the pod, unless the message names one."""
    names = []
    for volume in pod.spec.volumes if pod else ():
        if volume.persistent_volume_claim:
            names.append(str(volume.persistent_volume_claim.get("claimName", "?")))
    if not names or any(f'"{name}"' in said for name in names):
        return ""
    noun = "claim" if len(names) == 1 else "claims"
    return f" (volume {noun} {', '.join(names)})"


def _our_reasons(answer: Answer) -> Counter[str]:
    """Counts our refusals as the scheduler does: each node by the first rule that refuses it."""
    reasons: Counter[str] = Counter()
    for node in answer.nodes:
        first = filters.first_refusals(node.refused_by)
        messages = {refusal.message for refusal in first}
        # In the scheduler the same plugin reports both, and devices that cannot be allocated come
        # first.
        is_elsewhere = messages == {_ELSEWHERE} and node.devices == "no"
        if is_elsewhere or (not first and node.outcome != "yes"):
            messages = {_NO_DEVICES}
        # As in the scheduler's counts, reasons that differ only in parentheses are one reason.
        reasons.update(message.partition(" (")[0] for message in messages)
    return reasons


def _count_of(reason: str, ours: Counter[str]) -> int:
    """Returns our count of the scheduler's reason."""
    if "taint" not in reason:
        return ours[reason]

    # The wording of a taint differs between releases of the scheduler, so all taints count as one.
    total = 0
    for message, count in ours.items():
        if "taint" in message:
            total += count
    return total


def _node_count(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
