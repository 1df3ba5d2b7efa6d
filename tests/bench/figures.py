"""The figures, the limits that the project set itself, and the arithmetic from rounds to a table.
Nothing is measured here: values in, values out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[str, float | None]  # one round by figure; None: what should come about did not
Medians = Mapping[str, float | None]

OK, OVER, NEEDS_PEER = "ok", "over", "needs --peer"

# The peers that limits are about, where they are there: the Go example driver as it is by default,
# and doing what claimd does, which is to report the status of a claim's devices.
GO, GO_WITH_STATUS = "go", "go-status"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """At most one limit: `limit` in the figure's own unit, or `ratio` to what the peer `against`
    needs in the same run; to the first peer if that is not there.
    """

    key: str
    title: str
    unit: str = ""
    digits: int = 2
    limit: float | None = None
    ratio: float | None = None
    against: str = GO


FIGURES = (
    Figure(key="devices", title="devices", digits=0),
    Figure(key="exec_to_registered", title="exec to registered", unit="s", digits=3, limit=0.35),
    Figure(key="exec_to_slices", title="exec to slices", unit="s", digits=3, limit=0.4),
    Figure(key="cpu_to_slices", title="CPU until slices", unit="s", digits=3, limit=0.2),
    Figure(key="prepare_p50", title="prepare of one, p50", unit="ms", ratio=1.0),
    Figure(key="prepare_p99", title="prepare of one, p99", unit="ms", ratio=1.0),
    Figure(
        key="status_after_prepare", title="status after prepare", unit="ms", digits=1, limit=100
    ),
    Figure(key="unprepare_p50", title="unprepare of one, p50", unit="ms"),
    Figure(key="prepare_batch", title="prepare of 32 in a call", unit="ms", digits=1, ratio=0.45),
    Figure(key="prepare_again_p50", title="repeated prepare, p50", unit="ms", ratio=0.6),
    Figure(
        key="cpu_per_claim",
        title="CPU of a claim, status included",
        unit="ms",
        ratio=0.65,
        against=GO_WITH_STATUS,
    ),
    Figure(key="resident", title="resident memory", unit="MiB", digits=1, ratio=1.05),
    Figure(key="anonymous", title="anonymous memory", unit="MiB", digits=1, limit=20),
    Figure(key="idle_cpu", title="CPU when idle", unit="%", limit=0.1),
    Figure(key="slice_back", title="deleted slice is back", unit="s", digits=3, limit=1.0),
    Figure(key="scan_16", title="scan of 16 GPUs", unit="ms", digits=1, limit=25),
    Figure(key="scan_parts", title="scan of 8 GPUs, 64 parts each", unit="ms", digits=1, limit=150),
    Figure(
        key="scan_growth", title="memory that 1,000 scans cost", unit="KiB", digits=0, limit=512
    ),
    Figure(key="uevent_16", title="uevent to inventory, 16 GPUs", unit="ms", digits=1, limit=50),
    Figure(key="stop", title="stop", unit="s", digits=3),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of all drivers. `ratio` is to the peer `against`; `verdict` is about ours, and
    empty for a figure without a limit.
    """

    figure: Figure
    ours: float | None
    peers: Mapping[str, float | None]
    against: str
    ratio: float | None
    verdict: str


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def medians(rounds: Sequence[Values]) -> Medians:
    """A figure that is missing in one round is missing: a promise that was broken once is not kept
    on average. One that was not looked at in some rounds is what the others say.
    """
    medians_ = {}
    for figure in FIGURES:
        values = [values[figure.key] for values in rounds if figure.key in values]
        there = [value for value in values if value is not None]
        medians_[figure.key] = (
            statistics.median(there) if there and len(there) == len(values) else None
        )
    return medians_


def compare(ours: Medians, peers: Mapping[str, Medians]) -> list[Row]:
    rows = []
    for figure in FIGURES:
        own = ours[figure.key]
        others = {name: peer[figure.key] for name, peer in peers.items()}
        against = figure.against if figure.against in others else next(iter(others), "")
        other = others.get(against)
        ratio = own / other if own is not None and other else None
        verdict = _verdict(figure, own, ratio, is_there=bool(others))
        rows.append(
            Row(
                figure=figure,
                ours=own,
                peers=others,
                against=against,
                ratio=ratio,
                verdict=verdict,
            )
        )
    return rows


def _verdict(figure: Figure, own: float | None, ratio: float | None, *, is_there: bool) -> str:
    if figure.limit is not None:
        return OK if own is not None and own <= figure.limit else OVER
    if figure.ratio is not None:
        if not is_there:
            return NEEDS_PEER
        return OK if ratio is not None and ratio <= figure.ratio else OVER
    return ""


def table(rows: Sequence[Row], *, ours: str) -> str:
    """For people; columns for the peers and one for the ratio only where there are some."""
    peers = list(rows[0].peers)
    lines = [["", ours, *peers, *(["ratio"] if peers else []), "limit", ""]]
    for row in rows:
        cells = [_cell(row.figure, value) for value in (row.ours, *row.peers.values())]
        if peers:
            cells.append("" if row.ratio is None else f"{row.ratio:.3f}")
        lines.append([_title(row.figure), *cells, _limit(row), row.verdict])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """For tools: full precision, null for what is not there."""
    return [
        {
            "figure": row.figure.key,
            "unit": row.figure.unit,
            "ours": row.ours,
            "peers": dict(row.peers),
            "against": row.against,
            "ratio": row.ratio,
            "limit": row.figure.limit,
            "ratioLimit": row.figure.ratio,
            "verdict": row.verdict,
        }
        for row in rows
    ]


def _title(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}" if figure.unit else figure.title


def _cell(figure: Figure, value: float | None) -> str:
    return "none" if value is None else f"{value:.{figure.digits}f}"


def _limit(row: Row) -> str:
    figure = row.figure
    if figure.limit is not None:
        return f"{figure.limit:g} {figure.unit}"
    if figure.ratio is None:
        return ""
    return f"{figure.ratio:g} x" + (f" {row.against}" if len(row.peers) > 1 else "")
