"""The benchmark's command line: `python -m tests.bench --help`, or `make bench`. Drivers take
turns, then the table.

Exit codes: 0 every limit is kept, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from . import api, control_plane, figures, ours, scanning, turn
from .errors import BenchError

KEPT, OVER, FAILED = 0, 1, 2
PEER = "peer"
EPILOG = """\
The API server is that of KUBECONFIG, or the rig's; if that is not up, it is started (root, Go) and stopped again.

The peer that the limits are about is kubernetes-sigs/dra-example-driver, which writes no status:
  --peer 'PATH/dra-example-kubeletplugin --node-name={node} --kubeconfig={kubeconfig} --cdi-root={cdi}
    --kubelet-registrar-directory-path={kubelet}/plugins_registry --kubelet-plugins-directory-path={kubelet}/plugins
    --num-devices=64 --kube-api-qps=1000 --kube-api-burst=2000'
"""


def main() -> int:
    asked = arguments().parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that what was started is stopped
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            peers = [turn.parse(PEER, asked.peer)] if asked.peer else []
            own = ours.driver(
                asked.python or ours.default_python(), asked.gpus.split(), Path(folder)
            )
            with control_plane.kubeconfig() as kubeconfig:
                cluster = turn.Cluster(api=api.connect(kubeconfig), kubeconfig=kubeconfig)
                rounds = measure([own, *peers], cluster, asked)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return FAILED
    return report(asked, rounds)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measures claimd, and a peer beside it, against a real kube-apiserver, playing the kubelet.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--peer",
        metavar="COMMAND",
        default=os.environ.get("PEER", ""),
        help="another driver, with "
        + " ".join(f"{{{place}}}" for place in turn.PLACEHOLDERS)
        + " for its folders, node and API server; {kubelet} holds plugins/ and plugins_registry/ (default $PEER)",
    )
    parser.add_argument(
        "--rounds",
        type=_count,
        default=3,
        help="turns for each driver; medians are shown (default 3)",
    )
    parser.add_argument(
        "--claims", type=_several, default=300, help="prepared one by one in a turn (default 300)"
    )
    parser.add_argument(
        "--idle", type=float, default=60.0, help="seconds for the CPU when idle (default 60)"
    )
    parser.add_argument(
        "--python",
        type=Path,
        help=f"runs claimd (default {ours.SYSTEM_PYTHON} if new enough, else the one that runs us)",
    )
    parser.add_argument(
        "--gpus",
        default="nvidia:h100=64",
        metavar="WORDS",
        help="as `claimd fake write` takes them (default nvidia:h100=64)",
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="default: table"
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _several(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("at least 2, for a p99")
    return number


def measure(
    drivers: list[turn.Driver], cluster: turn.Cluster, asked: argparse.Namespace
) -> dict[str, list[figures.Values]]:
    """By driver, one entry a round."""
    work = turn.Work(claims=asked.claims, idle=asked.idle)
    found: dict[str, list[figures.Values]] = {driver.name: [] for driver in drivers}
    for number in range(1, asked.rounds + 1):
        for driver in drivers:
            print(f"round {number} of {asked.rounds}: {driver.name}", file=sys.stderr, flush=True)
            taken = turn.take(driver, cluster, f"{os.getpid()}-{number}", work)
            scans = scanning.take() if driver.name == ours.NAME else dict.fromkeys(scanning.KEYS)
            found[driver.name].append({**taken, **scans})
    return found


def report(asked: argparse.Namespace, rounds: dict[str, list[figures.Values]]) -> int:
    """Prints what was found; the exit code says whether the limits are kept."""
    own = figures.medians(rounds[ours.NAME])
    peer = figures.medians(rounds[PEER]) if PEER in rounds else None
    rows = figures.compare(own, peer)
    if asked.output == "json":
        head = {
            "rounds": asked.rounds,
            "claims": asked.claims,
            "idleSeconds": asked.idle,
            "cores": os.cpu_count(),
        }
        print(json.dumps({**head, "figures": figures.as_json(rows), "byRound": rounds}, indent=2))
    else:
        print(
            f"medians of {asked.rounds} rounds with {asked.claims} claims each, on {os.cpu_count()} cores\n"
        )
        print(figures.table(rows, ours=ours.NAME, peer=PEER if peer is not None else None))
    return OVER if any(row.verdict == figures.OVER for row in rows) else KEPT


if __name__ == "__main__":
    sys.exit(main())
