"""Every "it would fit after" is true: the change is done to the world, and the allocator asked again.

`python -m tests.support.remedies --count 1000` is the campaign; each number is a seed. Worlds are
plain data, and so are they changed: by what a Change says, not by how it was found.
"""

import argparse
import copy
import itertools
import sys
import time
from collections import Counter

from claimd.kubernetes import allocator, cel
from claimd.kubernetes.allocator import explain, features
from claimd.kubernetes.api.scheduling import DeviceClass, ResourceClaim
from claimd.kubernetes.scheduling import objects
from claimd.sim.scheduler.scheduling_cycle import Bind, schedule_pod
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from tests.support import alloc_worlds, allocating


def verdict_of(world, **options):
    """Returns the verdict of explain on the world's node, with remedies."""
    return verdict_of_parsed(allocating.parse(world), world.get("taken", []), **options)


def verdict_of_parsed(parsed, taken, **options):
    """Does the same for a world that allocating.parse() returned."""
    allocator_ = _allocator_of(parsed)
    held = explain.gather_holdings(allocating.read(taken, list[ResourceClaim]))
    node, claims = parsed["node"], parsed["claims"]
    verdict = explain.explain_node(allocator_, node, claims, held, **options)
    return explain.add_remedies(verdict, allocator_, node, claims, held, **options)


def parts(world):
    """Returns an allocator of the world, its node and its claims."""
    parsed = allocating.parse(world)
    return _allocator_of(parsed), parsed["node"], parsed["claims"]


def _allocator_of(parsed):
    return allocator.Allocator(
        class_lister=allocator.Classes(parsed["classes"]),
        **{name: parsed[name] for name in ("slices", "allocated", "features")},
    )


def fits(world):
    try:
        return allocating.decide(allocating.parse(world)) is not None
    except allocator.AllocationError:
        return False


def runs(world):
    """Whether the simulated scheduler finds a place for a pod with the claims.

    None if it has other features than the world.
    """
    snapshot, pod = _scene(world)
    if snapshot.features != frozenset(world.get("features", features.DEFAULT)):
        return None
    return isinstance(schedule_pod(snapshot, pod), Bind)


def as_scheduled(world):
    """The world with the features that the simulated scheduler would have in it."""
    return world | {"features": sorted(_scene(world)[0].features)}


def _scene(world):
    """The cluster as the scheduler sees it, and a pod that waits."""
    claims = [claim | {"status": claim.get("status", {})} for claim in world["claims"]]
    names = [claim["metadata"]["name"] for claim in claims]
    entries = [{"name": name, "resourceClaimName": name} for name in names]
    waiting = {
        "metadata": {"name": "job", "namespace": "default", "uid": "job"},
        "spec": {"resourceClaims": entries, "containers": []},
    }
    pod = allocating.read(waiting, objects.Pod)
    node = copy.deepcopy(world["node"])
    node.setdefault("status", {})["allocatable"] = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    snapshot = Snapshot.from_objects(
        [allocating.read(node, objects.Node)],
        [pod],
        allocating.read(claims + world.get("taken", []), list[objects.Claim]),
        PublishedDevices(
            allocating.read(world["slices"], list[objects.Slice]),
            (),
            allocating.read(world["classes"], list[DeviceClass]),
        ),
    )
    return snapshot, pod


# Changing a world


def single_changes(remedy):
    """The remedy as changes of which each gives back one device or asks for one thing less.

    Of "1 of these devices" each is a remedy of its own.
    """
    options = []
    others = [change for change in remedy.changes if change.kind != "free"]
    freeing = [change for change in remedy.changes if change.kind == "free"]
    if not freeing:
        return [others]
    [change] = freeing
    for chosen in itertools.combinations(change.holders, change.count):
        options.append([*chosen, *others])
    return options


def changed(world, steps):
    """A copy of the world after these changes."""
    world = copy.deepcopy(world)
    dropped = []
    for step in steps:
        if not hasattr(step, "kind"):
            _free(world, step)
        elif step.kind in ("selector", "constraint", "request"):
            dropped.append(step)
        else:
            _change_request(world, step)
    # What is taken out comes last, and from the end: the numbers before it stay true.
    for step in sorted(dropped, key=lambda step: (step.kind == "request", -step.number)):
        _drop(world, step)
    return world


def _free(world, holder):
    [name] = holder.claims
    for claim in world["taken"]:
        if _key(claim) != name:
            continue
        results = claim["status"]["allocation"]["devices"]["results"]
        for result in results:
            if (result["driver"], result["pool"], result["device"]) == tuple(holder.device):
                results.remove(result)
                return
    raise AssertionError(f"{holder} holds nothing")


def _change_request(world, change):
    asked = _request(world, change)
    match change.kind:
        case "count":
            asked |= {"allocationMode": "ExactCount", "count": change.count}
        case "tolerate":
            name, _, effect = change.subject.rpartition(":")
            key, _, value = name.partition("=")
            toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
            asked.setdefault("tolerations", []).append(toleration)
        case "capacity":
            requests = asked["capacity"]["requests"]
            name, _, amount = change.subject.rpartition("=")
            if name:
                requests[name] = amount
            else:
                del requests[change.subject.removeprefix("no ")]
        case _:
            raise AssertionError(change.kind)


def _drop(world, change):
    devices = _claim(world, change)["spec"]["devices"]
    match change.kind:
        case "selector":
            _drop_clause(_request(world, change)["selectors"], change)
        case "constraint":
            del devices["constraints"][change.number - 1]
        case "request":
            devices["requests"] = [
                request for request in devices["requests"] if request["name"] != change.request
            ]
            kept = []
            for constraint in devices.get("constraints", ()):
                names = constraint.get("requests", [])
                left = [name for name in names if name.split("/")[0] != change.request]
                if left or not names:
                    kept.append(constraint | ({"requests": left} if left else {}))
            devices["constraints"] = kept


def _drop_clause(selectors, change):
    """The selector without the clause; one without any is true."""
    selector = selectors[change.number - 1]["cel"]
    kept = []
    if change.clause != selector["expression"]:
        kept = [
            clause
            for clause in cel.compile(selector["expression"]).clauses
            if clause != change.clause
        ]
    selector["expression"] = " && ".join(kept) or "true"


def _claim(world, change):
    [claim] = [claim for claim in world["claims"] if _key(claim) == change.claim]
    return claim


def _request(world, change):
    name, _, alternative = change.request.partition("/")
    for request in _claim(world, change)["spec"]["devices"]["requests"]:
        if request["name"] == name and not alternative:
            return request["exactly"]
        if request["name"] == name:
            [asked] = [
                subrequest
                for subrequest in request["firstAvailable"]
                if subrequest["name"] == alternative
            ]
            return asked
    raise AssertionError(f"no request {change.request}")


def _key(claim):
    meta = claim["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


# The campaign


def wrong(world, verdict, counted=None):
    """What is not true of the verdict, in words; `counted` counts what was tried."""
    problems = fits(world)
    if verdict.outcome == "yes" and not problems:
        yield "explain says yes, the allocator does not"
    if verdict.outcome in ("no", "error") and problems:
        yield f"explain says {verdict.outcome}, the allocator says yes"
    for count in verdict.shortage.counts:
        if count.free >= count.needed or not (count.free <= count.suitable <= count.there):
            yield f"no shortage: {count}"
        if problems:
            yield f"it fits, in spite of: {count}"
    for remedy in verdict.shortage.remedies:
        for steps in single_changes(remedy):
            after = changed(world, steps)
            if not fits(after):
                yield f"does not fit after: {list(map(str, steps))}"
            scheduled = runs(after)
            if scheduled is False:
                yield f"the scheduler finds no place after: {list(map(str, steps))}"
            if counted is not None:
                counted["remedies tried"] += 1
                counted["and scheduled"] += bool(scheduled)
            for index in range(len(steps)):
                if fits(changed(world, steps[:index] + steps[index + 1 :])):
                    yield f"{steps[index]} is not necessary among {list(map(str, steps))}"


def run(first, count):
    """Explains `count` worlds in which the claims do not fit; returns the number of mistakes."""
    kinds = Counter()
    slowest = (0.0, 0)
    seed = first
    mistakes = 0
    while kinds["worlds"] < count:
        world = alloc_worlds.numbered(seed)
        if seed % 2:
            world = as_scheduled(world)
        began = time.perf_counter()
        verdict = verdict_of(world)
        slowest = max(slowest, (round(time.perf_counter() - began, 2), seed))
        kinds[verdict.outcome] += 1
        if verdict.outcome != "yes":
            kinds["worlds"] += 1
            kinds["with a count"] += bool(verdict.shortage.counts)
            kinds["with a remedy"] += bool(verdict.shortage.remedies)
            kinds["remedies"] += len(verdict.shortage.remedies)
            kinds["unfinished"] += not verdict.shortage.finished
        for mistake in wrong(world, verdict, kinds):
            mistakes += 1
            print(f"{seed}: {mistake}", flush=True)
        seed += 1
    print(f"{first} to {seed - 1}: {dict(kinds)}, {mistakes} mistakes, slowest {slowest}")
    return mistakes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    sys.exit(1 if run(arguments.first, arguments.count) else 0)
