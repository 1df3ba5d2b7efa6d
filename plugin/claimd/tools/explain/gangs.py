"""Tries whether the pods that a gang still needs fit on the nodes together.

The pods are placed one after the other, as the scheduler does it, each with the devices and
resources that the ones before have left.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from claimd.common.time_limit import TimeLimit
from claimd.kubernetes.scheduling import pod_groups as rules

from . import pod_groups, preconditions
from .answer import GangOutcome
from .question import Cluster, Question

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Claim, Node, Pod
    from claimd.kubernetes.scheduling.pod_groups import PodGroup

    from .objects import Objects
    from .preconditions import Preconditions

# The time in seconds for all pods of a gang.
TIME_LIMIT = 5.0


def try_gang(cluster: Cluster, pod: Pod, places: Sequence[Node], seconds: float) -> GangOutcome:
    """Tries to place the gang of a pod, which itself fits on a node.

    A cluster that serves several questions tries each gang once.
    """
    group = pod_groups.find_group(pod, cluster.objects)
    if group is None or pod.spec.node_name or not group.min_count:
        return GangOutcome()
    if group.key not in cluster.gangs:
        cluster.gangs[group.key] = _try(cluster.objects, group, places, min(seconds, TIME_LIMIT))
    return cluster.gangs[group.key]


def _try(objects: Objects, group: PodGroup, places: Sequence[Node], seconds: float) -> GangOutcome:
    members = rules.find_members(objects.pods, group.metadata.namespace, group.metadata.name)
    needed = group.min_count - len(members.placed)
    if needed <= 1:
        return GangOutcome()

    limit = TimeLimit(seconds)
    placed, failures = 0, list[str]()
    for member in members.ready:
        if placed >= needed:
            return GangOutcome()
        if limit.is_over():
            note = f"not looked at: whether {needed} pods of gang {group.key} fit together"
            return GangOutcome(notes=(note,))
        after, why = _place(objects, member, places, limit.remaining)
        if after is None:
            failures.append(f"pod {member.metadata.name}: {why}")
        else:
            objects, placed = after, placed + 1
    if placed >= needed:
        return GangOutcome()

    more = "more " if members.placed else ""
    blocker = (
        f"gang {group.key} needs {needed} {more}pods placed at once, "
        f"and only {placed} of {len(members.ready)} fit: {failures[0]}"
    )
    return GangOutcome(blockers=(blocker,))


def _place(
    objects: Objects, pod: Pod, places: Sequence[Node], seconds: float
) -> tuple[Objects | None, str]:
    """Returns the objects with the pod on the first node that it fits on.

    If it fits on none, they are None, and the text says why.
    """
    found = preconditions.check_pod(pod, objects)
    if found.blockers:
        return None, found.blockers[0]
    cluster = Cluster(objects, found.waiting)
    question = Question(cluster, pod, found)
    answers = question.ask(places, seconds, full=False)
    for place, answer in zip(places, answers, strict=True):
        if answer.outcome == "yes":
            claims = question.allocate(place)
            if claims is not None:
                return _with_pod(objects, pod, place, found, claims), ""
    return None, answers[0].summary if answers else "no nodes are known"


def _with_pod(
    objects: Objects, pod: Pod, place: Node, found: Preconditions, claims: Sequence[Claim]
) -> Objects:
    """Returns a copy of the objects in which the pod is on the node and has these claims."""
    after = copy.copy(objects)
    spec = msgspec.structs.replace(pod.spec, node_name=place.metadata.name)
    placed = msgspec.structs.replace(pod, spec=spec)
    after.pods = [placed if each.key == pod.key else each for each in objects.pods]
    allocated = {claim.key: claim for claim in claims}
    known = {claim.key for claim in objects.claims}
    after.claims = [allocated.get(claim.key, claim) for claim in objects.claims]
    after.claims += [claim for key, claim in allocated.items() if key not in known]
    return after
