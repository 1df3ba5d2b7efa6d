"""Every pod that waits, grouped by what it waits for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import msgspec

from . import pending
from .answer import VERSION, Answer, Verdict
from .question import Cluster

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.objects import Pod

    from .objects import Objects
    from .preconditions import Preconditions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodGroup:
    """Pods (namespace/name) with the same answer, which is that of the first: `answer`."""

    line: str
    verdict: Verdict
    pods: tuple[str, ...]
    answer: Answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey:
    """The pods that wait, the largest group first. `line` says it in short."""

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
    """Each pod by itself that has no node yet, of one namespace or of all.

    Pods that ask for the same, as those of one Deployment do, are looked at once. After
    `time_limit` seconds the others are not decided.
    """
    pods = [
        pod
        for pod in objects.pods
        if not pod.spec.node_name
        and not pod.has_ended
        and namespace in ("", pod.metadata.namespace)
    ]
    pods.sort(key=lambda pod: pod.key)
    found = [pending.preconditions_of(objects, pod) for pod in pods]
    cluster = Cluster(objects, [claim for one in found for claim in one.waiting])

    end = time.monotonic() + time_limit
    answers: dict[Hashable, Answer] = {}
    members: dict[Hashable, list[Pod]] = {}
    alike = {_likeness(pod, one) for pod, one in zip(pods, found, strict=True)}
    for pod, one in zip(pods, found, strict=True):
        key = _likeness(pod, one)
        members.setdefault(key, []).append(pod)
        if key not in answers:
            share = max(end - time.monotonic(), 0.0) / (len(alike) - len(answers))
            answers[key] = pending.answer(
                cluster, pod, one, node=node, time_limit=share, full=False, help_time=share
            )
    return _survey(objects, pods, answers, members, changes)


def _survey(
    objects: Objects,
    pods: Sequence[Pod],
    answers: dict[Hashable, Answer],
    members: dict[Hashable, list[Pod]],
    changes: Sequence[str],
) -> Survey:
    by_line: dict[tuple[str, Verdict], list[Hashable]] = {}
    for key, answer in answers.items():
        line = answer.line.removeprefix(f"{answer.subject}: ")
        by_line.setdefault((line, answer.verdict), []).append(key)

    groups = []
    for (line, verdict), keys in by_line.items():
        names = sorted(pod.key for key in keys for pod in members[key])
        answer = dataclasses.replace(answers[keys[0]], changes=tuple(changes))
        groups.append(PodGroup(line=line, verdict=verdict, pods=tuple(names), answer=answer))
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
    for group in groups:
        by_verdict[group.verdict] = by_verdict.get(group.verdict, 0) + len(group.pods)
    parts = []
    for verdict, words in (
        ("pending", "cannot run"),
        ("unknown", "not decided"),
        ("could run", "could run"),
    ):
        if by_verdict.get(verdict):
            parts.append(f"{by_verdict[verdict]} {words}")
    causes = len({group.line for group in groups if group.verdict == "pending"})
    wait = "1 pod waits for a node" if count == 1 else f"{count} pods wait for a node"
    reasons = f", for {causes} reasons" if causes > 1 else ""
    return f"{wait}: {', '.join(parts)}{reasons}"


def _likeness(pod: Pod, found: Preconditions) -> Hashable:
    """The same for pods that get the same answer, names aside."""
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
