"""The tables of docs/scale.md, of what `make scale` has kept in docs/scale.json."""

from __future__ import annotations

from collections.abc import Sequence

from tests.docs.common import NONE, code, table
from tests.scale import report
from tests.scale.stage import Row

FLEETS = {"claimd": "claimd", "Go": "Go helpers"}


def setting() -> str:
    """What it was measured on, in a sentence."""
    at = report.load().machine
    if not at:
        return "Nothing is measured yet: `make scale` fills the tables of this page."
    return (
        f"Measured on {at['date']} on a machine of {at['cores']} cores and {at['memory']} GB (Linux {at['kernel']}), "
        f"which ran everything: kube-apiserver {at['kubernetes']}, etcd {at['etcd']} without syncs, the fleet under "
        f"Python {at['python']}, and the neighbour."
    )


def sizes() -> str:
    """A start of all plugins at once, by the number of nodes."""
    rows = []
    for row in _of("storm"):
        nodes = row["nodes"]
        alone = report.find(_of("alone"), row["fleet"], nodes, "alone")
        a_node = NONE if alone is None else f"{report.added(alone, row) * 1000:.0f} ms"
        rows.append(
            [
                FLEETS[row["fleet"]],
                f"{nodes:,}",
                f"{row['seconds']:.0f} s",
                f"{row['apiserver_cpu']:.1f} s",
                a_node,
                f"{row['apiserver_memory']:,.0f} MiB",
                f"{row['plugins_cpu'] / nodes * 1000:.0f} ms",
                f"{row['rejected']:,.0f}",
                *_felt(row),
            ]
        )
    titles = [
        "fleet",
        "nodes",
        "until all is published",
        "API server's CPU",
        "CPU per node",
        "its memory",
    ]
    text = table([*titles, "a plugin's CPU", "429", "others' p50", "p99", "longest"], rows)
    if report.PICTURE.exists():
        text += f"\n\n![Time and CPU until all is published, by nodes]({report.PICTURE.name})"
    return text


def phases() -> str:
    """All phases of the largest fleets."""
    rows = []
    for row in _full():
        rows.append(
            [
                report.PHASES[row["phase"]],
                FLEETS[row["fleet"]],
                f"{row['seconds']:.0f} s",
                f"{row['apiserver_cpu']:.1f} s",
                f"{row['etcd_cpu']:.1f} s",
                f"{row['apiserver_memory']:,.0f} MiB",
                f"{sum(row['requests'].values()):,}",
                f"{report.slice_writes(row):,}",
                f"{row['watches']:,.0f}",
                f"{row['connections']:,}",
                f"{row['rejected']:,.0f}",
                *_felt(row),
            ]
        )
    titles = [
        "what happens",
        "fleet",
        "time",
        "API server's CPU",
        "etcd's CPU",
        "API server's memory",
    ]
    counts = ["requests", "writes of slices", "watches", "connections", "429"]
    return table([*titles, *counts, "others' p50", "p99", "longest"], rows)


def requests() -> str:
    """What was asked, by verb and resource, a node."""
    rows = []
    for row in _full():
        asked = [
            f"{number / row['nodes']:.2f} {code(name)}"
            for name, number in row["requests"].items()
            if " " in name and number / row["nodes"] >= 0.005
        ]
        rows.append([FLEETS[row["fleet"]], code(row["phase"]), ", ".join(asked) if asked else NONE])
    return table(["fleet", "phase", "requests per node"], rows)


def claims() -> str:
    """How long claims took while 1,000 a minute came."""
    rows = []
    for row in _of("claims"):
        prepare, told = row["prepare"], row["report"]
        rows.append(
            [
                FLEETS[row["fleet"]],
                f"{row['claims']:,} on {row['nodes']:,} nodes",
                report.milliseconds(prepare["p50"]),
                report.milliseconds(prepare["p99"]),
                report.milliseconds(told["p50"]),
                report.milliseconds(told["p99"]),
                f"{row['apiserver_cpu'] / row['claims'] * 1000:.1f} ms",
                f"{row['plugins_cpu'] / row['claims'] * 1000:.1f} ms",
            ]
        )
    titles = [
        "fleet",
        "claims",
        "prepare, median",
        "99 of 100",
        "then the status, median",
        "99 of 100",
    ]
    return table([*titles, "API server's CPU per claim", "plugin's CPU per claim"], rows)


def computed() -> str:
    """What larger clusters would take, by what a node of the largest fleet of ours has taken."""
    node = report.per_node(report.load().rows, "claimd")
    titles = ["quantity", "measured per node", *(f"{nodes:,} nodes" for nodes in report.CLUSTERS)]
    if node is None:
        return table(titles, [])
    rows = [
        _computed("all plugins start: API server's CPU", node.storm_cpu, "s"),
        _computed("all plugins start: requests", node.storm_requests, ""),
        _computed("a third of all GPUs becomes sick: API server's CPU", node.taint_cpu, "s"),
        _computed("at rest: API server's CPU in an hour", node.rest_cpu or None, "s"),
        _computed("at rest: requests a minute", node.requests, ""),
        _computed("API server's memory for watches and connections", node.memory, "MiB"),
    ]
    return table(titles, rows)


def _computed(what: str, a_node: float | None, unit: str) -> list[str]:
    if a_node is None:
        return [what, *[NONE] * (1 + len(report.CLUSTERS))]
    digits = f"{a_node:.3g} {unit}".strip()
    return [what, digits, *(f"{a_node * nodes:,.0f} {unit}".strip() for nodes in report.CLUSTERS)]


def _felt(row: Row) -> list[str]:
    felt = row["neighbour"]
    return [report.milliseconds(felt.get(key)) or NONE for key in ("p50", "p99", "longest")]


def _of(phase: str) -> Sequence[Row]:
    rows = [row for row in report.load().rows if row["phase"] == phase]
    return sorted(rows, key=lambda row: (list(FLEETS).index(row["fleet"]), row["nodes"]))


def _full() -> Sequence[Row]:
    """The rows of the fleets that went through all phases, phase by phase, ours first."""
    rows = report.load().rows
    sentences = []
    for phase in report.PHASES:
        for fleet in FLEETS:
            row = report.find(rows, fleet, report.fullest(rows, fleet), phase)
            if row is not None:
                sentences.append(row)
    return sentences
