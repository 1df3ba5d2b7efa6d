"""What Kubernetes' own allocator said of random worlds, and how many steps ours takes there.

Kept in tests/cases/allocator/recorded.txt, a line a world, with tabs between: its seed, the steps of
the plain search and of one that prunes from the start, and Kubernetes' answer.

    python -m tests.support.alloc_records

asks anew about every world in it. Steps are our own: fewer are better, more are a rule that is lost.
"""

import json
from pathlib import Path

from claimd.kubernetes import allocator
from tests.support import alloc_worlds, allocating, oracle

RECORDED = Path(__file__).parents[1] / "cases/allocator/recorded.txt"
MOST_STEPS = 400


def lines():
    return [line.split("\t") for line in RECORDED.read_text().splitlines()]


def steps(world, prune_after):
    """How many the search takes for the whole question; `many` beyond some hundred."""
    parsed = allocating.parse(world)
    allocator_ = allocator.Allocator(
        class_lister=allocator.Classes(parsed["classes"]),
        **{name: parsed[name] for name in ("slices", "allocated", "features")},
    )
    taken = 0

    def cancelled():
        nonlocal taken
        taken += 1
        return taken > MOST_STEPS

    try:
        allocator_.search_input(parsed["node"], parsed["claims"]).search(
            prune_after=prune_after, cancelled=cancelled
        ).run()
    except allocator.AllocationError:
        return "many" if taken > MOST_STEPS else f"error after {taken}"
    return str(taken)


def main():
    written = []
    with oracle.Oracle() as kubernetes:
        for seed, *_ in lines():
            world = alloc_worlds.numbered(int(seed))
            answer = allocating.theirs(kubernetes, world, timeout=2)
            told = "" if answer.get("timedOut") else json.dumps(allocating.comparable(answer))
            written.append("\t".join((seed, steps(world, None), steps(world, 0), told)))
    RECORDED.write_text("\n".join(written) + "\n")


if __name__ == "__main__":
    main()
