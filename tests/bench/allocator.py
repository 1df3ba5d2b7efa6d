"""The allocator beside Kubernetes' own, in one run: `python -m tests.bench.allocator`. Needs Go, no
cluster, no root.

Both get the same worlds, parsed and with expressions compiled before; both are timed from the
making of an allocator to its answer, by the monotonic clock of their own process. Ours runs under
the system's Python, as in an image.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from claimd.kubernetes import allocator
from claimd.tools.explain import objects, pending, text
from tests.support import alloc_hard, alloc_worlds, allocating, cluster_objects, oracle

from . import ours

ROUNDS = 21
GO_LIMIT = 10.0  # seconds; one of the worlds would take Go half a minute
FACTOR, FLOOR = 10, 5e-3  # no random world may take ours longer than both


@dataclass(frozen=True, kw_only=True)
class Row:
    title: str
    ours: float  # seconds
    go: float | None = None
    cut_off: bool = False  # Go had no answer in time
    limit: float | None = None

    @property
    def over(self) -> bool:
        return self.limit is not None and self.ours > self.limit


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.allocator", description=__doc__)
    parser.add_argument("--worlds", type=int, default=1000, help="random ones (default 1000)")
    parser.add_argument(
        "--first", type=int, default=0, help="seed of the first of them (default 0)"
    )
    asked = parser.parse_args()
    if why := oracle.missing("allocator"):
        print(f"bench: {why}", file=sys.stderr)
        return 2
    under_system_python()
    with oracle.Oracle() as go:
        rows = [*large_nodes(go), of_explain(), *hard(go)]
        rows.append(random_worlds(go, asked.first, asked.worlds))
    print(
        f"Python {sys.version.split()[0]} of {sys.base_prefix}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}\n"
    )
    print(table(rows))
    return 1 if any(row.over for row in rows) else 0


def under_system_python(module: str = "tests.bench.allocator") -> None:
    """Goes on as the interpreter that claimd is measured with."""
    chosen = ours.interpreter(ours.default_python())
    if chosen.parent.parent.resolve() != ours.Path(sys.prefix).resolve():
        environment = os.environ | {"PYTHONPATH": ours.PYTHONPATH}
        os.execve(chosen, [str(chosen), "-m", module, *sys.argv[1:]], environment)


def median(run: Callable[[], object], rounds: int = ROUNDS) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def decide(parsed: dict[str, object]) -> object:
    try:
        return allocating.decide(parsed)
    except allocator.AllocationError:
        return None


def large_nodes(go: oracle.Oracle) -> list[Row]:
    rows = []
    for count in (1, 4, 8):
        world = alloc_hard.large_node(count)
        parsed = allocating.parse(world)
        decide(parsed)  # compiles
        theirs = allocating.theirs(go, world, repeat=ROUNDS)
        title = f"128 devices, {count} with two selectors and a matchAttribute"
        rows.append(
            Row(
                title=title,
                ours=median(lambda p=parsed: decide(p)),
                go=theirs["seconds"],
                limit=5e-3,
            )
        )
    return rows


def of_explain() -> Row:
    """A pending claim on 100 nodes of 8 GPUs, half of them held, from objects to text."""
    cluster = objects.Objects()
    selectors = [
        cluster_objects.selector('device.attributes["gpu.claimd.dev"].vendor == "nvidia"'),
        cluster_objects.selector(
            'device.capacity["gpu.claimd.dev"].memory.compareTo(quantity("40Gi")) >= 0'
        ),
    ]
    constraints = [{"matchAttribute": cluster_objects.ROOT}]
    cluster.add(cluster_objects.class_())
    cluster.add(cluster_objects.claim(count=4, selectors=selectors, constraints=constraints))
    for index in range(100):
        node = f"node-{index}"
        cluster.add(cluster_objects.slice_(cluster_objects.gpus(8), node=node))
        held = [cluster_objects.name(number) for number in (0, 1, 4, 5)]
        cluster.add(cluster_objects.claim(f"job-{index}", held=held, on=node))
    claim = pending.find_subject(cluster, "train", "default")
    took = median(lambda: text.as_text(pending.report(cluster, claim)), 5)
    return Row(title="explain of a claim that 100 nodes of 8 refuse", ours=took, limit=0.5)


def hard(go: oracle.Oracle) -> list[Row]:
    """Each as one request and, which is worse, as one request a device."""
    rows = []
    worlds = []
    for title, world in (
        ("no: 8 of 64 under one root, where each has 7", alloc_hard.eight_of_one_root()),
        ("no: 9 of 32 under one root, where each has 8", alloc_hard.nine_of_one_root()),
        ("no: 8 of 20 whose shared counter allows 7", alloc_hard.eight_of_seven()),
    ):
        worlds += [(title, world), (f"{title}, each a request", alloc_hard.apart(world))]
    for title, world in worlds:
        parsed = allocating.parse(world)
        theirs = allocating.theirs(go, world, timeout=GO_LIMIT)
        rows.append(
            Row(
                title=title,
                ours=median(lambda p=parsed: decide(p), 5),
                go=theirs["seconds"],
                cut_off=bool(theirs.get("timedOut")),
                limit=50e-3,
            )
        )
    return rows


def random_worlds(go: oracle.Oracle, first: int, count: int) -> Row:
    """The one where ours is slowest against what it may take."""
    worst: Row | None = None
    for seed in range(first, first + count):
        world = alloc_worlds.numbered(seed)
        theirs = allocating.theirs(go, world, timeout=GO_LIMIT)
        parsed = allocating.parse(world)
        decide(parsed)  # compiles
        limit = max(FACTOR * theirs["seconds"], FLOOR)
        took = median(lambda p=parsed: decide(p), 1)
        if took > limit / 2:  # a busy machine is no reason
            took = median(lambda p=parsed: decide(p), 7)
        if worst is None or took / limit > worst.ours / (worst.limit or FLOOR):
            title = f"worst of {count} random worlds (seed {seed})"
            worst = Row(
                title=title,
                ours=took,
                go=theirs["seconds"],
                cut_off="timedOut" in theirs,
                limit=limit,
            )
    assert worst
    return worst


def table(rows: list[Row]) -> str:
    lines = [("", "claimd", "Go", "limit", "")]
    for row in rows:
        go = "" if row.go is None else f"{'>' if row.cut_off else ''}{told(row.go)}"
        verdict = "over" if row.over else "ok"
        lines.append(
            (row.title, told(row.ours), go, "" if row.limit is None else told(row.limit), verdict)
        )
    if all(row.go is None for row in rows):
        lines = [(title, value, "", limit, verdict) for title, value, _, limit, verdict in lines]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def told(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
