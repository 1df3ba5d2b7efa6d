"""Small clusters whose objects are as other drivers and other versions write them, or worse.

`python -m tests.support.mutated_worlds --count 100000` asks for a device in each, again and again,
and says where one was given twice.
"""

import argparse
import copy
import random
import sys
import time
from types import SimpleNamespace

import msgspec

from claimd.kubernetes.scheduling.objects import Claim, Class, Node, Pod, Rule, Slice
from claimd.sim.scheduler import listers
from claimd.sim.scheduler.scheduling_cycle import Bind, schedule_pod
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from tests.support import planes

WRONG = (None, [], {}, "x", 7, True, [None], [7], {"unknown": 1}, {"x": None})
TYPES = {
    "nodes": Node,
    "pods": Pod,
    "claims": Claim,
    "slices": Slice,
    "classes": Class,
    "rules": Rule,
}
DRIVER_STATUS = {"driver": planes.DRIVER, "pool": "node-1", "device": "gpu-0", "conditions": None}
QUANTITIES = {"allocatable", "resources", "capacity"}
PODS = 3  # that ask for a device one after the other
SHOWN = 20_000  # worlds between two lines of progress


def world(dice):
    """Two nodes of two GPUs, of which one is held, and pods that want one each."""
    held = planes.claim("held", devices=["gpu-0"], pods=["other"])
    held["status"]["devices"] = [copy.deepcopy(DRIVER_STATUS)]
    names = [f"new-{number}" for number in range(PODS)]
    taint = {"key": "sick", "effect": "NoSchedule"}
    objects_ = {
        "nodes": [planes.node("node-1"), planes.node("node-2")],
        "pods": [
            planes.pod("other", claims=["held"], on="node-1"),
            *(planes.pod(name, claims=[name]) for name in names),
        ],
        "claims": [held, *(planes.claim(name) for name in names)],
        "slices": [planes.slice_("node-1"), planes.slice_("node-2")],
        "classes": [planes.class_()],
        "rules": [planes.rule("sick", taint, device="gpu-1", pool="node-2")],
    }
    # The claim that holds is spoilt more often than the others, since most depends on it.
    if dice.random() < 0.7:
        objects_["claims"][0] = mutated(held, dice)
    for kind, objects in objects_.items():
        for index, document in enumerate(objects):
            if document["metadata"]["name"] != "held" and dice.random() < 0.15:
                objects_[kind][index] = mutated(document, dice)
    return objects_


def mutated(document, dice):
    """With up to three places of its spec and status wrong, missing or joined by unknown ones.

    Which devices it holds may become unknown, but not others or none: that is a deallocation.
    """
    document = copy.deepcopy(document)
    for _ in range(dice.randint(1, 3)):
        paths = [
            path for path in places(document) if path[0] in ("spec", "status") and len(path) > 1
        ]
        if not paths:
            break
        path = dice.choice(paths)
        target = document
        for key in path[:-1]:
            target = target[key]

        inside = path[:2] == ("status", "allocation") and len(path) < 7
        wrong = [value for value in WRONG if value] if inside else WRONG
        if QUANTITIES & set(path):
            # No API server takes any text for an amount.
            wrong = [value for value in wrong if value != "x"]
        value, kind_of_harm = copy.deepcopy(dice.choice(wrong)), dice.random()
        if isinstance(target, dict) and kind_of_harm < 0.2:
            target["unknown"] = value
        elif isinstance(target, dict) and kind_of_harm < 0.4 and not inside:
            del target[path[-1]]
        else:
            target[path[-1]] = value
    return document


def places(value, path=()):
    """Every place below the object."""
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def still_says(document):
    """The devices that can be read in it, as far as anybody can tell."""
    try:
        results = document["status"]["allocation"]["devices"]["results"]
        return [(result["driver"], result["pool"], result["device"]) for result in results]
    except (KeyError, TypeError):
        return []


def read(kind, objects):
    """As the scheduler reads them from what it watches."""
    named = {f"default/{document['metadata']['name']}": document for document in objects}
    salvage = {"salvage": listers.salvage_claim} if kind == "claims" else {}
    cache = SimpleNamespace(resource=kind, objects=named)
    lister = listers.TypedLister(cache, TYPES[kind], lambda *_: False, **salvage)
    lister.refresh()
    return list(lister.values.values())


def given_twice(seed):
    """The devices that two claims of the world have in the end; there should be none.

    And how many were given.
    """
    dice = random.Random(seed)
    world_ = world(dice)
    held = still_says(world_["claims"][0])
    if held != [(planes.DRIVER, "node-1", "gpu-0")]:
        held = []  # nobody can tell that it still holds this one

    published = PublishedDevices(
        *(read(kind, world_[kind]) for kind in ("slices", "rules", "classes"))
    )
    nodes, pods = read("nodes", world_["nodes"]), read("pods", world_["pods"])
    given = []
    for pod in pods:
        if not pod.metadata.name.startswith("new-"):
            continue
        snapshot = Snapshot.from_objects(nodes, pods, read("claims", world_["claims"]), published)
        decision = schedule_pod(snapshot, pod)
        for claim in decision.claims if isinstance(decision, Bind) else ():
            document = with_allocation(world_["claims"], claim)
            given += still_says(document)
            # Its driver reports at once, in whatever way.
            if dice.random() < 0.3:
                spoilt = mutated(document, dice)
                if still_says(spoilt) == still_says(document):
                    document["status"] = spoilt["status"]

    every = held + given
    return sorted({entry for entry in every if every.count(entry) > 1}), len(given)


def with_allocation(documents, claim):
    """The document of the claim, as the scheduler writes it."""
    (document,) = (entry for entry in documents if entry["metadata"]["name"] == claim.metadata.name)
    status = msgspec.to_builtins(claim.status.allocation)
    devices = [
        {name: result[name] for name in ("request", "driver", "pool", "device")}
        for result in status.get("devices", {}).get("results", ())
    ]
    old = document["status"] if isinstance(document.get("status"), dict) else {}
    document["status"] = old | {"allocation": {"devices": {"results": devices}}}
    return document


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.mutated_worlds", description=__doc__
    )
    parser.add_argument("--count", type=int, default=100_000, help="so many worlds")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first (default 0)")
    asked = parser.parse_args()

    began, given, broken = time.monotonic(), 0, 0
    for number in range(asked.count):
        twice, count = given_twice(asked.first + number)
        given += count
        if twice:
            broken += 1
            print(f"seed {asked.first + number}: given twice: {twice}", flush=True)
        if (number + 1) % SHOWN == 0:
            print(f"{number + 1} worlds, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{asked.count} worlds, {given} devices given, twice in {broken} of them")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
