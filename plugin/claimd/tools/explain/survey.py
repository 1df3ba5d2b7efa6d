"""All pods that wait for a node, grouped by the reason why they wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import msgspec

from claimd.common.time_limit import TimeLimit

from . import pending
from .answer import VERSION, Answer, Verdict
from .question import Cluster

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Claim, Pod

    from .objects import Objects
    from .preconditions import Preconditions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodGroup:
    """Pods with the same answer. `pods` has their keys, and `answer` is that of one of them."""

    line: str
    verdict: Verdict
    pods: tuple[str, ...]
    answer: Answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey:
    """All groups of waiting pods, the largest first, and a summary of them in `line`."""

    line: str
    groups: tuple[PodGroup, ...] = ()
    notes: tuple[str, ...] = ()
    version: str = VERSION


def survey_pods(
    objects: Objects,
    *,
    namespace: str = "",
    node: str = "",
    time_limit: float = pending.TIME_LIMIT,
    changes: Sequence[str] = (),
) -> Survey:
    """Answers for each waiting pod of one namespace, or of all.

    Each pod is judged on its own, as if no other pod waited. Pods with the same demands, such as
    those of one Deployment, are judged once. After `time_limit` seconds the other pods stay
    undecided. With `node` only that node is asked.
    """
    pods = []
    for pod in objects.pods:
        if pod.spec.node_name or pod.has_ended:
            continue
        if namespace in ("", pod.metadata.namespace):
            pods.append(pod)
    pods.sort(key=lambda pod: pod.key)

    # One cluster serves all questions, so it must know all claims that they are about.
    preconditions = [pending.preconditions_of(objects, pod) for pod in pods]
    waiting: list[Claim] = []
    for found in preconditions:
        waiting += found.waiting
    cluster = Cluster(objects, waiting)

    limit = TimeLimit(time_limit)
    members: dict[Hashable, list[Pod]] = {}
    first: dict[Hashable, Preconditions] = {}
    for pod, found in zip(pods, preconditions, strict=True):
        key = _likeness(pod, found)
        members.setdefault(key, []).append(pod)
        first.setdefault(key, found)

    # The remaining time is shared among the remaining questions, so that one pod cannot use it up.
    answers: dict[Hashable, Answer] = {}
    for key, found in first.items():
        share = max(limit.remaining, 0.0) / (len(first) - len(answers))
        answers[key] = pending.answer(
            cluster,
            members[key][0],
            found,
            node=node,
            time_limit=share,
            full=False,
            help_time=share,
        )
    return _survey(objects, pods, answers, members, changes)


def _survey(
    objects: Objects,
    pods: Sequence[Pod],
    answers: dict[Hashable, Answer],
    members: dict[Hashable, list[Pod]],
    changes: Sequence[str],
) -> Survey:
    """Puts pods with the same line and verdict into one group, even if they ask for different
    devices.
    """
    by_line: dict[tuple[str, Verdict], list[Hashable]] = {}
    for key, answer in answers.items():
        line = answer.line.removeprefix(f"{answer.subject}: ")
        by_line.setdefault((line, answer.verdict), []).append(key)

    groups = []
    for (line, verdict), keys in by_line.items():
        names: list[str] = []
        for key in keys:
            names += [pod.key for pod in members[key]]
        answer = dataclasses.replace(answers[keys[0]], changes=tuple(changes))
        group = PodGroup(line=line, verdict=verdict, pods=tuple(sorted(names)), answer=answer)
        groups.append(group)

    # Pods that could run come last: they wait for the scheduler only.
    groups.sort(key=lambda group: (group.verdict == "could run", -len(group.pods), group.pods))

    notes = [f"as if: {change}" for change in changes]
    notes += pending.notes_on_unseen(objects)
    if len(pods) > 1:
        notes.append("each pod is looked at by itself: together they may need more than there is")

    line = _line(groups, len(pods))
    if not pods and "pods" in objects.unseen:
        line = "whether pods wait for a node is not known: not allowed to see pods"
    return Survey(line=line, groups=tuple(groups), notes=tuple(notes))


def _line(groups: Sequence[PodGroup], count: int) -> str:
    if not count:
        return "no pod waits for a node"

    by_verdict: dict[str, int] = {}
    pending_lines = set()
    for group in groups:
        by_verdict[group.verdict] = by_verdict.get(group.verdict, 0) + len(group.pods)
        if group.verdict == "pending":
            pending_lines.add(group.line)
    parts = []
    for verdict, words in (
        ("pending", "cannot run"),
        ("unknown", "not decided"),
        ("could run", "could run"),
    ):
        if by_verdict.get(verdict):
            parts.append(f"{by_verdict[verdict]} {words}")

    causes = len(pending_lines)
    wait = "1 pod waits for a node" if count == 1 else f"{count} pods wait for a node"
    reasons = f", for {causes} reasons" if causes > 1 else ""
    return f"{wait}: {', '.join(parts)}{reasons}"


def _likeness(pod: Pod, found: Preconditions) -> Hashable:
    """Returns a key that is equal for pods with the same demands and state."""
    # Claims that were created for two pods have different names, so their specs are compared.
    spec = msgspec.structs.replace(pod.spec, resource_claims=[])
    waiting = [msgspec.json.encode(claim.spec) for claim in found.waiting]
    allocated = tuple(claim.key for claim in found.allocated)
    return (
        msgspec.json.encode(spec),
        tuple(waiting),
        allocated,
        tuple(found.blockers),
        tuple(found.unseen),
        msgspec.json.encode(pod.status.conditions),
    )
