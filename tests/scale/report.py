"""From rows to what people read: a table on the terminal, tables and a picture for docs/scale.md,
the file that these are made of, and whether the promises were kept. Values in, text out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import plots

from .stage import Row

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs/scale.json"
PICTURE = ROOT / "docs/scale.svg"

# What the project promises.
NEIGHBOUR, AT_REST = 1.0, 1.0  # seconds at p99, requests a minute of a node
CLUSTERS = (5000, 15000)  # nodes of clusters that are computed

PHASES = {
    "alone": "no plugin runs yet",
    "storm": "all plugins start at once, until the last node's slices are there",
    "rest": "nothing happens",
    "claims": "1,000 claims a minute: prepare, report, unprepare",
    "taints": "a third of all GPUs becomes sick at once, until every taint is there",
    "taints gone": "and well again, until every taint is gone",
    "restart": "the API server is killed and started again, until every plugin watches",
    "split": "the API server answers nobody for 100 s, then until every plugin watches",
    "rolling": "rolling update, 1 in 20 nodes at a time",
}


@dataclass(kw_only=True)
class Results:
    machine: Row
    rows: list[Row]


def save(results: Results, file: Path = FILE, picture: Path = PICTURE) -> None:
    """Keeps these rows. Those of fleets and phases that were not measured now stay as they were."""
    rows = list(results.rows)
    if file.exists():
        measured = {_key(row) for row in rows}
        rows += [row for row in json.loads(file.read_text())["rows"] if _key(row) not in measured]
        rows.sort(key=_place)
    document = {"machine": results.machine, "rows": [_rounded(row) for row in rows]}
    file.write_text(json.dumps(document, indent=1) + "\n")
    picture.write_text(drawing(document["rows"]))


def _key(row: Row) -> tuple[object, ...]:
    return row["fleet"], row["nodes"], row["phase"]


def _place(row: Row) -> tuple[object, ...]:
    """Fleet by fleet, and each in the order of a cluster's life."""
    return row["fleet"], row["nodes"], list(PHASES).index(row["phase"])


def as_json(results: Results) -> str:
    return json.dumps({"machine": results.machine, "rows": results.rows}, indent=1)


def load(file: Path = FILE) -> Results:
    """What was kept; nothing where nobody has measured yet."""
    if not file.exists():
        return Results(machine={}, rows=[])
    return Results(**json.loads(file.read_text()))


def _rounded(value: object) -> object:
    """Four digits are more than any of these figures has."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


# ---------------------------------------------------------------- promises


def broken(rows: Sequence[Row]) -> list[str]:
    """A sentence for each promise that is not kept."""
    sentences = []
    for row in rows:
        if row["fleet"] != "claimd":
            continue
        title = f"{row['phase']} of {row['nodes']} nodes"
        p99 = row["neighbour"].get("p99")
        if p99 is None or p99 > NEIGHBOUR:
            seen = "no answer" if p99 is None else f"{p99:.2f} s"
            sentences.append(f"{title}: a neighbour's p99 is {seen}, wanted are {NEIGHBOUR:g} s")
        if row["phase"] == "rest" and "requests" in row and a_minute(row) > AT_REST:
            sentences.append(f"{title}: {a_minute(row):.2f} requests a minute of a node")
        if row.get("rewritten"):
            sentences.append(f"{title}: {row['rewritten']} slices written though nothing changed")
    return sentences


def a_minute(row: Row) -> float:
    """Requests of a node."""
    return _plugins_requests(row) / row["nodes"] / row["length"] * 60


def slice_writes(row: Row) -> int:
    """Slices written in earnest."""
    wanted = ("POST resourceslices", "PUT resourceslices", "DELETE resourceslices")
    patched = ("PATCH resourceslices", "APPLY resourceslices")
    return sum(row["requests"].get(name, 0) for name in (*wanted, *patched))


def _plugins_requests(row: Row) -> float:
    """All that are about objects of a plugin: this program asks for metrics, too."""
    return sum(number for name, number in row["requests"].items() if " " in name)


# ---------------------------------------------------------------- tables


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    lines = [_TITLES, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_TITLES))]
    text = []
    for line in lines:
        cells = zip(line, widths, strict=True)
        text.append("  ".join(cell.rjust(width) for cell, width in cells))
    return "\n".join([*text, *broken(rows)])


_TITLES = (
    *("fleet", "nodes", "phase", "s", "api CPU s", "etcd CPU s", "api MiB", "own CPU s", "own MiB"),
    *("requests", "slice writes", "watches", "429", "other p50", "p99", "longest", "failed"),
)


def _cells(row: Row) -> tuple[str, ...]:
    felt = row["neighbour"]
    asked = row.get("requests")
    return (
        row["fleet"],
        str(row["nodes"]),
        row["phase"],
        f"{row['seconds']:.1f}",
        number(row.get("apiserver_cpu")),
        number(row.get("etcd_cpu")),
        number(row.get("apiserver_memory"), 0),
        number(row["plugins_cpu"]),
        number(row["plugins_memory"], 0),
        "" if asked is None else str(sum(asked.values())),
        "" if asked is None else str(slice_writes(row)),
        number(row.get("watches"), 0),
        number(row.get("rejected"), 0),
        milliseconds(felt.get("p50")),
        milliseconds(felt.get("p99")),
        milliseconds(felt.get("longest")),
        str(felt["failed"]),
    )


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"


# ---------------------------------------------------------------- arithmetic


@dataclass(frozen=True, kw_only=True)
class PerNode:
    """What a node adds to what the API server does for itself and the neighbour."""

    storm_cpu: float  # seconds of CPU
    memory: float  # MiB
    rest_cpu: float  # seconds of CPU in an hour
    requests: float  # a minute at rest
    storm_requests: float
    taint_cpu: float | None


def per_node(rows: Sequence[Row], fleet: str) -> PerNode | None:
    """By the fleet that went through all phases; None if nobody was alone, started and rested."""
    nodes = fullest(rows, fleet)
    by_phase = {row["phase"]: row for row in rows if (row["fleet"], row["nodes"]) == (fleet, nodes)}
    if not {"alone", "storm", "rest"} <= by_phase.keys():
        return None
    alone, storm, rest = by_phase["alone"], by_phase["storm"], by_phase["rest"]
    return PerNode(
        storm_cpu=added(alone, storm),
        memory=(rest["apiserver_memory"] - alone["apiserver_memory"]) / nodes,
        rest_cpu=added(alone, rest) / rest["length"] * 3600,
        requests=a_minute(rest),
        storm_requests=_plugins_requests(storm) / nodes,
        taint_cpu=added(alone, by_phase["taints"]) if "taints" in by_phase else None,
    )


def added(alone: Row, row: Row) -> float:
    """Seconds of the API server's CPU for each node, beyond what it uses without any."""
    idle = alone["apiserver_cpu"] / alone["length"]
    used: float = row["apiserver_cpu"] - idle * row["length"]
    return max(0.0, used) / row["nodes"]


def fullest(rows: Sequence[Row], fleet: str) -> int:
    """Nodes of the fleet that went through the most phases, the largest of these."""
    phases = Counter(row["nodes"] for row in rows if row["fleet"] == fleet)
    return max(phases, key=lambda nodes: (phases[nodes], nodes), default=0)


def find(rows: Iterable[Row], fleet: str, nodes: int, phase: str) -> Row | None:
    for row in rows:
        if (row["fleet"], row["nodes"], row["phase"]) == (fleet, nodes, phase):
            return row
    return None


# ---------------------------------------------------------------- the picture


def drawing(rows: Sequence[Row]) -> str:
    """How a storm grows with the nodes."""

    def lines(value: str) -> tuple[plots.Line, ...]:
        shapes = []
        for fleet in dict.fromkeys(row["fleet"] for row in rows):
            storms = [row for row in rows if (row["fleet"], row["phase"]) == (fleet, "storm")]
            points = sorted((row["nodes"], row[value]) for row in storms)
            shapes.append(plots.Line(label=fleet, points=tuple(points)))
        return tuple(shapes)

    nodes = plots.Axis(title="nodes")
    charts = [
        plots.Chart(
            title="Until the last node's slices stand",
            x=nodes,
            y=plots.Axis(title="seconds", unit="s"),
            lines=lines("seconds"),
        ),
        plots.Chart(
            title="The API server's CPU until then",
            x=nodes,
            y=plots.Axis(title="seconds of CPU", unit="s"),
            lines=lines("apiserver_cpu"),
        ),
    ]
    return plots.svg(
        charts,
        title="All plugins start at once",
        description="Time and the API server's CPU until all slices are published, against the "
        "number of nodes.",
    )
