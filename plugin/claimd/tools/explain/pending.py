"""Answers the question why a pod or a claim is pending.

There are three steps. `preconditions` has the obstacles that do not depend on a node. `question`
tries the pod on each node: first with the scheduler's rules about pods and nodes, and then with the
allocator's about devices. At last `groups` and `headline` summarize the answers of the nodes.
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

from . import evictions, gangs, groups, headline, preconditions, quotes, room
from .answer import Answer, Group, NodeAnswer, Verdict, fits_somewhere
from .preconditions import Preconditions
from .question import Cluster, Question

if TYPE_CHECKING:
    from claimd.kubernetes.allocator.verdicts import RequestVerdict

    from .manifests import Workload
    from .objects import Objects

_DIGITS = re.compile(r"([0-9]{1,18})")
# The time limit in seconds. The scheduler has the same limit, but for each node.
TIME_LIMIT = 10.0
# The time in seconds to find the changes that would help on the nearest node.
HELP_TIME = 2.0
# In a cluster with fewer nodes the scheduler tries every node. In a larger one it stops when it has
# found enough.
_ALL_ARE_LOOKED_AT = 100


def find_subject(objects: Objects, name: str, namespace: str) -> Pod | Claim:
    """Returns the pod or claim of this name; raises errors.Fatal if it does not exist.

    `name` is NAME, claim/NAME or pod/NAME. A claim comes first if both exist.
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


def subjects_of_manifest(objects: Objects) -> list[Pod | Claim]:
    """Returns the subjects of a manifest: its pods, or its claims if it has no pods.

    The claims that its templates would create are among them. Raises errors.Fatal if there are
    neither pods nor claims.
    """
    if objects.pods:
        return [*objects.pods]

    claims: list[Pod | Claim] = [*objects.claims]
    for template in objects.templates:
        claims.append(preconditions.claim_of_template(template, template.metadata.name))
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
    """Answers which devices belong to a device class and are free, and why the others are not."""
    # A claim for one device of the class is this very question to the allocator.
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
    if fits_somewhere(answers):
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
    """Returns the summary of a node in the answer about a class."""
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
    """Answers whether each node could run the pod or have the claim, and if not, why.

    With `node` only that node is asked; raises errors.Fatal if there is no such node. `new` means
    that the subject does not exist yet, so that the API server may still refuse its selectors.
    After `time_limit` seconds the other nodes' outcome is unknown. Without `full`, nodes with the
    same devices are judged once.
    """
    found = preconditions_of(objects, subject, new=new)
    return answer(
        Cluster(objects, found.waiting),
        subject,
        found,
        node=node,
        new=new,
        time_limit=time_limit,
        full=full,
    )


def preconditions_of(objects: Objects, subject: Pod | Claim, *, new: bool = False) -> Preconditions:
    """Returns the facts about the subject that do not depend on a node."""
    if isinstance(subject, Pod):
        return preconditions.check_pod(subject, objects, new=new)
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
    """Answers as report() does, in a cluster that serves several questions.

    `help_time` limits the search for changes that would help, in seconds.
    """
    objects = cluster.objects
    pod = subject if isinstance(subject, Pod) else None
    notes = [*notes_on_unseen(objects), *found.notes]
    if new:
        notes += _refused_selectors(found.waiting)
    places = _nodes(cluster, node)
    if found.blockers and not places:
        # Without blockers this is the answer itself.
        notes.append("no nodes are known")

    # The nodes. Blockers do not stop the question: the answer says what would come after them.
    answers: list[NodeAnswer] = []
    question = Question(cluster, pod, found)
    undecidable = found.undecidable or found.unseen
    if not _is_settled(subject, found) and not undecidable:
        answers = question.ask(places, time_limit, full=full, always=bool(node))

    # Preemption is of interest only if every node was decided and none fits.
    if any(answer.outcome == "unknown" for answer in answers):
        notes.append(_note_on_undecided(time_limit))
    elif pod and not found.blockers and not fits_somewhere(answers):
        notes += room.notes(cluster, pod, answers)
    eviction = evictions.note(cluster, found.waiting, answers) if pod else ""
    if eviction:
        notes.append(eviction)

    blockers = [*found.blockers, *_fatal_errors(answers)]
    if pod and not new and not blockers and fits_somewhere(answers):
        gang = gangs.try_gang(cluster, pod, places, time_limit)
        blockers += gang.blockers
        notes += gang.notes
    grouped = groups.group_nodes(answers)
    nearest = _nearest(question, places, answers, grouped, min(help_time, HELP_TIME))
    nodes = answers
    if nearest:
        nodes = [nearest if each.node == nearest.node else each for each in answers]

    result = Answer(
        subject=f"{'pod' if pod else 'claim'} {subject.key}",
        verdict=_verdict(subject, found, blockers, answers, objects),
        can="could run it" if pod else "could have it",
        blockers=(*blockers, *found.unseen),
        remedies=tuple(found.remedies),
        details=tuple(found.details),
        notes=tuple(notes),
        nearest=nearest.node if nearest else "",
        help=tuple(headline.ways_out(nearest)) if nearest else (),
        groups=grouped,
        nodes=tuple(nodes),
    )
    if pod:
        # The quotes replace the note with the scheduler's message, as they compare it with the
        # answer.
        other_notes = []
        for note in notes:
            if not note.startswith("the scheduler says: "):
                other_notes.append(note)
        scheduler_quotes = tuple(quotes.quotes_for_pod(pod, objects, result))
        result = dataclasses.replace(result, notes=tuple(other_notes), quotes=scheduler_quotes)
    return headline.with_line(result)


def _note_on_undecided(time_limit: float) -> str:
    """Returns a note on how the scheduler may treat nodes that were not decided in time."""
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
    """Returns True if nothing is left to schedule.

    A pod is settled when it has a node or has ended, and a claim when it has its devices.
    """
    if isinstance(subject, Pod):
        return bool(subject.spec.node_name) or subject.has_ended
    return not found.waiting


def _fatal_errors(answers: Sequence[NodeAnswer]) -> Iterator[str]:
    """Yields the error that ends the scheduler's search, although the pod fits on some node."""
    failed = [answer for answer in answers if answer.ends_search]
    if failed and fits_somewhere(answers):
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        ends = "ends" if len(answers) < _ALL_ARE_LOOKED_AT else "may end"
        yield (
            f"an error on {failed[0].node}{more} {ends} the scheduler's search on all nodes: "
            f"{groups.ON_DEVICE.sub('', failed[0].summary)}"
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
    """Asks the node with the smallest lack once more, in full; None if the pod fits on a node."""
    if not grouped or fits_somewhere(answers):
        return None

    place = next(place for place in places if place.metadata.name == grouped[0].nearest)
    return question.ask_in_full(place, seconds)


def with_changes(answer: Answer, changes: Sequence[str]) -> Answer:
    """Records in the answer which what-if changes were applied."""
    return dataclasses.replace(answer, changes=tuple(changes)) if changes else answer


def about_workload(answer: Answer, subject: Pod | Claim, workloads: Sequence[Workload]) -> Answer:
    """Returns an answer about a pod as one about the workload that would create the pod.

    Other answers are returned as they are.
    """
    for workload in workloads:
        metadata = workload.pod["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if not isinstance(subject, Pod) or subject.key != key:
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
    """Yields a note for each selector that the API server would refuse."""
    for claim in claims:
        for path, request in claim.spec.alternatives():
            for number, selector in enumerate(request.selectors, 1):
                expression = selector.cel.expression if selector.cel else ""
                try:
                    cel.compile(expression, new=True)
                except cel.CompileError as error:
                    yield f"the API server refuses selector {number} of request {path}: {error}"


def notes_on_unseen(objects: Objects) -> Iterator[str]:
    """Yields a note for each collection that the API server does not let us read."""
    for resource in objects.unseen:
        # Groups matter only to their pods, whose check reports that they are unknown.
        if resource == "podgroups":
            continue
        if resource == "pods of other namespaces":
            yield f"not allowed to see {resource}: what they use of nodes is not counted"
        else:
            yield f"not allowed to see {resource}: the answer may be wrong"


def _nodes(cluster: Cluster, only: str) -> list[Node]:
    """Returns the nodes in natural order of their names, or the one node `only`.

    If the input has no nodes, as a file with slices alone, the nodes are those that slices name.
    """
    places = sorted(cluster.objects.nodes, key=lambda node: _natural_order(node.metadata.name))
    if not cluster.objects.nodes:
        names = {slice_.spec.node_name for slice_ in cluster.slices} - {""}
        for name in sorted(names, key=_natural_order):
            places.append(Node(metadata=Meta(name=name)))
    if not only:
        return places

    for place in places:
        if place.metadata.name == only:
            return [place]
    raise errors.Fatal(f"no node {only!r} is known")


def _natural_order(name: str) -> list[tuple[str, int]]:
    """Returns the sort key of a name, by which node-9 comes before node-10."""
    parts = _DIGITS.split(name)
    numbers = [*map(int, parts[1::2]), 0]
    return list(zip(parts[::2], numbers, strict=True))
