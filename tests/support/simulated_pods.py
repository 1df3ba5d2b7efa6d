"""Random pods that the simulated scheduler decides about, and what `claimd explain` says of each.

`python -m tests.support.simulated_pods --count 20000` is the campaign; each number is a seed, and
the same number the same pods. It prints where they differ: what explain finds a node for has to be
bound, to one of its nodes, and what it finds none for has to wait.
"""

import argparse
import copy
import json
import sys
from collections import Counter

import msgspec

from claimd.sim.scheduler import scheduling_cycle
from tests.cluster.pending import clusters
from tests.support import damaged_worlds, recorded_pods
from tests.support.recorded_pods import Pod


def pods(seed):
    """With the objects that are there when each comes: a whole cluster's, or a single one."""
    if seed % 4:
        yield from _single(seed)
    else:
        yield from _of_cluster(seed)


def _single(seed):
    documents = damaged_worlds.documents(seed)
    for document in documents:
        if document["kind"] == "Pod":
            _identify(document)
            name = document["metadata"]["name"]
            yield Pod(name=f"seed {seed}", title="", pod=name, objects=documents)


def _of_cluster(seed):
    cluster = clusters.cluster(seed)
    known = [_identify(document) for document in cluster.objects]
    for arrival in cluster.arrivals:
        claims = [_identify(document) for document in arrival.claims]
        pod = _identify(arrival.pod)
        name = pod["metadata"]["name"]
        documents = [*known, *claims, pod]
        recorded = Pod(name=f"seed {seed}, {name}", title="", pod=name, objects=documents)
        yield recorded
        decision = recorded_pods.simulated(recorded)
        if isinstance(decision, scheduling_cycle.Bind):
            known = _bound([*known, *claims], pod, decision)


def _identify(document):
    """A copy with a namespace and a uid, as an API server would give them."""
    document = copy.deepcopy(document)
    metadata = document["metadata"]
    metadata.setdefault("uid", f"uid-of-{metadata['name']}")
    if document["kind"] in ("Pod", "ResourceClaim"):
        metadata.setdefault("namespace", "default")
    return document


def _bound(documents, pod, decision):
    placed = pod | {"spec": pod["spec"] | {"nodeName": decision.node}}
    written = {}
    for claim in decision.claims:
        document = json.loads(msgspec.json.encode(claim))
        document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **document}
        document["metadata"]["uid"] = document["metadata"].get("uid") or claim.metadata.name
        written[claim.metadata.name] = document
    kept = [
        document
        for document in documents
        if document["kind"] != "ResourceClaim" or document["metadata"]["name"] not in written
    ]
    return [*kept, *written.values(), placed]


def difference(recorded):
    """What is wrong, or nothing, and what became of the pod."""
    decision = recorded_pods.simulated(recorded)
    verdict = recorded_pods.explained(recorded)
    if "unknown" in verdict.outcomes.values():
        return "", "not decided in time"
    if isinstance(decision, scheduling_cycle.Bind):
        if decision.node in verdict.possible:
            return "", "bound"
        if "error" in verdict.outcomes.values():
            # It would end a real scheduler's search; the simulated one did not get to that node.
            return "", "bound beside an error"
        said = verdict.answer.blockers or verdict.outcomes
        return f"{said}, and it is bound to {decision.node}", "bound"
    if verdict.possible and not verdict.names_what_it_does_not_look_at:
        return f"yes for {sorted(verdict.possible)}, and the decision is {decision}", "pending"
    return "", "pending"


def run(first, count):
    outcomes, different = Counter(), 0
    for seed in range(first, first + count):
        for recorded in pods(seed):
            text, outcome = difference(recorded)
            outcomes[outcome] += 1
            if text:
                different += 1
                print(f"{recorded.name}: {text}", flush=True)
    total = outcomes.total()
    print(f"{count} worlds, {total} pods, {different} differences; {dict(outcomes)}")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    asked = parser.parse_args()
    return 1 if run(asked.first, asked.count) else 0


if __name__ == "__main__":
    sys.exit(main())
