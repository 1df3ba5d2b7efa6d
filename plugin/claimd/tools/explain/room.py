"""Says in one line whether preempting pods of lower priority would make room."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from claimd.kubernetes.scheduling import filters, node_rules, preemption

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod

    from .answer import NodeAnswer
    from .question import Cluster

# The number of victims that are named.
_SHOWN = 2


def notes(cluster: Cluster, pod: Pod, answers: Sequence[NodeAnswer]) -> Iterator[str]:
    """Yields a note on the effect of preemption for a pod that fits on no node.

    There is no note if no pod has a lower priority, because then preemption is not possible.
    """
    lowest = cluster.lowest_priority
    if answers and lowest is not None and lowest < preemption.priority_of(pod):
        outcome = _evaluate_preemption(cluster, pod, answers)
        yield f"preemption: {_describe_outcome(pod, outcome, answers)}"


def _evaluate_preemption(
    cluster: Cluster, pod: Pod, answers: Sequence[NodeAnswer]
) -> preemption.Outcome:
    """Asks the scheduler's preemption, with the answers as the state of each node."""
    placement = cluster.placement
    rules = node_rules.NodeRules(placement, pod)
    by_node = {answer.node: answer for answer in answers}
    nodes = placement.nodes

    def reasons(name: str, gone: Collection[str]) -> list[str]:
        messages = node_rules.messages(rules.refusals(nodes[name], gone))
        # The rule about devices comes last in the scheduler.
        return messages or _reasons_of_devices(by_node[name])

    resolvable = []
    for answer in answers:
        if answer.node in nodes and _is_resolvable(answer):
            resolvable.append(answer.node)

    # explain does not read disruption budgets.
    return preemption.evaluate(pod, resolvable, len(answers), placement.pods_by_node, (), reasons)


def _is_resolvable(answer: NodeAnswer) -> bool:
    """Returns True if the first refusing rule of the node could change if pods left."""
    first = filters.first_refusals(answer.refused_by)
    return bool(first) and all(refusal.is_resolvable for refusal in first)


def _reasons_of_devices(answer: NodeAnswer) -> list[str]:
    """Returns the reasons about devices, which stay no matter which pods leave."""
    lasting = [each for each in answer.refused_by if each.rule == "DynamicResources"]
    if answer.devices in (None, "yes"):
        return node_rules.messages(lasting)
    return ["cannot allocate all claims"]


def _describe_outcome(pod: Pod, outcome: preemption.Outcome, answers: Sequence[NodeAnswer]) -> str:
    nobody = "no pod of lower priority goes for it"
    if outcome.candidate is not None:
        return _describe_candidate(outcome.candidate)
    if pod.spec.preemption_policy == preemption.NEVER:
        return f"{nobody}, as its preemptionPolicy is Never"
    if outcome.keeps_nomination:
        node = pod.status.nominated_node_name
        return f"pods of lower priority go for it on {node}, and are not gone yet"
    if any(map(_lacks_devices_alone, answers)):
        return f"{nobody}: the scheduler ends none for the devices of claims"
    return f"{nobody}: without them it could not go to any node either"


def _lacks_devices_alone(answer: NodeAnswer) -> bool:
    """Returns True if only devices keep the pod away, perhaps after other pods have left."""
    return answer.devices == "no" and (not answer.refused_by or _is_resolvable(answer))


def _describe_candidate(candidate: preemption.Candidate) -> str:
    victims = []
    for victim in candidate.victims[:_SHOWN]:
        victims.append(f"{victim.key} (priority {preemption.priority_of(victim)})")
    more = len(candidate.victims) - _SHOWN
    listed = ", ".join(victims) + (f" and {more} more" if more > 0 else "")
    pods = "pod" if len(candidate.victims) == 1 else "pods"
    return f"{pods} {listed} would go for it from {candidate.node}"
