"""Ours against Kubernetes' own, at random and in full: `python -m tests.oracle.campaign allocator
--count 20000`.

Each number is a seed: the same number, the same world or expression. It tells how far it is, so
that `--first` goes on from there, and prints what differs; such a world or expression becomes a
case in tests/cases.
"""

import argparse
import collections
import json
import random
import sys
import time

from claimd.kubernetes.allocator import features
from tests.oracle.cel.expressions import Expressions
from tests.support import (
    alloc_worlds,
    allocating,
    apply_steps,
    cel_asking,
    hive_worlds,
    oracle,
    pool_worlds,
)

MODES = ({"prune_after": 0}, {}, {"prune": False})
TOLD = 1000  # after how many seeds


def of_world(kubernetes, seed):
    world = alloc_worlds.shuffled(seed)
    if features.takes_oldest(frozenset(world["features"])):
        return of_old_world(kubernetes, seed)
    theirs = allocating.theirs(kubernetes, world, timeout=2)
    if theirs.get("timedOut"):
        return "too slow for Kubernetes", None
    # Without pruning ours is as slow as theirs, times what Python costs.
    mode = MODES[seed % (3 if theirs["seconds"] < 0.05 else 2)]
    expected, got = (
        allocating.comparable(theirs),
        allocating.comparable(allocating.ours(world, **mode)),
    )
    kind = "no" if expected is None else "error" if isinstance(expected, dict) else "yes"
    kind += (
        " of incubating" if features.DEFAULT.issuperset(world["features"]) else " of experimental"
    )
    if expected == got:
        return kind, None
    return kind, f"{mode}\n  theirs {json.dumps(expected)}\n  ours   {json.dumps(got)}"


def of_old_world(kubernetes, seed):
    """Against the oldest of Kubernetes' allocators, which it takes while newer features are off."""
    world = alloc_worlds.for_the_oldest_allocator(seed)
    # What is too much for Kubernetes may be too much for ours, which nothing would end.
    if allocating.theirs(kubernetes, world, variants=["stable"], timeout=2).get("timedOut"):
        return "too slow for Kubernetes", None
    got = allocating.comparable(allocating.ours(world))
    expected, finished = allocating.among_theirs(kubernetes, world, got)
    if not finished:
        return "too slow for Kubernetes", None
    kind = "no" if expected is None else "error" if isinstance(expected, dict) else "yes"
    if expected == got:
        return kind, None
    return kind, f"\n  theirs {json.dumps(expected)}\n  ours   {json.dumps(got)}"


def of_1_38(kubernetes, seed):
    """Against the allocators of Kubernetes 1.38, which have rules of their own."""
    world = alloc_worlds.for_1_38(seed)
    theirs = allocating.theirs(kubernetes, world, timeout=2)
    if theirs.get("timedOut"):
        return "too slow for Kubernetes", None
    mode = MODES[seed % (3 if theirs["seconds"] < 0.05 else 2)]
    expected = allocating.comparable(theirs)
    got = allocating.comparable(allocating.ours(world, **mode))
    kind = "no" if expected is None else "error" if isinstance(expected, dict) else "yes"
    if expected == got:
        return kind, None
    return kind, f"{mode}\n  theirs {json.dumps(theirs)}\n  ours   {json.dumps(got)}"


def of_hives(kubernetes, seed):
    """GPUs of one hive, of machines as claimd publishes them."""
    world = hive_worlds.numbered(seed)
    theirs = allocating.theirs(kubernetes, world, timeout=2)
    if theirs.get("timedOut"):
        return "too slow for Kubernetes", None
    expected = allocating.comparable(theirs)
    got = allocating.comparable(allocating.ours(world, **MODES[seed % 2]))
    kind = "no" if expected is None else "error" if isinstance(expected, dict) else "yes"
    if expected == got:
        return kind, None
    return kind, f"\n  theirs {json.dumps(expected)}\n  ours   {json.dumps(got)}"


def of_pools(kubernetes, seed):
    world = pool_worlds.numbered(seed)
    expected, got = pool_worlds.theirs(kubernetes, world), pool_worlds.ours(world)
    return (
        "pools",
        None
        if expected == got
        else f"\n  theirs {json.dumps(expected)}\n  ours   {json.dumps(got)}",
    )


def of_expression(kubernetes, seed):
    expressions = Expressions(random.Random(seed))
    expression = expressions.generate()
    kind, difference = cel_asking.differ(
        kubernetes, expression, [expressions.device() for _ in range(3)]
    )
    difference = difference or cel_asking.differ_as_new(kubernetes, expression)
    return kind, difference and f"{expression}\n  {difference}"


def of_apply(kubernetes, seed):
    steps = apply_steps.numbered(seed)
    expected, got = apply_steps.theirs(kubernetes, steps), apply_steps.ours(steps)
    if expected is None:
        return "nulls, which no server keeps", None
    kind = "conflicts" if any("error" in answer for answer in got) else "writes"
    return (
        kind,
        None
        if expected == got
        else f"{json.dumps(steps)}\n  theirs {json.dumps(expected)}\n  ours   {json.dumps(got)}",
    )


SUBJECTS = {
    "apply": ("apply", of_apply),
    "allocator": ("allocator", of_world),
    "allocator-1.38": ("allocator:k138", of_1_38),
    "oldest-allocator": ("allocator", of_old_world),
    "hives": ("allocator", of_hives),
    "pools": ("pools", of_pools),
    "cel": ("cel", of_expression),
}


def run(subject, first, count):
    kinds = collections.Counter()
    began = time.monotonic()
    name, compare = SUBJECTS[subject]
    with oracle.Oracle(*name.split(":")) as kubernetes:
        for seed in range(first, first + count):
            kind, difference = compare(kubernetes, seed)
            kinds[kind] += 1
            if difference:
                kinds["DIFFERENT"] += 1
                print(f"{subject} {seed}: {difference}", flush=True)
            if (seed + 1 - first) % TOLD == 0 or seed + 1 == first + count:
                told = ", ".join(f"{kind}: {number}" for kind, number in sorted(kinds.items()))
                print(
                    f"{subject} {first} to {seed}: {told} ({time.monotonic() - began:.0f} s)",
                    flush=True,
                )
    return kinds["DIFFERENT"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", choices=sorted(SUBJECTS))
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    if why := oracle.missing(*SUBJECTS[asked.subject][0].split(":")):
        sys.exit(why)
    sys.exit(1 if run(asked.subject, asked.first, asked.count) else 0)
