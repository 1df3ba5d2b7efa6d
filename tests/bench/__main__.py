"""The benchmark's command line: `python -m tests.bench --help`, or `make bench`. Drivers take
turns, then the table.

Exit codes: 0 every limit is kept, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import (
    api,
    control_plane,
    figures,
    floor,
    golang,
    ours,
    published,
    results,
    scanning,
    sweeps,
    turn,
)
from .errors import BenchError

KEPT, OVER, FAILED = 0, 1, 2
CALM = 2.0  # seconds
PEER = "peer"
EPILOG = """\
The API server is that of KUBECONFIG, or the rig's; if that is not up, it is started (root, Go) and stopped again.

The peer that the limits are about is kubernetes-sigs/dra-example-driver; --go takes a clone of it. As any other peer it would be
  --peer go='PATH/dra-example-kubeletplugin --node-name={node} --kubeconfig={kubeconfig} --cdi-root={cdi}
    --kubelet-registrar-directory-path={kubelet}/plugins_registry --kubelet-plugins-directory-path={kubelet}/plugins
    --num-devices={devices} --kube-api-qps=1000 --kube-api-burst=2000'
"""


def main() -> int:
    asked = arguments().parse_args()
    if asked.peer is None:
        asked.peer = [_peer(os.environ["PEER"])] if os.environ.get("PEER") else []
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that what was started is stopped
    before = results.ticks()
    time.sleep(CALM)  # what is at work now are others
    began = results.ticks()
    others = before.cores_busy_until(began)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            peers = [turn.parse(name, command) for name, command in asked.peer]
            if asked.go:
                peers = [*golang.drivers(asked.go, Path(folder)), *peers]
            python = asked.python or ours.default_python()
            own = ours.driver(python, asked.gpus.split(), Path(folder) / "asked")
            if asked.go:
                peers.append(floor.driver(own))
            with control_plane.kubeconfig() as kubeconfig:
                cluster = turn.Cluster(api=api.connect(kubeconfig), kubeconfig=kubeconfig)
                taken = measure([own, *peers], cluster, asked)
                if asked.publish:
                    grown = sweep(python, peers, cluster, Path(folder), asked)
                    versions = results.versions(peers, cluster, ours.interpreter(python))
                    stolen = began.stolen_until(results.ticks())
                    publish(asked, (others, stolen), versions, taken, *grown)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return FAILED

    return report(asked, taken)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measures claimd, and a peer beside it, against a real kube-apiserver, playing the kubelet.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--peer",
        metavar="[NAME=]COMMAND",
        type=_peer,
        action="append",
        help="another driver, with "
        + " ".join(f"{{{place}}}" for place in turn.PLACEHOLDERS)
        + " for its folders, node, API server and number of devices; {kubelet} holds plugins/ and plugins_registry/."
        " May be given several times (default $PEER)",
    )
    parser.add_argument(
        "--go",
        metavar="PATH",
        type=Path,
        help="Kubernetes' example driver as two peers, with the status of devices and without: a clone of its repository,"
        " or its program; and the least that a driver in Python could be",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="also measures 1 to 512 devices and 1 to 128 claims in a call, keeps all of it in docs/bench and writes"
        " the table and charts of docs/cost.md anew",
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


def _peer(text: str) -> tuple[str, str]:
    """Its name, which becomes a part of its node's, and its command."""
    named = re.fullmatch(r"([a-z][a-z0-9-]*)=(.*)", text, re.DOTALL)
    return (named[1], named[2]) if named else (PEER, text)


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
) -> dict[str, list[turn.Taken]]:
    """By driver, one entry a round."""
    by_driver: dict[str, list[turn.Taken]] = {driver.name: [] for driver in drivers}
    for number in range(1, asked.rounds + 1):
        # Each driver is the first of a round, which may be the worst place.
        first = (number - 1) % len(drivers)
        for driver in (*drivers[first:], *drivers[:first]):
            print(f"round {number} of {asked.rounds}: {driver.name}", file=sys.stderr, flush=True)
            is_ours = driver.name == ours.NAME
            # A peer that reports no status is waited for in vain once, and may need half a minute
            # until it misses its slices: once says enough.
            before = by_driver[driver.name]
            has_status = not before or before[0].figures["status_after_prepare"] is not None
            work = turn.Work(
                claims=asked.claims,
                idle=asked.idle,
                waits_for_status=has_status,
                waits_for_slices=is_ours or not before,
            )
            taken = turn.take(driver, cluster, f"{os.getpid()}-{number}", work)
            scans = scanning.take() if is_ours else dict.fromkeys(scanning.KEYS)
            by_driver[driver.name].append(
                turn.Taken(figures={**taken.figures, **scans}, prepares=taken.prepares)
            )
    return by_driver


def sweep(
    python: Path,
    peers: list[turn.Driver],
    cluster: turn.Cluster,
    folder: Path,
    asked: argparse.Namespace,
) -> tuple[sweeps.Rows, sweeps.Rows]:
    """What more devices cost, and more claims in a call."""

    def own(devices: int) -> turn.Driver:
        return ours.driver(python, ours.many(devices), folder / str(devices))

    makers: dict[str, sweeps.Maker] = {ours.NAME: own}
    for peer in peers:
        if peer.can_have_more:
            makers[peer.name] = peer.of
    # A run that shall be short does not wait for the largest calls.
    sizes = sweeps.CALLS if asked.claims >= 60 else sweeps.CALLS[:6]
    claims = max(2, asked.claims // 5)
    return (
        sweeps.with_more_devices(makers, cluster, claims),
        sweeps.with_more_claims(makers, cluster, asked.rounds, sizes),
    )


def publish(
    asked: argparse.Namespace,
    disturbed: tuple[float, float],
    versions: dict[str, str],
    taken: dict[str, list[turn.Taken]],
    devices: sweeps.Rows,
    calls: sweeps.Rows,
) -> None:
    others, stolen = disturbed
    results_ = results.Results(
        date=results.date(),
        cores=os.cpu_count() or 1,
        processor=results.processor(),
        others=others,
        stolen=stolen,
        versions=versions,
        rounds=asked.rounds,
        claims=asked.claims,
        idle=asked.idle,
        figures=results.summary(taken),
        prepares=results.single_prepares(taken),
        devices=devices,
        calls=calls,
    )
    results.write(results_)
    published.write(results_)
    subprocess.run(
        [sys.executable, "-m", "tests.docs"], cwd=ours.ROOT, stdout=sys.stderr, check=True
    )


def report(asked: argparse.Namespace, taken: dict[str, list[turn.Taken]]) -> int:
    """Prints what was found; the exit code says whether the limits are kept."""
    summary = results.summary(taken)
    own = summary.pop(ours.NAME)
    rows = figures.compare(own, summary)
    if asked.output == "json":
        head = {
            "rounds": asked.rounds,
            "claims": asked.claims,
            "idleSeconds": asked.idle,
            "cores": os.cpu_count(),
        }
        by_round = {
            name: [taken_turn.figures for taken_turn in turns] for name, turns in taken.items()
        }
        print(json.dumps({**head, "figures": figures.as_json(rows), "byRound": by_round}, indent=2))
    else:
        print(
            f"medians of {asked.rounds} rounds with {asked.claims} claims each, on {os.cpu_count()} cores\n"
        )
        print(figures.table(rows, ours=ours.NAME))
    return OVER if any(row.verdict == figures.OVER for row in rows) else KEPT


if __name__ == "__main__":
    sys.exit(main())
