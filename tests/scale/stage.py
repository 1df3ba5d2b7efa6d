"""What the phases play on: the control plane, a fleet on it, a neighbour beside it, and the way to
measure a stretch of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.errors import BenchError

from . import measure
from .cluster import ControlPlane, Furniture
from .fleet import Fleet
from .program import Line, Program
from .reader import Reader

Row = dict[str, Any]  # of the file of results


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(kw_only=True)
class Stage:
    plane: ControlPlane
    furniture: Furniture
    reader: Reader
    scrape: Callable[[], str] | None  # the API server's metrics; None where it has none
    fleet: Fleet
    neighbour: Program
    rows: list[Row]
    watches_before: float = 0.0  # that others have

    @contextlib.asynccontextmanager
    async def measured(self, phase: str) -> AsyncIterator[Row]:
        """What happens in the block, as a row: the block may put more into it.

        `since`, in seconds since 1970, is from when on the neighbour counts: an API server that is
        away answers nobody.
        """
        nodes = self.fleet.place.nodes
        say(f"{self.fleet.name}, {nodes} nodes: {phase} …")
        before = await self.look()
        own = self._own_cpu()
        began = time.time()
        row: Row = {"fleet": self.fleet.name, "nodes": nodes, "phase": phase, "since": began}
        yield row

        ended = time.time()
        after = await self.look()
        cost = measure.between(before, after, ended - began)
        row["seconds"] = row.get("seconds", cost.seconds)
        row["length"] = cost.seconds
        for name in ("apiserver", "etcd"):
            if name in cost.cpu:
                row[f"{name}_cpu"] = cost.cpu[name]
                row[f"{name}_memory"] = cost.memory[name]
        row["plugins_cpu"] = self._own_cpu() - own
        row["plugins_memory"] = sum(measure.memory_of(pid) for pid in self.fleet.pids())
        if self.scrape is not None:
            row["requests"] = {
                f"{verb} {resource}".strip(): round(number)
                for (verb, resource), number in sorted(cost.requests.items())
            }
            row["watches"] = cost.watches - self.watches_before
            row["rejected"] = cost.rejected
        row["connections"] = cost.connections
        row["neighbour"] = felt(self.neighbour.lines, row.pop("since"), ended)
        self.rows.append(row)
        felt_p99 = row["neighbour"].get("p99", float("nan"))
        say(
            f"{self.fleet.name}, {nodes} nodes: {phase}: {row['seconds']:.1f} s, API server's CPU "
            f"{row.get('apiserver_cpu', 0):.1f} s, a neighbour's p99 {felt_p99 * 1000:.0f} ms"
        )

    async def look(self) -> measure.Look:
        pids = self.plane.pids()
        cpu = {name: (pid, measure.cpu_of(pid)) for name, pid in pids.items()}
        memory = {name: measure.memory_of(pid) for name, pid in pids.items()}
        requests, watches, rejected = await self.counters()
        return measure.Look(
            cpu=cpu,
            memory=memory,
            requests=requests,
            watches=watches,
            rejected=rejected,
            connections=measure.connections_to(*self.furniture.host),
        )

    async def counters(self) -> tuple[measure.Requests, float, float]:
        if self.scrape is None:
            return {}, 0.0, 0.0
        return measure.parse(await asyncio.to_thread(self.scrape))

    async def watching_again(self, patience: float) -> float:
        """Seconds since 1970 when every plugin watches its slices; a BenchError if they do not."""
        wanted = self.fleet.place.nodes
        end = time.monotonic() + patience
        while True:
            with contextlib.suppress(OSError):
                _, watches, _ = await self.counters()
                if wanted <= watches - self.watches_before <= wanted * 1.02 + 1:
                    return time.time()
                say(f"  {watches - self.watches_before:.0f} of {wanted} watch")
            if time.monotonic() > end:
                raise BenchError(f"not all of {wanted} plugins watch again after {patience:g} s")
            await asyncio.sleep(2)

    def _own_cpu(self) -> float:
        return sum(measure.cpu_of(pid) for pid in self.fleet.pids())


def felt(lines: list[Line], since: float, until: float) -> Row:
    """What the neighbour felt of what it asked for in that time."""
    asked = [line for line in lines if since <= line["t"] <= until]
    took = [line["took"] for line in asked if not line["failure"]]
    if not took:
        return {"requests": len(asked), "failed": len(asked)}
    return {
        "requests": len(asked),
        "failed": len(asked) - len(took),
        "p50": measure.quantile(took, 0.5),
        "p99": measure.quantile(took, 0.99),
        "longest": max(took),
    }
