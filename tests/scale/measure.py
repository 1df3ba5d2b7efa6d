"""What a stretch of time has cost: processes by /proc, requests by the API server's own metrics,
what others felt by their own account. Two looks and what lies between them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.errors import BenchError

TICK = os.sysconf("SC_CLK_TCK")
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
OURS = ("resourceslices", "resourceclaims", "nodes", "events", "")
_LINE = re.compile(r"^([a-z_]+)\{([^}]*)\} ([0-9.e+]+)$", re.M)
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')

# By verb and resource, with the subresource; a write that was only tried ends in "(tried)".
Requests = Mapping[tuple[str, str], float]


@dataclass(frozen=True, kw_only=True)
class Look:
    """Counters, as they stand. What an API server has no metrics for is empty."""

    cpu: Mapping[str, tuple[int, float]]  # by process its id and seconds
    memory: Mapping[str, float]  # MiB that are resident
    requests: Requests = field(default_factory=dict)
    watches: float = 0
    rejected: float = 0  # with 429, by priority and fairness
    connections: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Between two looks."""

    seconds: float
    cpu: Mapping[str, float]
    memory: Mapping[str, float]  # at the end
    requests: Requests
    watches: float  # at the end
    rejected: float
    connections: int  # at the end

    def count(self, *verbs: str, resource: str = "") -> int:
        """Requests of these verbs, or of all."""
        wanted = [
            number
            for (verb, of), number in self.requests.items()
            if (not verbs or verb in verbs) and resource in ("", of)
        ]
        return round(sum(wanted))


def cpu_of(pid: int) -> float:
    """Seconds that the process has used so far; 0 for one that is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / TICK


def memory_of(pid: int) -> float:
    """MiB that are resident; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    except OSError:
        return 0.0


def connections_to(host: str, port: int) -> int:
    """Connections that the API server holds open."""
    numbers = [int(part) for part in host.split(".")] if host.count(".") == 3 else []
    address = "".join(f"{number:02X}" for number in reversed(numbers))
    local = f" {address}:{port:04X} "
    rows = Path("/proc/net/tcp").read_text().splitlines()
    return sum(1 for row in rows if local in row[:20] and row.split()[3] == "01")


def between(before: Look, after: Look, seconds: float) -> Cost:
    """A counter of a process that was started anew meanwhile begins at nothing."""
    cpu = {}
    for name, (pid, used) in after.cpu.items():
        was, had = before.cpu.get(name, (pid, 0.0))
        cpu[name] = used - had if was == pid else used
    anew = before.cpu.get("apiserver", (0, 0))[0] != after.cpu.get("apiserver", (0, 0))[0]
    counted = Counter(after.requests)
    if not anew:
        counted.subtract(Counter(before.requests))
    return Cost(
        seconds=seconds,
        cpu=cpu,
        memory=after.memory,
        requests={key: number for key, number in counted.items() if number > 0},
        watches=after.watches,
        rejected=after.rejected - (0 if anew else before.rejected),
        connections=after.connections,
    )


def parse(text: str) -> tuple[dict[tuple[str, str], float], float, float]:
    """Requests about what concerns a plugin, open watches of slices, and refusals, from the text of
    an API server's metrics.
    """
    requests: Counter[tuple[str, str]] = Counter()
    watches = rejected = 0.0
    for name, inside, value in _LINE.findall(text):
        if name == "apiserver_request_total":
            labels = dict(_LABEL.findall(inside))
            resource = labels.get("resource", "")
            if resource not in OURS:
                continue
            if labels.get("subresource"):
                resource = f"{resource}/{labels['subresource']}"
            verb = labels["verb"]
            if labels.get("dry_run"):
                verb = f"{verb} (tried)"
            requests[verb, resource] += float(value)
        elif name == "apiserver_longrunning_requests":
            labels = dict(_LABEL.findall(inside))
            if labels.get("verb") == "WATCH" and labels.get("resource") == "resourceslices":
                watches += float(value)
        elif name == "apiserver_flowcontrol_rejected_requests_total":
            rejected += float(value)
    return dict(requests), watches, rejected


def quantile(values: Sequence[float], share: float) -> float:
    """The least of the values that so large a share of them does not exceed."""
    if not values:
        raise BenchError("nothing was measured of which a share could be told")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
