"""Why is my pod pending: a pod or a claim against each node.

First what stands before any node (`preconditions`), then on each node the scheduler's rules about
pods and nodes (`claimd.kubernetes.scheduling`), then the allocator's about devices (`question`).
What comes out is put into groups and into a line.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from claimd.common import errors
from claimd.kubernetes import cel
from claimd.kubernetes.api.scheduling import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from claimd.kubernetes.scheduling.objects import Claim, Meta, Node, Pod

from . import groups, headline, preconditions, quotes, room
from .answer import Answer, Group, NodeAnswer, Verdict
from .preconditions import Preconditions
from .question import Cluster, Question

if TYPE_CHECKING:
    from claimd.kubernetes.allocator.verdicts import RequestVerdict

    from .manifests import Workload
    from .objects import Objects

_DIGITS = re.compile(r"([0-9]{1,18})")
# Seconds; the scheduler has as many for each node.
TIME_LIMIT = 10.0
# Seconds for what would have to change on the nearest node.
HELP_TIME = 2.0
# With fewer nodes than these the scheduler goes through all, else until it has found enough.
_ALL_ARE_LOOKED_AT = 100


def find_subject(objects: Objects, name: str, namespace: str) -> Pod | Claim:
    """The pod or claim that is meant; errors.Fatal where there is none.

    `name` is a claim or a pod, or claim/NAME or pod/NAME where both exist.
    """
    kind, _, plain = name.rpartition("/")
    candidates: list[Pod | Claim] = []
    if kind in ("", "claim", "resourceclaim"):
        candidates += objects.claims
    if kind in ("", "pod"):
        candidates += objects.pods
    for candidate in candidates:
        if (candidate.metadata.namespace, candidate.metadata.name) == (namespace, plain):
            return candidate

    hidden = ", and pods cannot be seen" if "pods" in objects.unseen else ""
    raise errors.Fatal(
        f"neither a claim nor a pod {plain!r} in namespace {namespace!r}{hidden}: "
        "look with -n elsewhere?"
    )


def subjects_of_manifest(made: Objects) -> list[Pod | Claim]:
    """What a file would make: its pods, or else its claims, or the claims of its templates."""
    if made.pods:
        return [*made.pods]
    templates = [
        preconditions.claim_of_template(template, template.metadata.name)
        for template in made.templates
    ]
    claims: list[Pod | Claim] = [*made.claims, *templates]
    if not claims:
        raise errors.Fatal(
            "a file for --dry has a pod, something that makes pods (a Deployment, a Job, …), "
            "a claim or a claim template; this has none"
        )
    return claims


def report_class(
    objects: Objects,
    name: str,
    *,
    node: str = "",
    time_limit: float = TIME_LIMIT,
    full: bool = True,
) -> Answer:
    """Which devices belong to a class and are free, and what keeps the others out."""
    request = DeviceRequest(name="one", exactly=ExactDeviceRequest(device_class_name=name))
    claim = Claim(
        metadata=Meta(name="for-the-class"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=[request])),
    )
    cluster = Cluster(objects, [claim])
    question = Question(cluster, None, Preconditions(waiting=[claim]))
    answers = []
    for answer in question.ask(_nodes(cluster, node), time_limit, full=full, always=True):
        summary = answer.summary
        if answer.claims:
            summary = count_in_class(answer.claims[0].requests[0])
        answers.append(dataclasses.replace(answer, summary=summary))

    verdict: Verdict = "pending"
    if any(answer.outcome == "yes" for answer in answers):
        verdict = "could run"
    elif {"resourceslices", "deviceclasses"}.intersection(objects.unseen):
        verdict = "unknown"
    return headline.with_line(
        Answer(
            subject=f"class {name}",
            verdict=verdict,
            can="have a free device of it",
            notes=tuple(notes_on_unseen(objects)),
            groups=groups.group_nodes(answers),
            nodes=tuple(answers),
        )
    )


def count_in_class(verdict: RequestVerdict) -> str:
    return f"{verdict.suitable} of {len(verdict.devices)} devices are of the class and free"


def report(
    objects: Objects,
    subject: Pod | Claim,
    *,
    node: str = "",
    new: bool = False,
    time_limit: float = TIME_LIMIT,
    full: bool = True,
) -> Answer:
    """Whether each node could have the pod or claim, and if not, why.

    With `node` only that one is looked at; errors.Fatal where it is not known. `new`: the subject
    is not there yet, and the API server may refuse its selectors. After `time_limit` seconds what
    is not decided is unknown. Without `full` nodes that have the same devices are judged once.
    """
    found = preconditions_of(objects, subject)
    return answer(
        Cluster(objects, found.waiting),
        subject,
        found,
        node=node,
        new=new,
        time_limit=time_limit,
        full=full,
    )


def preconditions_of(objects: Objects, subject: Pod | Claim) -> Preconditions:
    if isinstance(subject, Pod):
        return preconditions.check_pod(subject, objects)
    return preconditions.check_claim(subject, objects)


def answer(  # noqa: PLR0913 - each is one thing that a question may have
    cluster: Cluster,
    subject: Pod | Claim,
    found: Preconditions,
    *,
    node: str = "",
    new: bool = False,
    time_limit: float = TIME_LIMIT,
    help_time: float = HELP_TIME,
    full: bool = True,
) -> Answer:
    """As report(), in a cluster that serves several questions."""
    objects = cluster.objects
    pod = subject if isinstance(subject, Pod) else None
    notes = [*notes_on_unseen(objects), *found.notes]
    if new:
        notes += _refused_selectors(found.waiting)
    places = _nodes(cluster, node)
    if found.blockers and not places:
        # Without blockers it is the answer.
        notes.append("no nodes are known")

    answers: list[NodeAnswer] = []
    question = Question(cluster, pod, found)
    undecidable = found.undecidable or found.unseen
    if not _is_settled(subject, found) and not undecidable:
        answers = question.ask(places, time_limit, full=full, always=bool(node))
    if any(answer.outcome == "unknown" for answer in answers):
        notes.append(_note_on_undecided(time_limit))
    elif pod and not found.blockers and not any(one.outcome == "yes" for one in answers):
        notes += room.notes(cluster, pod, answers)

    blockers = [*found.blockers, *_fatal_errors(answers)]
    grouped = groups.group_nodes(answers)
    nearest = _nearest(question, places, answers, grouped, min(help_time, HELP_TIME))
    result = Answer(
        subject=f"{'pod' if pod else 'claim'} {subject.key}",
        verdict=_verdict(subject, found, blockers, answers, objects),
        can="could run it" if pod else "could have it",
        blockers=(*blockers, *found.unseen),
        notes=tuple(notes),
        nearest=nearest.node if nearest else "",
        help=tuple(headline.ways_out(nearest)) if nearest else (),
        groups=grouped,
        nodes=tuple(nearest if nearest and nearest.node == one.node else one for one in answers),
    )
    if pod:
        # The quotes have the scheduler's words, with what is to be said of them.
        kept = tuple(note for note in notes if not note.startswith("the scheduler says: "))
        quoted = tuple(quotes.quotes_for_pod(pod, objects, result))
        result = dataclasses.replace(result, notes=kept, quotes=quoted)
    return headline.with_line(result)


def _note_on_undecided(time_limit: float) -> str:
    """What the scheduler may do of what is not decided within the time limit."""
    if time_limit < TIME_LIMIT:
        return (
            f"{time_limit:.2g} s were too short; the scheduler has {TIME_LIMIT:g} s for a node: "
            "--timeout gives more"
        )
    return (
        f"the scheduler has {TIME_LIMIT:g} s for a node, and may not decide it either: "
        'it says "timed out trying to allocate devices" then'
    )


def _is_settled(subject: Pod | Claim, found: Preconditions) -> bool:
    """A claim that has its devices, and a pod that has its node, ask for none."""
    if isinstance(subject, Pod):
        return bool(subject.spec.node_name) or subject.has_ended
    return not found.waiting


def _fatal_errors(answers: Sequence[NodeAnswer]) -> Iterator[str]:
    """What ends the scheduler's search on all nodes, although some of them would be good."""
    failed = [answer for answer in answers if answer.ends_search]
    if failed and any(answer.outcome == "yes" for answer in answers):
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        ends = "ends" if len(answers) < _ALL_ARE_LOOKED_AT else "may end"
        yield (
            f"an error on node {failed[0].node}{more} {ends} the scheduler's search on all nodes: "
            f"{failed[0].summary}"
        )


def _verdict(
    subject: Pod | Claim,
    found: Preconditions,
    blockers: Sequence[str],
    answers: Sequence[NodeAnswer],
    objects: Objects,
) -> Verdict:
    if _is_settled(subject, found):
        return "settled"
    if blockers or found.undecidable:
        return "pending"
    if found.unseen or (not answers and "nodes" in objects.unseen):
        return "unknown"
    outcomes = {answer.outcome for answer in answers}
    if "yes" in outcomes:
        return "could run"
    return "unknown" if "unknown" in outcomes else "pending"


def _nearest(
    question: Question,
    places: Sequence[Node],
    answers: Sequence[NodeAnswer],
    grouped: Sequence[Group],
    seconds: float,
) -> NodeAnswer | None:
    """The node that lacks least, once more and in full; None where some node lacks nothing."""
    if not grouped or any(answer.outcome == "yes" for answer in answers):
        return None
    place = next(place for place in places if place.metadata.name == grouped[0].nearest)
    return question.ask_in_full(place, seconds)


def with_changes(answer: Answer, changes: Sequence[str]) -> Answer:
    """The answer with what was changed before the question."""
    return dataclasses.replace(answer, changes=tuple(changes)) if changes else answer


def about_workload(answer: Answer, subject: Pod | Claim, workloads: Sequence[Workload]) -> Answer:
    """The answer about a pod, said of the workload that would make it, if one would."""
    for workload in workloads:
        made = workload.pod["metadata"]
        if not isinstance(subject, Pod) or subject.key != f"{made['namespace']}/{made['name']}":
            continue
        notes = answer.notes
        if workload.kind == "DaemonSet":
            notes = (*notes, "it makes a pod for each node that could run it")
        elif workload.count != 1:
            notes = (*notes, f"it makes {workload.count} pods: this is about the first of them")
        kind, namespace = workload.kind.lower(), subject.metadata.namespace
        name = f"{kind} {namespace}/{workload.name}"
        return headline.with_line(dataclasses.replace(answer, subject=name, notes=notes))
    return answer


def _refused_selectors(claims: Sequence[ResourceClaim]) -> Iterator[str]:
    """Selectors that the API server would not take."""
    for claim in claims:
        for request in claim.spec.devices.requests or ():
            for alternative in (request.exactly, *request.first_available):
                selectors = alternative.selectors if alternative else ()
                for number, selector in enumerate(selectors, 1):
                    expression = selector.cel.expression if selector.cel else ""
                    try:
                        cel.compile(expression, new=True)
                    except cel.CompileError as error:
                        yield (
                            f"the API server refuses selector {number} "
                            f"of request {request.name}: {error}"
                        )


def notes_on_unseen(objects: Objects) -> Iterator[str]:
    """What the API server does not let us see, and what that means for the answer."""
    for resource in objects.unseen:
        if resource == "pods of other namespaces":
            yield f"not allowed to see {resource}: what they use of nodes is not counted"
        else:
            yield f"not allowed to see {resource}: the answer may be wrong"


def _nodes(cluster: Cluster, only: str) -> list[Node]:
    """Nodes by name; where none were given, the ones that slices name."""
    places = sorted(cluster.objects.nodes, key=lambda node: _natural_order(node.metadata.name))
    if not cluster.objects.nodes:
        names = {slice_.spec.node_name for slice_ in cluster.slices} - {""}
        places = [Node(metadata=Meta(name=name)) for name in sorted(names, key=_natural_order)]
    if not only:
        return places

    chosen = [node for node in places if node.metadata.name == only]
    if not chosen:
        raise errors.Fatal(f"no node {only!r} is known")
    return chosen


def _natural_order(name: str) -> list[tuple[str, int]]:
    """For sorting: node-9 comes before node-10."""
    parts = _DIGITS.split(name)
    numbers = [*map(int, parts[1::2]), 0]
    return list(zip(parts[::2], numbers, strict=True))
