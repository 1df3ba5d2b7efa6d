"""What a run of the benchmark has found, as it is kept in docs/bench/results.json: the figures and
what they depend on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from . import figures, ours
from .turn import Cluster, Driver, Taken

FILE = ours.ROOT / "docs" / "bench" / "results.json"


@dataclass(frozen=True, kw_only=True)
class Results:
    """By driver, ours first. `others` are the cores that were at work before the first turn, and
    `stolen` is the share of the processors' time that the machine's host gave to other machines.
    """

    date: str
    cores: int
    processor: str
    others: float
    stolen: float
    versions: Mapping[str, str]
    rounds: int
    claims: int
    idle: float
    figures: Mapping[str, figures.Medians]
    prepares: Mapping[str, Sequence[float]]
    devices: Mapping[str, Sequence[figures.Values]]
    calls: Mapping[str, Sequence[figures.Values]]


def read(file: Path = FILE) -> Results:
    return Results(**json.loads(file.read_text()))


def write(results: Results, file: Path = FILE) -> None:
    """A line a field, so that two runs can be compared."""
    fields = dataclasses.asdict(results)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def versions(drivers: Sequence[Driver], cluster: Cluster, python: Path) -> dict[str, str]:
    """Of claimd, of what it runs on, and of the peers as far as they are known."""
    said = _said(
        str(python), "-c", "import sys, grpc; print(*sys.version.split()[:1], grpc.__version__)"
    ).split()
    versions_ = {
        "claimd": _own_version(),
        "kubernetes": str(cluster.api("GET", "/version")["gitVersion"]),
        "python": said[0],
        "grpcio": said[1],
        "linux": platform.release(),
    }
    return versions_ | {driver.name: driver.version for driver in drivers if driver.version}


def _own_version() -> str:
    """The last commit that has changed what runs."""
    sources = ("--", "plugin", "devices")
    commit = _said("git", "log", "-1", "--format=%h", *sources) or "a commit that is not known"
    return f"{commit}, changed" if _said("git", "status", "--porcelain", *sources) else commit


def date() -> str:
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True, kw_only=True)
class Ticks:
    """What the processors have done since the machine has started, in the kernel's ticks."""

    total: int
    idle: int
    stolen: int

    def cores_busy_until(self, later: Ticks) -> float:
        """How many were at work, for whomever."""
        idle = (later.idle - self.idle) / ((later.total - self.total) or 1)
        return round((1 - idle) * (os.cpu_count() or 1), 2)

    def stolen_until(self, later: Ticks) -> float:
        """The share that the host gave to others, from 0 to 1."""
        return round((later.stolen - self.stolen) / ((later.total - self.total) or 1), 3)


def ticks() -> Ticks:
    first, *_ = Path("/proc/stat").read_text().splitlines()
    # user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two.
    counts = [int(word) for word in first.split()[1:9]]
    return Ticks(total=sum(counts), idle=counts[3] + counts[4], stolen=counts[7])


def processor() -> str:
    """As the kernel names it; the architecture where it does not."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def summary(taken: Mapping[str, Sequence[Taken]]) -> dict[str, figures.Medians]:
    return {
        name: figures.medians([each.figures for each in turns]) for name, turns in taken.items()
    }


def single_prepares(taken: Mapping[str, Sequence[Taken]]) -> dict[str, list[float]]:
    """Of all rounds, to the hundredth of a millisecond."""
    prepares: dict[str, list[float]] = {}
    for name, turns in taken.items():
        prepares[name] = [round(value, 2) for each in turns for value in each.prepares]
    return prepares


def _said(*command: str) -> str:
    done = subprocess.run(command, cwd=ours.ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
