"""Which pods would have to go for one that finds no place, by the rules of the real scheduler.

What a node is like without some of its pods, the caller knows: it is asked whether the pod would
fit then. Devices of claims are not gained by it: whatever the rule about them says no to counts as
what preemption cannot change, as it does in 1.37.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import filters

if TYPE_CHECKING:
    from .objects import DisruptionBudget, Pod

NEVER = "Never"
BY_SCHEDULER = "PreemptionByScheduler"
DISRUPTION_TARGET = "DisruptionTarget"
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"
_ENOUGH_CANDIDATES = 100  # and at least as many as a tenth of the nodes
_LOWEST = 1 << 31  # below every priority, so that each victim costs something
_NOW = "9999"  # when a pod has started that has not

# Why the pod would not go to the node if these of its pods were gone, by their uids.
Reasons = Callable[[str, Collection[str]], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node, and the pods that would have to go from it, the most important first."""

    node: str
    victims: tuple[Pod, ...]
    violations: int = 0  # victims whose disruption budget allows no more


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What preemption can do; the message is the scheduler's.

    `keeps_nomination`: the node that the pod was promised before stays its own.
    """

    message: str
    candidate: Candidate | None = None
    keeps_nomination: bool = False


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def is_preempted(pod: Pod) -> bool:
    """Whether it is going because a scheduler wanted its place."""
    if not pod.metadata.deletion_timestamp:
        return False
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return (condition.status, condition.reason) == ("True", BY_SCHEDULER)
    return False


def evaluate(
    pod: Pod,
    resolvable: Sequence[str],
    node_count: int,
    pods_by_node: Mapping[str, Sequence[Pod]],
    budgets: Sequence[DisruptionBudget],
    reasons: Reasons,
) -> Outcome:
    """`resolvable` are the nodes that refuse the pod for what could change if pods went."""
    refusal = _why_not_allowed(pod, resolvable, pods_by_node)
    if refusal:
        return Outcome(message=refusal, keeps_nomination=True)

    counted: Counter[str] = Counter()
    candidates: list[Candidate] = []
    enough = max(_ENOUGH_CANDIDATES, len(resolvable) // 10)
    for node in resolvable:
        lower = _lower_priority_pods(pod, pods_by_node.get(node, ()))
        if not lower:
            counted[_NO_VICTIMS] += 1
            continue
        remaining = reasons(node, {each.metadata.uid for each in lower})
        if remaining:
            counted.update(remaining)
            continue
        candidate = _candidate(node, lower, budgets, reasons)
        if candidate.victims:
            candidates.append(candidate)
        if len(candidates) >= enough and any(not one.violations for one in candidates):
            break

    if candidates:
        best = min(candidates, key=_cost)
        return Outcome(
            message=f"found a potential placement for pod on node {best.node}, preempting "
            f"{len(best.victims)} victims",
            candidate=best,
        )
    unhelpful = node_count - len(resolvable)
    if unhelpful:
        counted[_NOT_HELPFUL] += unhelpful
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return Outcome(message=f"0/{node_count} nodes are available: {listed}.")


def _why_not_allowed(
    pod: Pod, resolvable: Sequence[str], pods_by_node: Mapping[str, Sequence[Pod]]
) -> str:
    if pod.spec.preemption_policy == NEVER:
        return "not eligible due to preemptionPolicy=Never."

    # Its victims are still on their way out. A node that it could not go to even without them is
    # no reason to wait.
    nominated = pod.status.nominated_node_name
    if nominated in resolvable:
        lower = _lower_priority_pods(pod, pods_by_node.get(nominated, ()))
        if any(is_preempted(each) for each in lower):
            return "not eligible due to a terminating pod on the nominated node."
    return ""


def _lower_priority_pods(pod: Pod, others: Iterable[Pod]) -> list[Pod]:
    priority = priority_of(pod)
    return [each for each in others if priority_of(each) < priority]


def _candidate(
    node: str, lower: Sequence[Pod], budgets: Sequence[DisruptionBudget], reasons: Reasons
) -> Candidate:
    """With as few victims as will do: one after the other may stay, the most important first.

    Pods that a disruption budget protects are tried before all others.
    """
    gone = {each.metadata.uid for each in lower}
    protected, others = _split_by_budgets(sorted(lower, key=_importance), budgets)
    for each in (*protected, *others):
        gone.discard(each.metadata.uid)
        if reasons(node, gone):
            gone.add(each.metadata.uid)

    victims = [each for each in lower if each.metadata.uid in gone]
    return Candidate(
        node=node,
        victims=tuple(sorted(victims, key=_importance)),
        violations=sum(each.metadata.uid in gone for each in protected),
    )


def _importance(pod: Pod) -> tuple[int, str, str, str]:
    """The most important first: by priority, then the one that has run for longest."""
    metadata = pod.metadata
    started = pod.status.start_time or _NOW
    return -priority_of(pod), started, metadata.creation_timestamp, metadata.name


def _split_by_budgets(
    pods: Sequence[Pod], budgets: Sequence[DisruptionBudget]
) -> tuple[list[Pod], list[Pod]]:
    """The pods whose end would break a budget, and the others; both in their order."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    protected: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        is_protected = False
        for index, budget in enumerate(budgets):
            if _covers(budget, pod):
                allowed[index] -= 1
                is_protected = allowed[index] < 0
            if is_protected:
                break
        (protected if is_protected else others).append(pod)
    return protected, others


def _covers(budget: DisruptionBudget, pod: Pod) -> bool:
    """One that selects everything protects nothing here, nor one that counts the pod as gone."""
    selector = budget.spec.selector
    if budget.metadata.namespace != pod.metadata.namespace or selector is None:
        return False
    if not pod.metadata.labels or not (selector.match_labels or selector.match_expressions):
        return False
    if pod.metadata.name in budget.status.disrupted_pods:
        return False
    return filters.selects(selector, pod.metadata.labels)


def _cost(candidate: Candidate) -> tuple[int, int, int, int, str, str]:
    """The least is the best: few budgets broken, low priorities, few pods, and pods that have
    run for a short time.
    """
    victims = candidate.victims
    highest = priority_of(victims[0])
    started = min(
        each.status.start_time or _NOW for each in victims if priority_of(each) == highest
    )
    return (
        candidate.violations,
        highest,
        sum(priority_of(each) + _LOWEST for each in victims),
        len(victims),
        _descending(started),
        candidate.node,
    )


def _descending(text: str) -> str:
    """Sorts in the opposite order, for texts of one length."""
    return "".join(chr(0x10FFFF - ord(each)) for each in text)
