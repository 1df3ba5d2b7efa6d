"""Many random worlds: `python -m tests.oracle.campaign --worlds 20000`. Prints the seed of each that differs."""

import argparse
import collections
import json
import random
import sys
import time

from tests.support import alloc_worlds, allocating, oracle

MODES = ({"patience": 0}, {}, {"cuts": False})


def run(worlds, seed, timeout):
    kinds = collections.Counter()
    slowest = (0.0, 0.0, 0)
    with oracle.Oracle() as kubernetes:
        for number in range(seed, seed + worlds):
            draw = alloc_worlds.Draw(random.Random(number))
            size = draw.pick((1, 2, 3, 4, 5, 6, 8, 12))
            world = alloc_worlds.world(draw, size=size, selectors=draw.chance(60))
            theirs = allocating.theirs(kubernetes, world, timeout=timeout)
            # Without cuts ours is as slow as theirs, times what Python costs.
            mode = MODES[number % (3 if theirs["seconds"] < 0.05 else 2)]
            began = time.perf_counter()
            ours = allocating.ours(world, **mode)
            took = time.perf_counter() - began
            slowest = max(slowest, (took, theirs["seconds"], number))
            if theirs.get("timedOut"):
                kinds["too slow for Kubernetes"] += 1
                continue
            expected, got = allocating.comparable(theirs), allocating.comparable(ours)
            kinds["no" if expected is None else "error" if isinstance(expected, dict) else "yes"] += 1
            if expected != got:
                kinds["DIFFERENT"] += 1
                print(f"seed {number}, {mode}\n  theirs {json.dumps(expected)}\n  ours   {json.dumps(got)}", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())))
    print(f"slowest of ours: {slowest[0] * 1e3:.0f} ms where theirs took {slowest[1] * 1e3:.0f} ms (seed {slowest[2]})")
    return kinds["DIFFERENT"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=2, help="seconds that Kubernetes' search may take")
    given = parser.parse_args()
    sys.exit(1 if run(given.worlds, given.seed, given.timeout) else 0)
