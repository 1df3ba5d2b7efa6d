"""The campaigns' command line: `python -m tests.faults --help`. Exit codes: 0 every promise was
kept, 1 one was not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from . import campaign, deaths, power, recording, scenarios
from .world import Broken, world

STATES = Path(tempfile.gettempdir()) / "claimd-faults"


def main() -> int:
    asked = _arguments().parse_args()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # either way what was started is ended
    with contextlib.suppress(KeyboardInterrupt):
        return 1 if asyncio.run(asked.run(asked)) else 0
    print("stopped; the same command with --seed goes on from here")
    return 130


async def _deaths(asked: argparse.Namespace) -> int:
    began = time.monotonic()
    async with world() as world_:
        if asked.only:
            return sum(
                [await _alone(lambda p: deaths.attempt(world_, p), point) for point in asked.only]
            )
        run = campaign.Campaign.begin("deaths", asked.seed, _state(asked))
        try:
            points = await deaths.points(world_, asked.seed, asked.scenario or scenarios.SCENARIOS)
            await run.run(points[: asked.count], lambda point: deaths.attempt(world_, point))
        finally:
            failed = run.report(time.monotonic() - began)
    return failed


async def _alone(attempt: Callable[[str], Awaitable[str]], point: str) -> int:
    try:
        print(f"{point}: {await attempt(point)}")
    except Broken as broken:
        print(f"{point}: BROKEN: {broken}")
        return 1
    return 0


async def _power(asked: argparse.Namespace) -> int:
    began = time.monotonic()
    logging.getLogger("claimd").addHandler(
        logging.NullHandler()
    )  # claimd is in this process; its words are many
    run = campaign.Campaign.begin("power", asked.seed, _state(asked))
    recordings = await _recordings(run.path.with_suffix(".recordings"), asked.recordings)
    async with world() as world_:
        bench = power.Bench(world_, recordings, asked.seed)
        if asked.only:
            return sum([await _alone(bench.attempt, point) for point in asked.only])
        points = power.points(recordings, asked.variants, asked.seed)
        try:
            await run.run(points[: asked.count], bench.attempt)
        finally:
            failed = run.report(time.monotonic() - began)
    return failed


async def _recordings(folder: Path, wanted: int | None) -> list[recording.Recording]:
    """Made once for each state file, so that its points keep their meaning."""
    folder.mkdir(parents=True, exist_ok=True)
    recordings = []
    for number, name in enumerate(recording.names()[:wanted]):
        path = folder / f"{number}.json"
        if not path.exists():
            async with world() as world_:
                (await recording.record(world_, name)).save(path)
        recordings.append(recording.Recording.load(path))
    return recordings


def _state(asked: argparse.Namespace) -> Path:
    return asked.resume or STATES / f"{asked.campaign}-{asked.seed}.json"


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="campaign")
    for name, run, about in (
        (
            "deaths",
            _deaths,
            "a real claimd is killed, or its disk fails, at every step of every scenario",
        ),
        ("power", _power, "the machine loses power at every step, with what was not synced"),
    ):
        command = commands.add_parser(name, help=about)
        command.set_defaults(run=run)
        command.add_argument(
            "--seed", type=int, default=random.randrange(10**6), help="of the order (default: any)"
        )
        command.add_argument("--count", type=int, help="so many points (default: all)")
        command.add_argument(
            "--resume", type=Path, help="file with the state, to go on from (default: by the seed)"
        )
        command.add_argument("--only", action="append", help="this point alone, no state")
        if name == "deaths":
            command.add_argument(
                "--scenario",
                action="append",
                choices=scenarios.SCENARIOS,
                help="only the points of this one (default: of all)",
            )
        if name == "power":
            command.add_argument(
                "--variants", type=int, default=8, help="losses at each step (default: 8)"
            )
            command.add_argument(
                "--recordings", type=int, help="only the first so many lives (default: all)"
            )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
