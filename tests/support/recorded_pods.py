"""Pods that were put before the real scheduler (tests/cases/pending, written by
`python -m tests.cluster.pending`), and what claimd says about the same objects.

`python -m tests.support.recorded_pods` prints where they differ. Nothing is asserted here.
"""

import copy
import functools
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from claimd.sim.scheduler import scheduling_cycle
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from claimd.tools.explain import objects, pending

CASES = Path(__file__).resolve().parents[1] / "cases" / "pending"

_KNOWN = re.compile(
    r"(\d+) (Insufficient [\w./-]*\w|Too many pods|node\(s\) [^,.]*[^,.\d ]|cannot allocate all claims"
    r"|resourceclaim not available on the node|cannot fit resource)"
)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, the objects that the scheduler saw with it, and what became of it there."""

    name: str
    title: str
    pod: str
    objects: list
    node: str = ""
    feasible: tuple = ()
    reason: str = ""
    message: str = ""
    describe: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of claimd: whether anything keeps the pod from all nodes, and each node's outcome."""

    answer: object
    blocked: bool
    outcomes: dict

    @property
    def possible(self):
        if self.blocked:
            return set()
        return {node for node, outcome in self.outcomes.items() if outcome == "yes"}

    @property
    def names_what_it_does_not_look_at(self):
        """Rules that it does not keep, or another scheduler."""
        return any(note.startswith(("not looked at: ", "scheduler ")) for note in self.answer.notes)


# Recordings


@functools.cache
def situations():
    paths = sorted((CASES / "situations").glob("*.yaml"))
    return [_of_situation(path) for path in paths]


def _of_situation(path):
    recording = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return Pod(
        name=path.stem,
        title=recording["title"],
        pod=recording["pod"],
        objects=recording["objects"],
        describe=recording["describe"],
        **_verdict(recording["scheduler"]),
    )


@functools.cache
def random_pods():
    """One line a cluster: what was there, and the pods that came one after the other."""
    pods = []
    for line in (CASES / "random.jsonl").read_text().splitlines():
        pods += _of_cluster(json.loads(line))
    return pods


def _of_cluster(recording):
    known = {_key(document): document for document in recording["objects"]}
    for step in recording["steps"]:
        pod = step["pod"]
        seen = [*known.values(), *step["claims"], pod]
        name = pod["metadata"]["name"]
        yield Pod(
            name=f"cluster {recording['seed']}, {name}",
            title="",
            pod=name,
            objects=seen,
            **_verdict(step["scheduler"]),
        )
        # What is bound stays, with its claims as they were then; the rest is gone again.
        node = step["scheduler"].get("node")
        if node:
            bound = copy.deepcopy(pod)
            bound["spec"]["nodeName"] = node
            for document in (bound, *step["claims"], *step["changed"]):
                known[_key(document)] = document


def _key(document):
    return document["kind"], document["metadata"]["name"]


def _verdict(scheduler):
    return scheduler | {"feasible": tuple(scheduler.get("feasible", ()))}


# What claimd says


def known_objects(recorded):
    known = objects.Objects()
    for document in recorded.objects:
        known.add(document)
    return known


def explained(recorded):
    known = known_objects(recorded)
    subject = pending.find_subject(known, f"pod/{recorded.pod}", "default")
    answer = pending.report(known, subject, time_limit=1.0)
    outcomes = {node.node: node.outcome for node in answer.nodes}
    return Verdict(answer=answer, blocked=bool(answer.blockers), outcomes=outcomes)


def is_possible(documents, pod):
    """Whether claimd finds a node for the pod."""
    return bool(explained(Pod(name="", title="", pod=pod, objects=documents)).possible)


def simulated(recorded):
    """The simulated scheduler's decision about the same objects."""
    known = known_objects(recorded)
    published = PublishedDevices(known.slices, known.rules, known.classes)
    snapshot = Snapshot.from_objects(known.nodes, known.pods, known.claims, published)
    subject = pending.find_subject(known, f"pod/{recorded.pod}", "default")
    if subject not in snapshot.pending_pods():
        return scheduling_cycle.Pending()
    return scheduling_cycle.schedule_pod(snapshot, subject)


def counted(message):
    """By reason, how many nodes have it."""
    counts = Counter()
    for count, reason in _KNOWN.findall(message.partition(" preemption: ")[0]):
        counts[reason] += int(count)
    return counts


def of_preemption(message):
    """What is said of preemption. Of a pod that has made others go, it was before they went."""
    said = message.partition(" preemption: ")[2]
    if said.startswith(("found a potential placement", "not eligible due to a terminating pod")):
        return "others go"
    return said


# Where they differ


def difference_of_explain(recorded):
    """What is wrong with claimd's answer, or nothing."""
    verdict = explained(recorded)
    if not recorded.node:
        if verdict.possible and not verdict.names_what_it_does_not_look_at:
            said = recorded.message or "nothing"
            return f"yes for {sorted(verdict.possible)}, and the scheduler says: {said}"
        return ""
    if verdict.blocked:
        return f"{verdict.answer.blockers}, and the scheduler binds it to {recorded.node}"
    unknown = {node for node, outcome in verdict.outcomes.items() if outcome == "unknown"}
    if verdict.possible - unknown != set(recorded.feasible) - unknown:
        return f"yes for {sorted(verdict.possible)}, the scheduler: {list(recorded.feasible)}"
    return ""


def difference_of_simulation(recorded):
    """The same about the simulated scheduler, with the nodes by reason.

    An error on one node, as of a selector, ends the scheduler's search on all of them, where the
    simulated one does not get to that node: it takes the first that has the devices.
    """
    if recorded.reason == "SchedulerError":
        return ""
    decision = simulated(recorded)
    if isinstance(decision, scheduling_cycle.Bind):
        if decision.node in recorded.feasible:
            return ""
        # The pod has its place, and waits there for its devices.
        if decision.waits and not (recorded.node or recorded.message):
            return ""
        said = recorded.message or "nothing"
        return f"bound to {decision.node}, and the scheduler says: {said}"
    if recorded.node:
        return f"{decision}, and the scheduler binds it to {recorded.node}"
    if isinstance(decision, scheduling_cycle.Unschedulable):
        ours, real = counted(decision.message), counted(recorded.message)
        preemption = of_preemption(decision.message), of_preemption(recorded.message)
        if ours != real or preemption[0] != preemption[1] or not recorded.message:
            return (
                f"{decision.message}\n    and the scheduler says: {recorded.message or 'nothing'}"
            )
    return ""


def main():
    for recorded in (*situations(), *random_pods()):
        for name, compare in (
            ("explain", difference_of_explain),
            ("simulation", difference_of_simulation),
        ):
            text = compare(recorded)
            if text:
                print(f"{recorded.name}: {name}: {text}")


if __name__ == "__main__":
    main()
