"""Preemption: which pods kube-scheduler would end so that another pod fits.

The caller provides a function that says whether the pod would fit on a node without some of the
node's pods. Preemption does not gain devices: as in Kubernetes 1.37, a refusal by the rule about
claims counts as one that preemption cannot change.
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
# The search ends with this many candidates, or with a tenth of the nodes if that is more.
_ENOUGH_CANDIDATES = 100
# Added to every priority, so that each victim costs something.
_LOWEST = 1 << 31
# The start time of a pod that has not started: later than all others.
_NOW = "9999"

# Takes a node's name and the uids of pods. Returns the reasons why the pod would still not fit on
# the node if these pods were gone.
Reasons = Callable[[str, Collection[str]], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node, and the pods that would have to leave it, the most important first.

    `violations` is the number of victims whose disruption budget allows no further disruption.
    """

    node: str
    victims: tuple[Pod, ...]
    violations: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of preemption: a candidate or none, with the scheduler's own message.

    `keeps_nomination` is True if the pod stays nominated to the node that it was nominated to.
    """

    message: str
    candidate: Candidate | None = None
    keeps_nomination: bool = False


def priority_of(pod: Pod) -> int:
    """Returns the pod's priority, which is 0 by default."""
    return pod.spec.priority or 0


def is_preempted(pod: Pod) -> bool:
    """Returns True if the pod is being deleted because a scheduler preempted it."""
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
    """Returns what preemption can do for the pod, which fits on no node.

    `resolvable` has the names of the nodes whose refusals could change if pods left. `node_count`
    is the number of all nodes, and `budgets` are the disruption budgets of the cluster.
    """
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

        # The pod must fit without any of them, or it is useless to search for fewer victims.
        remaining = reasons(node, {each.metadata.uid for each in lower})
        if remaining:
            counted.update(remaining)
            continue

        candidate = _candidate(node, lower, budgets, reasons)
        if candidate.victims:
            candidates.append(candidate)
        # The search goes on while every candidate would violate a budget.
        if len(candidates) >= enough and not all(each.violations for each in candidates):
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
    """Returns the scheduler's reason not to try preemption, or "" if it tries."""
    if pod.spec.preemption_policy == NEVER:
        return "not eligible due to preemptionPolicy=Never."

    # The pod waits while its victims are being deleted. It does not wait for a node that would
    # refuse it even without them.
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
    """Returns the node with as few victims as possible.

    All pods of lower priority are removed, and then put back one by one while the pod still fits.
    The most important pods are put back first, and pods that a disruption budget protects come
    before all others.
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
    """Returns a sort key, the most important pod first: by priority, then by the running time."""
    metadata = pod.metadata
    started = pod.status.start_time or _NOW
    return -priority_of(pod), started, metadata.creation_timestamp, metadata.name


def _split_by_budgets(
    pods: Sequence[Pod], budgets: Sequence[DisruptionBudget]
) -> tuple[list[Pod], list[Pod]]:
    """Splits the pods into those whose end would violate a budget and the others."""
    # Each pod uses up one of the disruptions that its budgets allow, so the order matters.
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
    """Returns True if the end of the pod uses up a disruption of the budget.

    An empty selector covers no pod. A pod that the budget counts as disrupted already is not
    covered, either.
    """
    selector = budget.spec.selector
    if budget.metadata.namespace != pod.metadata.namespace or selector is None:
        return False
    if not pod.metadata.labels or not (selector.match_labels or selector.match_expressions):
        return False
    if pod.metadata.name in budget.status.disrupted_pods:
        return False
    return filters.selects(selector, pod.metadata.labels)


def _cost(candidate: Candidate) -> tuple[int, int, int, int, str, str]:
    """Returns a sort key, the best candidate first.

    The scheduler prefers few violated budgets, low priorities, few victims, and victims that have
    run for a short time, in this order.
    """
    victims = candidate.victims
    highest = priority_of(victims[0])

    # Only the victims of the highest priority matter for the running time.
    most_important = [each for each in victims if priority_of(each) == highest]
    started = min(each.status.start_time or _NOW for each in most_important)
    return (
        candidate.violations,
        highest,
        sum(priority_of(each) + _LOWEST for each in victims),
        len(victims),
        _descending(started),
        candidate.node,
    )


def _descending(text: str) -> str:
    """Returns a text that sorts in the opposite order, among texts of the same length."""
    return "".join(chr(0x10FFFF - ord(each)) for each in text)
