"""What docs/cost.md shows of the results that are kept: a table, the sentence above it, and charts.
Results in, text out: nothing is measured here. `make docs` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from . import figures, floor, ours, plots, sweeps
from .results import FILE, Results

FOLDER = FILE.parent
TITLES = {
    ours.NAME: "claimd",
    figures.GO_WITH_STATUS: "Go, with status",
    figures.GO: "Go, without",
    floor.NAME: "the least in Python",
}

# The table's rows, in the words of somebody who runs a cluster.
WORDS = {
    "exec_to_registered": "from start until the kubelet has registered it",
    "exec_to_slices": "from start until its slices are published",
    "cpu_to_slices": "CPU until then",
    "prepare_p50": "a prepare, median",
    "prepare_p99": "a prepare, 99 of 100 are quicker",
    "prepare_batch": "32 claims in one call",
    "prepare_again_p50": "a prepare that is repeated, median",
    "unprepare_p50": "an unprepare, median",
    "cpu_per_claim": "CPU of a claim: prepare, status, unprepare",
    "status_after_prepare": "from a prepare until its status stands",
    "anonymous": "memory of its own (anonymous)",
    "resident": "memory, with what it shares with others (resident)",
    "idle_cpu": "CPU at rest, of a core",
    "slice_back": "until a slice that somebody deleted is back",
}
QUIET, UNTOUCHED = 0.25, 0.03  # cores, and a share of time: below these nobody else was at work


def title(name: str) -> str:
    return TITLES.get(name, name)


# ---------------------------------------------------------------- the table


def circumstances(results: Results) -> str:
    """The paragraph above the table: when, where, of which versions, and how quiet it was."""
    version = results.versions
    rounds = "one round" if results.rounds == 1 else f"medians of {results.rounds} rounds"
    peer = version.get(figures.GO, "a commit that is not known")
    text = (
        f"Measured on {results.date}: claimd at {version['claimd']} and the example driver at {peer}, in turns, in one run. "
        f"A machine of {results.cores} cores ({results.processor}), Linux {version['linux']}, an API server {version['kubernetes']} "
        f"and its etcd on the same machine, Python {version['python']} with the image's bytecode, grpcio {version['grpcio']}; 64 devices, "
        f"{results.claims} claims one by one, {rounds}. "
    )
    busy = (
        f"{results.others:g} cores were at work before it began, and its host took {results.stolen:.1%} of its processors' "
        "time meanwhile"
    )
    if results.others > QUIET or results.stolen > UNTOUCHED:
        text += (
            f"**Others kept the machine busy**: {busy}. Times say little then, and ratios of times "
            "not much more."
        )
    else:
        text += f"It was quiet: {busy}."
    return text


def rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """The titles of the table and its lines. A figure that is over the project's mark says so."""
    names = list(results.figures)
    own, *others = names
    compared = figures.compare(
        results.figures[own], {name: results.figures[name] for name in others}
    )
    lines = []
    for row in compared:
        if row.figure.key in WORDS:
            values = [row.ours, *row.peers.values()]
            lines.append(
                [
                    WORDS[row.figure.key],
                    *(amount(value, row.figure.unit) for value in values),
                    _mark(row),
                    _verdict(row),
                ]
            )
    return ["", *map(title, names), "our mark", ""], lines


def amount(value: float | None, unit: str) -> str:
    """Three digits say enough: 0.293 s, 9.12 ms, 516 ms."""
    if value is None:
        return "never"
    if value >= 100:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}"


def _mark(row: figures.Row) -> str:
    figure = row.figure
    if figure.limit is not None:
        return f"≤ {figure.limit:g} {figure.unit}"
    if figure.ratio is not None:
        return f"≤ {figure.ratio:g} x {title(row.against)}"
    return ""


def _verdict(row: figures.Row) -> str:
    said = {figures.OK: "kept", figures.OVER: "**over**"}.get(row.verdict, row.verdict)
    if row.figure.ratio is not None and row.ratio is not None:
        return f"{row.ratio:.2f} x, {said}"
    return said


# ---------------------------------------------------------------- charts


def pictures(results: Results) -> dict[str, str]:
    """By file name. What a run did not look at has no picture."""
    pictures_ = {"prepare.svg": _prepares(results)}
    if results.devices:
        pictures_["devices.svg"] = _devices(results)
    if results.calls:
        pictures_["calls.svg"] = _calls(results)
    return pictures_


def write(results: Results) -> list[Path]:
    """The charts' files, in place of earlier ones; gives those that are others now."""
    FOLDER.mkdir(exist_ok=True)
    drawn = pictures(results)
    changed = [file for file in FOLDER.glob("*.svg") if file.name not in drawn]
    for file in changed:
        file.unlink()
    for name, text in drawn.items():
        file = FOLDER / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            changed.append(file)
    return changed


def _prepares(results: Results) -> str:
    axis = plots.Axis(title="a prepare takes at most", unit="ms", log=True)
    samples = {title(name): values for name, values in results.prepares.items()}
    middles = [
        f"{title(name)} {results.figures[name]['prepare_p50']:.3g} ms" for name in results.prepares
    ]
    return plots.svg(
        [plots.cdf("", axis, samples)],
        title="A prepare of one claim",
        description="How many of all prepares took at most so long. The medians: "
        + ", ".join(middles)
        + ".",
    )


def _devices(results: Results) -> str:
    panels = [
        _growth(results, "CPU of a claim", "cpu_per_claim", "prepare, status, unprepare"),
        _growth(results, "CPU of the start", "cpu_to_slices", "from exec until slices stand"),
        _growth(results, "Time of the start", "exec_to_slices", "from exec until slices stand"),
        _growth(results, "Memory of its own", "anonymous", "anonymous memory"),
    ]
    return plots.svg(
        panels,
        title="What more devices cost",
        description=f"Four charts, each from {sweeps.DEVICES[0]} to {sweeps.DEVICES[-1]} devices of a node. "
        + _ends(results.devices, "cpu_per_claim", "CPU of a claim", "ms"),
    )


def _growth(results: Results, name: str, key: str, what: str) -> plots.Chart:
    figure = next(figure for figure in figures.FIGURES if figure.key == key)
    x = plots.Axis(title="devices of the node", log=True, ticks=sweeps.DEVICES)
    y = plots.Axis(title=what, unit=figure.unit)
    return plots.Chart(title=name, x=x, y=y, lines=_lines(results.devices, "devices", key))


def _calls(results: Results) -> str:
    x = plots.Axis(title="claims in one call of the kubelet", log=True, ticks=sweeps.CALLS)
    y = plots.Axis(title="the call takes", unit="ms", log=True)
    chart = plots.Chart(title="", x=x, y=y, lines=_lines(results.calls, "claims", "prepare"))
    return plots.svg(
        [chart],
        title="Claims in one call",
        description=_ends(results.calls, "prepare", "The call of the most claims", "ms"),
    )


def _lines(
    results: Mapping[str, Sequence[figures.Values]], across: str, key: str
) -> tuple[plots.Line, ...]:
    lines = []
    for name, rows_ in results.items():
        points = [(row[across], row[key]) for row in rows_]
        there = [(x, y) for x, y in points if x is not None and y is not None]
        lines.append(plots.Line(label=title(name), points=tuple(there)))
    return tuple(lines)


def _ends(results: Mapping[str, Sequence[figures.Values]], key: str, what: str, unit: str) -> str:
    """The last values, in words."""
    said = [f"{title(name)} {amount(rows_[-1][key], unit)}" for name, rows_ in results.items()]
    return f"{what}, at the right end: {', '.join(said)}."
