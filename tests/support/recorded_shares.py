"""Claims on shared GPUs that were put before the real scheduler (tests/cases/pending/shared.jsonl,
written by `python -m tests.cluster.pending --shared`), and what the simulated one makes of them.

A line is a world: the slices of its node as the API server has them, and what came and went. Only
what differs from world to world is written down; `objects` and `pod_of` make the rest of it, for
the recorder too.

`python -m tests.support.recorded_shares` prints where they differ. Nothing is asserted here.
"""

import json
import random
import uuid
from collections import Counter
from dataclasses import dataclass

import msgspec

from claimd.kubernetes.api.scheduling import DeviceClass
from claimd.kubernetes.scheduling import objects as scheduling
from claimd.sim.scheduler import scheduling_cycle
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from tests.support import cluster_objects, recorded_pods, shared_worlds

RECORDED = recorded_pods.CASES / "shared.jsonl"
NODE = shared_worlds.NODE


@dataclass(frozen=True, kw_only=True)
class Question:
    """A pod, and the objects that the scheduler saw with it."""

    name: str
    snapshot: Snapshot
    pod: object
    scheduler: dict  # what became of it there


# The objects


def numbered(seed):
    """The node, the class and the slices; and steps: the claims of a pod that comes, or the number
    of the pod that goes, of those that are there.
    """
    world, drawn = shared_worlds.numbered(seed)
    source = random.Random(f"pods of {seed}")
    steps = []
    for step in drawn:
        is_second = not isinstance(step, int) and steps and isinstance(steps[-1], list)
        if is_second and len(steps[-1]) == 1 and source.random() < 0.2:
            steps[-1].append(step)
        else:
            steps.append(step if isinstance(step, int) else [step])
    for step in steps:
        if isinstance(step, list):
            names = [claim["metadata"]["name"] for claim in step]
            specs = [claim["spec"]["devices"] for claim in step]
            step[:] = map(claim_of, names, specs)
    return objects(slice_["spec"] for slice_ in world["slices"]), steps


def objects(slices):
    """The node of a world, the class, and its slices."""
    (class_,) = shared_worlds.numbered(0)[0]["classes"]
    documents = [
        cluster_objects.node(NODE),
        cluster_objects.build(
            "DeviceClass", class_["metadata"]["name"], class_["spec"], namespace=""
        ),
    ]
    for number, spec in enumerate(slices):
        documents.append(
            cluster_objects.build("ResourceSlice", f"{number}-{NODE}", spec, namespace="")
        )
    return documents


def claim_of(name, devices):
    return cluster_objects.build("ResourceClaim", name, {"devices": devices})


def pod_of(claims):
    """The pod that uses the claims; it has the name of the first."""
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    main = {"name": "main", "image": "busybox", "resources": {}}
    spec = {"containers": [main], "resourceClaims": entries, "terminationGracePeriodSeconds": 0}
    return cluster_objects.pod(claims[0], automountServiceAccountToken=False, **spec)


# What is recorded


def worlds():
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def plain(allocation):
    """An allocation as it is recorded: what is equal every time.

    Share ids are random: it is kept whether there is one. The node selector is NODE's for all.
    """
    results = []
    for result in allocation["devices"]["results"]:
        kept = {name: value for name, value in result.items() if value and name != "shareID"}
        if result.get("shareID"):
            kept["shared"] = True
        results.append(kept)
    return results


def _allocated(seed, name, results):
    """The status of a claim with recorded results, each share with an id of its own."""
    devices = []
    for number, result in enumerate(results):
        kept = {key: value for key, value in result.items() if key != "shared"}
        if result.get("shared"):
            called = f"{seed} {name} {number}"
            kept["shareID"] = str(uuid.uuid5(uuid.NAMESPACE_OID, called))
        devices.append(kept)
    status = {"allocation": {"devices": {"results": devices}}}
    return msgspec.convert(status, scheduling.ClaimStatus)


# What the simulated scheduler says


def questions(world):
    """One for each pod that came, with what those before it have left."""
    seed = world["seed"]
    node, class_, *slices = objects(world["slices"])
    published = PublishedDevices(
        [_read(slice_, scheduling.Slice) for slice_ in slices], (), [_read(class_, DeviceClass)]
    )
    nodes = [_read(node, scheduling.Node)]
    held = {}
    for step in world["steps"]:
        if "gone" in step:
            for name in step["gone"]:
                del held[name]
            continue

        asked = {
            name: _read(claim_of(name, devices), scheduling.Claim)
            for name, devices in step["claims"].items()
        }
        pod = _read(pod_of(list(asked)), scheduling.Pod)
        yield Question(
            name=f"world {seed}, {pod.metadata.name}",
            snapshot=Snapshot.from_objects(
                nodes, [pod], [*held.values(), *asked.values()], published
            ),
            pod=pod,
            scheduler=step["scheduler"],
        )
        for name, results in step["scheduler"].get("allocated", {}).items():
            status = _allocated(seed, name, results)
            held[name] = msgspec.structs.replace(asked[name], status=status)


def _read(document, kind):
    """As an API server gives it: with a uid."""
    metadata = {"uid": f"uid-of-{document['metadata']['name']}"} | document["metadata"]
    return msgspec.convert(document | {"metadata": metadata}, kind)


def simulated(question):
    """The simulated scheduler's decision in the words of a recording."""
    decision = scheduling_cycle.schedule_pod(question.snapshot, question.pod)
    if isinstance(decision, scheduling_cycle.Bind):
        allocated = {
            claim.metadata.name: plain(msgspec.to_builtins(claim.status.allocation))
            for claim in decision.claims
        }
        return {"node": decision.node, "allocated": allocated}
    return {"reason": decision.reason, "message": decision.message}


def difference(question):
    """What is wrong with the simulated scheduler's decision, or nothing.

    Of a refusal its reason, and how many nodes have which cause: ours names devices as well.
    """
    ours, real = simulated(question), question.scheduler
    if "node" in ours or "node" in real:
        is_same = ours == real
    else:
        is_same = _kind(ours) == _kind(real)
    return "" if is_same else f"{ours}, and the scheduler: {real}"


def _kind(refusal):
    return refusal["reason"], recorded_pods.counted(refusal["message"])


def outcomes(recorded):
    """By kind, how many there are of each."""
    counts = Counter(worlds=len(recorded))
    for world in recorded:
        for step in world["steps"]:
            if "gone" in step:
                counts["gone"] += 1
                continue
            verdict = step["scheduler"]
            counts["pods"] += 1
            counts["bound" if "node" in verdict else verdict["reason"]] += 1
            for results in verdict.get("allocated", {}).values():
                counts["claims"] += 1
                counts.update(map(_kind_of_result, results))
    return counts


def _kind_of_result(result):
    if not result.get("shared"):
        return "devices alone"
    consumed = result.get("consumedCapacity", {})
    if "shares" in consumed:
        return "shares by count"
    return "shares by memory" if consumed.get("memory", "0") != "0" else "shares without limit"


def main():
    recorded = worlds()
    for world in recorded:
        for question in questions(world):
            text = difference(question)
            if text:
                print(f"{question.name}: {text}")
    print(dict(outcomes(recorded)))


if __name__ == "__main__":
    main()
