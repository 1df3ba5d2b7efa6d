"""The command line: `python -m tests.scale --help`, or `make scale`.

Exit codes: 0 every promise is kept, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.errors import BenchError
from tests.cluster.rig import places
from tests.docs import pages

from . import cluster, machine, phases, play, report

KEPT, BROKEN, FAILED = 0, 1, 2
FLEETS = ["claimd", "peer"]
SHORT_REST = 20.0  # seconds, of the smaller fleets
EPILOG = """\
The API server and etcd are the rig's, brought up for each fleet and taken down again (root, Go). The smaller
fleets play alone, storm and rest, the largest all phases, which are: alone, storm, rest, claims, taints, restart,
split, rolling. docs/scale.md says what each is.
"""


def main() -> int:
    asked = arguments().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = report.Results(machine=machine.described(), rows=[])
    try:
        with machine.room_for(max(asked.nodes)):
            for kind in asked.fleets:
                for size in asked.nodes:
                    try:
                        played(kind, size, asked, results)
                    finally:
                        if asked.save and results.rows:
                            save(results)
    except (BenchError, places.RigError) as error:
        print(f"{report.table(results.rows)}\nscale: {error}", file=sys.stderr)
        return FAILED
    print(report.table(results.rows) if asked.output == "table" else report.as_json(results))
    return BROKEN if report.broken(results.rows) else KEPT


def played(kind: str, size: int, asked: argparse.Namespace, results: report.Results) -> None:
    """One fleet, on a control plane that nothing has grown before."""
    chosen = asked.phases
    lengths = phases.Lengths(rest=asked.rest, claims_for=asked.claims_for, frozen=asked.frozen)
    if size != asked.nodes[-1]:
        chosen = [phase for phase in chosen if phase in play.SWEPT]
        lengths = replace(lengths, rest=min(asked.rest, SHORT_REST))
    with cluster.rig() as plane, tempfile.TemporaryDirectory(prefix="cs-", dir=fast()) as folder:
        furniture = cluster.Furniture(plane)
        results.machine["kubernetes"] = furniture.version()
        play.play(
            plane,
            furniture,
            Path(folder),
            kind=kind,
            nodes=size,
            chosen=chosen,
            lengths=lengths,
            rows=results.rows,
        )


def save(results: report.Results) -> None:
    """What is there so far, with the picture and the page made of it."""
    report.save(results)
    page = report.ROOT / "docs/scale.md"
    page.write_text(pages.regenerated(page.read_text()))


def fast() -> str | None:
    """Where a sync costs nothing: what is measured is the API server."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def arguments() -> argparse.ArgumentParser:
    default = phases.Lengths()
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale",
        description="Plays many nodes against one real API server, and measures what they cost it and others.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nodes",
        type=sizes,
        default=sizes("100,300,1000"),
        metavar="N,N,…",
        help="sizes of the fleets (default 100,300,1000)",
    )
    parser.add_argument(
        "--phases",
        type=phase_names,
        default=list(phases.ALL),
        metavar="NAME,…",
        help="of the largest fleet (default: all)",
    )
    parser.add_argument(
        "--rest",
        type=float,
        default=default.rest,
        metavar="SECONDS",
        help=f"at rest (default {default.rest:g})",
    )
    parser.add_argument(
        "--frozen",
        type=float,
        default=default.frozen,
        metavar="SECONDS",
        help=f"without an answer from the API server (default {default.frozen:g})",
    )
    parser.add_argument(
        "--claims-for",
        type=float,
        default=default.claims_for,
        metavar="SECONDS",
        help=f"of 1,000 claims a minute (default {default.claims_for:g})",
    )
    parser.add_argument(
        "--fleets",
        type=fleet_names,
        default=["claimd"],
        metavar="NAME,…",
        help="whose plugins, one after the other: claimd, and peer, helpers of Kubernetes' own Go "
        "module for drivers (default claimd)",
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write docs/scale.json, scale.svg and the tables of scale.md",
    )
    return parser


def sizes(text: str) -> list[int]:
    sizes_ = sorted({int(part) for part in text.split(",")})
    if sizes_[0] < 1:
        raise argparse.ArgumentTypeError(f"a fleet has at least one node, not {sizes_[0]}")
    return sizes_


def phase_names(text: str) -> list[str]:
    return known(text, "phase", list(phases.ALL))


def fleet_names(text: str) -> list[str]:
    return known(text, "fleet", FLEETS)


def known(text: str, what: str, there: Sequence[str]) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(there)):
        raise argparse.ArgumentTypeError(
            f"no {what} {', '.join(unknown)}; there are {', '.join(there)}"
        )
    return names


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("tests.scale: needs root: it starts an API server on port 443")
    sys.exit(main())
