"""The decisions for the pods of a PodGroup, which are placed together or not at all.

The functions do no I/O. Each pod of the group is decided on top of the decisions before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from claimd.kubernetes.scheduling import pod_groups, preemption

from .scheduling_cycle import Bind, Deallocate, Decision, Pending, Unschedulable, has_claims

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod
    from claimd.kubernetes.scheduling.pod_groups import PodGroup

    from .snapshot import Snapshot

SCHEDULED = "PodGroupInitiallyScheduled"  # the type of the group's condition
_UNSCHEDULABLE = "pod group is unschedulable"
_NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"

Decide = Callable[["Snapshot", "Pod"], Decision]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupDecision:
    """The decision for each pod by its uid, and the cluster with the placed pods.

    The last three fields are those of the group's condition. No condition is written without status.
    """

    decisions: Mapping[str, Decision]
    snapshot: Snapshot
    status: str = ""
    reason: str = ""
    message: str = ""


def schedule_group(
    snapshot: Snapshot, group: PodGroup | None, pods: Sequence[Pod], decide: Decide
) -> GroupDecision:
    """Decides for the pending pods of a group, in the order of the queue.

    The pods wait silently until the group exists and has as many pods as its gang needs, and until
    each of its pods has its claims and no scheduling gate.
    """
    silent = GroupDecision(
        decisions={pod.metadata.uid: Pending() for pod in pods}, snapshot=snapshot
    )
    if group is None:
        return silent
    members = snapshot.members_of(group)
    if members.count < group.min_count:
        return silent
    if any(pod.spec.scheduling_gates or not has_claims(snapshot, pod) for pod in members.waiting):
        return silent

    problem = _validate(group, [*pods, *members.placed])
    if problem:
        return _all_fail(snapshot, pods, "SchedulerError", problem)
    placed = len(members.placed)
    short = _shortage(group, placed, len(pods))
    if short:
        return _all_fail(snapshot, pods, "Unschedulable", short)
    return _place(snapshot, group, pods, placed, decide)


def _validate(group: PodGroup, pods: Sequence[Pod]) -> str:
    """Returns why the pods cannot be a group, or an empty text."""
    priority = pod_groups.priority_of(group)
    for pod in pods:
        own = preemption.priority_of(pod)
        if own != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {own} and {priority}"
            )
    return ""


def _shortage(group: PodGroup, placed: int, remaining: int) -> str:
    """Returns the scheduler's words if the gang cannot be complete any more, or an empty text."""
    # Without a gang one pod is enough.
    needed = max(group.min_count, 1)
    if placed + remaining >= needed:
        return ""
    return f"minCount ({needed}) cannot be satisfied: {placed} scheduled, {remaining} remaining"


def _all_fail(snapshot: Snapshot, pods: Sequence[Pod], reason: str, message: str) -> GroupDecision:
    decision = Unschedulable(message=message, reason=reason)
    return GroupDecision(
        decisions={pod.metadata.uid: decision for pod in pods},
        snapshot=snapshot,
        status="False",
        reason=reason,
        message=message,
    )


def _place(
    snapshot: Snapshot, group: PodGroup, pods: Sequence[Pod], placed: int, decide: Decide
) -> GroupDecision:
    """Places one pod after the other, and takes all back if they are too few for the gang."""
    after, decisions = snapshot, dict[str, Decision]()
    remaining, short = len(pods), ""
    for pod in pods:
        decision = decide(after, pod)
        if isinstance(decision, Unschedulable):
            decision = _without_preemption(decision)
        if isinstance(decision, Deallocate):
            report = _without_preemption(decision.report)
            decision = dataclasses.replace(decision, report=report)
        decisions[pod.metadata.uid] = decision
        remaining -= 1
        if isinstance(decision, Bind):
            after = after.with_decision(pod, decision.claims, decision.node)
            placed += 1
        short = _shortage(group, placed, remaining)
        if short:
            break

    is_placed = any(isinstance(decision, Bind) for decision in decisions.values())
    if is_placed and not short:
        return GroupDecision(decisions=decisions, snapshot=after, status="True", reason="Scheduled")

    why = f"{short or _UNSCHEDULABLE}, {_NO_VICTIMS}"
    # A placed pod gets the reason why its group was not placed. The last pods were not even tried.
    taken_back = Unschedulable(message=f"{_UNSCHEDULABLE}, {why}" if short else why)
    for pod in pods:
        uid = pod.metadata.uid
        if uid not in decisions:
            decisions[uid] = Unschedulable(message=short)
        elif isinstance(decisions[uid], Bind):
            decisions[uid] = taken_back
    return GroupDecision(
        decisions=decisions,
        snapshot=snapshot,
        status="False",
        reason="Unschedulable",
        message=why,
    )


def _without_preemption(decision: Unschedulable) -> Unschedulable:
    """Returns the decision as that of a group, whose preemption as a whole is not simulated."""
    message, _, _ = decision.message.partition(" preemption: ")
    return dataclasses.replace(decision, message=message, preemption=None)
