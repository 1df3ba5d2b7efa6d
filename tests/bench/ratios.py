"""Figures that depend little on the machine's speed, kept run after run, and which of them has moved:
`python -m tests.bench.ratios --help`.

Each is what something of ours costs over what something that never changes costs on the same machine
in the same minute, by CPU time, in turns. Memory is what it is. A figure has moved if it is further
from the median of the earlier runs than these are among themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from claimd.kubernetes import allocator
from claimd_devices import fake, scan
from claimd_devices.gpu import Roots
from tests.support import alloc_hard, allocating

from . import control_plane, ours, turn
from .errors import BenchError
from .program import Program, running

FILE = ours.ROOT / "build" / "ratios.jsonl"
STEADY, MOVED, FAILED = 0, 1, 2

KEPT = 30  # runs
ENOUGH = 5  # earlier ones, to say that something has moved
SPREADS, LEAST = 3.0, 0.05  # what counts as noise: so many spreads, at least this share
NORMAL = 1.4826  # from a median absolute deviation to a standard one

TITLES = {
    # Until 2026-11-24 it was `claim`, in which most claims were gone before they had a status.
    "claim_with_status": "CPU of a claim / of 10 empty gRPC calls",
    "start": "CPU until slices / of an empty Python with grpc",
    "memory": "anonymous memory with 8 GPUs, MiB",
    "scan": "CPU of a scan of 16 GPUs / of a fixed computation",
    "allocator": "CPU of an allocation of 4 of 128 / of the same",
}

BLOCKS, CLAIMS, CALLS = 7, 12, 10  # turns of claims and empty calls
STARTS = 5
LOOKS = 31
PAUSE = 0.005  # between two calls: those of a kubelet do not follow each other at once either

# What does not change with us. The server says that it serves by a line.
EMPTY = "import asyncio, ssl, grpc"
SERVER = """
import asyncio, grpc.aio, sys
class Any(grpc.GenericRpcHandler):
    def service(self, _):
        return grpc.unary_unary_rpc_method_handler(answer)
async def answer(request, context):
    return request
async def main():
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([Any()])
    server.add_insecure_port("unix:" + sys.argv[1])
    await server.start()
    print("serves", flush=True)
    await server.wait_for_termination()
asyncio.run(main())
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ratios", description=__doc__)
    parser.add_argument(
        "--file",
        type=Path,
        default=Path(os.environ.get("CLAIMD_RATIOS") or FILE),
        help="keeps the last runs, a line each (default $CLAIMD_RATIOS, else build/ratios.jsonl)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exits 1 if a ratio is larger by more than noise"
    )
    asked = parser.parse_args()

    try:
        runs = read(asked.file)
        now = Run(
            date=datetime.now(UTC).isoformat(timespec="minutes"),
            commit=_commit(),
            python=platform.python_version(),
            machine=platform.machine(),
            ratios=take(),
        )
    except BenchError as error:
        print(f"ratios: {error}", file=sys.stderr)
        return FAILED
    earlier = [run for run in runs if run.is_comparable(now)]
    judged = [judge(name, earlier, now) for name in TITLES]
    keep(asked.file, [*runs, now])

    print(table(judged))
    print(sentence(judged, len(earlier), asked.file))
    is_worse = any(verdict.has_moved and verdict.change > 0 for verdict in judged)
    return MOVED if asked.strict and is_worse else STEADY


# ---------------------------------------------------------------- runs that are kept


@dataclass(frozen=True, kw_only=True)
class Run:
    date: str
    commit: str
    python: str
    machine: str
    ratios: Mapping[str, float]

    def is_comparable(self, other: Run) -> bool:
        """Another Python or processor has other ratios."""
        own, others = (run.python.rpartition(".")[0] for run in (self, other))
        return own == others and self.machine == other.machine


def read(file: Path) -> list[Run]:
    """The oldest first; none if there is no file yet. A line that is none of ours is an error."""
    if not file.exists():
        return []
    try:
        return [Run(**json.loads(line)) for line in file.read_text().splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise BenchError(
            f"{file} cannot be read ({error}); it has a line for each run: move it away to begin anew"
        ) from error


def keep(file: Path, runs: Sequence[Run]) -> None:
    """The last of them; whoever reads meanwhile sees the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    beside.write_text("".join(f"{json.dumps(vars(run))}\n" for run in runs[-KEPT:]))
    beside.replace(file)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty=, changed"]
    done = subprocess.run(command, cwd=ours.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


# ---------------------------------------------------------------- what has moved


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One ratio of this run. `usual` and `noise` are None while too few runs are known; `since` is
    the run from which on it has been beyond the noise, on the same side.
    """

    name: str
    value: float
    usual: float | None = None
    noise: float | None = None
    since: Run | None = None

    @property
    def change(self) -> float:
        """As a share of what is usual."""
        return self.value / self.usual - 1 if self.usual else 0.0

    @property
    def has_moved(self) -> bool:
        return self.since is not None


def judge(name: str, earlier: Sequence[Run], now: Run) -> Judged:
    value = now.ratios[name]
    known = [(run, run.ratios[name]) for run in earlier if name in run.ratios]
    if len(known) < ENOUGH:
        return Judged(name=name, value=value)

    usual = statistics.median(ratio for _, ratio in known)
    spread = NORMAL * statistics.median(abs(ratio - usual) for _, ratio in known)
    noise = max(SPREADS * spread, LEAST * usual)

    # Back to the first of the runs that all were as far away, on the same side.
    since = None
    for run, ratio in [(now, value), *reversed(known)]:
        if abs(ratio - usual) <= noise or (ratio > usual) != (value > usual):
            break
        since = run
    return Judged(name=name, value=value, usual=usual, noise=noise, since=since)


def table(judged: Sequence[Judged]) -> str:
    lines = [("", "now", "usual", "noise", "change", "")]
    for verdict in judged:
        cells = [TITLES.get(verdict.name, verdict.name), f"{verdict.value:.3f}"]
        if verdict.usual is None or verdict.noise is None:
            cells += ["", "", "", ""]
        else:
            said = f"since {verdict.since.commit}, {verdict.since.date}" if verdict.since else ""
            cells += [
                f"{verdict.usual:.3f}",
                f"{verdict.noise:.3f}",
                f"{verdict.change:+.1%}",
                said,
            ]
        lines.append(tuple(cells))
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    rows = []
    for line in lines:
        middle = [cell.rjust(width) for cell, width in zip(line[1:5], widths[1:5], strict=True)]
        rows.append("  ".join([line[0].ljust(widths[0]), *middle, line[5]]).rstrip())
    return "\n".join(rows)


def sentence(judged: Sequence[Judged], earlier: int, file: Path) -> str:
    """What somebody reads who reads one line of it."""
    if earlier < ENOUGH:
        return f"{earlier} earlier runs in {file}; from {ENOUGH} on it is said what has moved"
    moved = [verdict for verdict in judged if verdict.has_moved]
    if not moved:
        return f"nothing has moved by more than noise in {earlier} earlier runs"
    said = [f"{verdict.name} by {verdict.change:+.1%}" for verdict in moved]
    return f"moved by more than noise: {', '.join(said)}"


# ---------------------------------------------------------------- what is measured


def take() -> dict[str, float]:
    """All of it, in about half a minute."""
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="ratios-") as name:
        folder = Path(name)
        with control_plane.simulated(folder) as cluster:
            driver = ours.driver(Path(sys.executable), ["nvidia:h100=8"], folder)
            ratios["start"] = _start(driver, cluster)
            ratios |= _claims(driver, cluster, folder)
        ratios |= _computations(folder)
    return {name: round(ratios[name], 4) for name in TITLES}


def _start(driver: turn.Driver, cluster: turn.Cluster) -> float:
    ratios = []
    for number in range(STARTS):
        with turn.started(driver, cluster, f"s{number}", turn.Work(claims=2)) as turn_:
            used = turn_.start()["cpu_to_slices"]
        before = _children()
        subprocess.run([sys.executable, "-c", EMPTY], check=True)
        assert used is not None
        ratios.append(used / (_children() - before))
    return statistics.median(ratios)


def _children() -> float:
    """Seconds of CPU of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _claims(driver: turn.Driver, cluster: turn.Cluster, folder: Path) -> dict[str, float]:
    work = turn.Work(claims=CLAIMS)
    with (
        _server(folder) as (server, call),
        turn.started(driver, cluster, "claims", work) as turn_,
    ):
        turn_.start()
        turn_.one_by_one()  # connections are made
        ratios = []
        for _ in range(BLOCKS):
            claim = turn_.one_by_one()["cpu_per_claim"]
            before = server.cpu_time()
            for _ in range(CALLS * CLAIMS):
                call(b"x" * 200)
                time.sleep(PAUSE)
            assert claim is not None
            ratios.append(claim / 1e3 / ((server.cpu_time() - before) / CLAIMS))
        return {"claim_with_status": statistics.median(ratios), "memory": turn_.program.memory()[1]}


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[Program, Callable[[bytes], object]]]:
    """A gRPC server that gives back what it gets, and how it is called."""
    address, log = folder / "empty.sock", folder / "empty.log"
    command = [sys.executable, "-c", SERVER, str(address)]
    with running(command, log, None) as server:
        server.wait_for("its first line", lambda: b"serves" in log.read_bytes())
        with grpc.insecure_channel(f"unix:{address}") as channel:
            call = channel.unary_unary("/empty/call")
            for _ in range(20):
                call(b"")
            yield server, call


def _computations(folder: Path) -> dict[str, float]:
    """In turns, in this process."""
    fake.write(folder / "scanned", fake.parse(["nvidia:h100=16"]))
    roots = Roots.in_folder(folder / "scanned")
    parsed = allocating.parse(alloc_hard.large_node(4))

    def decide() -> None:
        with contextlib.suppress(allocator.AllocationError):
            allocating.decide(parsed)

    decide()  # compiles
    ratios: dict[str, list[float]] = {"scan": [], "allocator": []}
    for _ in range(LOOKS):
        fixed = _seconds(_fixed)
        ratios["scan"].append(_seconds(lambda: scan.scan(roots)) / fixed)
        ratios["allocator"].append(_seconds(decide) / fixed)
    return {name: statistics.median(values) for name, values in ratios.items()}


def _fixed() -> None:
    """Objects, texts and numbers, as much work of the interpreter as the others are. Who changes it
    begins all files anew.
    """
    rows = [{"name": f"gpu-{number}", "index": number * 7919 % 1000} for number in range(1500)]
    rows.sort(key=lambda row: row["index"])
    names = {row["name"]: row for row in json.loads(json.dumps(rows))}
    assert sum(names[row["name"]]["index"] for row in rows) > 0


def _seconds(run: Callable[[], object]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


if __name__ == "__main__":
    sys.exit(main())
