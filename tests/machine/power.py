"""Real losses of power: the kernel of a virtual machine wrote to the disk, the power is cut at any
moment of its life, and claimd starts on what remains.

The kernel of this machine mounts each disk, which repairs the file system from its journal. In one
of ten cuts claimd starts as real processes, otherwise in this process. `python -m
tests.machine.power --help`. Exit codes: 0 every promise was kept, 1 one was not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from claimd.common import names
from tests.faults import campaign, observer, power
from tests.faults.stage import GONE, PREPARED
from tests.faults.world import Broken, World, world
from tests.support.worlds import DRIVER

from . import cuts, kernel, lives

SURVIVED = "survived"
ANSWERED = (PREPARED, GONE)
PROCESSES = 0.1  # the share of the cuts after which claimd starts as real processes

# The mount options. All disks have the same uuid, which xfs refuses without `nouuid`.
_OPTIONS = {"ext4": "loop", "xfs": "loop,nouuid"}


class Kind(NamedTuple):
    """A kind of recorded life: its file system, and the program that runs claimd."""

    file_system: str
    program: str


KINDS = {
    "ext4": Kind("ext4", lives.RUN),
    "xfs": Kind("xfs", lives.RUN),
    "ext4-unsynced": Kind("ext4", lives.RUN_UNSYNCED),
    "xfs-unsynced": Kind("xfs", lives.RUN_UNSYNCED),
}


class Bench:
    """Tries the cuts of one recording. `promises` counts the answers that were checked."""

    def __init__(self, world_: World, recording: cuts.Recording, seed: int) -> None:
        self._world, self._recording, self._seed = world_, recording, seed
        self._replay = cuts.Replay(recording)
        self._boot = power.NextBoot(world_)
        self._number = 0
        self.promises = 0

    async def attempt(self, cut: str) -> str:
        """Raises Broken unless every answer from before the cut is kept."""
        moment, _, variant = cut.partition("/")
        dice = random.Random(f"{self._seed}/{cut}")
        self._replay.go_to(int(moment))
        states = self._replay.states
        self.promises += sum(state in ANSWERED for state in states.values())

        self._number += 1
        image = self._world.folder / f"disk{self._number}"
        folder = self._world.folder / f"m{self._number}"
        self._replay.remains(variant, dice).save(image)
        try:
            with mounted(image, folder, self._recording.file_system):
                self._look(folder, states)
                # A full disk stays full after the boot, and has no room for CDI files.
                (folder / lives.FILLER).unlink(missing_ok=True)
                if dice.random() < 0.5:
                    # Most nodes have the CDI files in memory, where a boot finds none.
                    shutil.rmtree(folder / "cdi", ignore_errors=True)
                await self._boot.check(
                    folder,
                    self._recording.claims,
                    states,
                    has_two=dice.random() < 0.5,
                    as_process=dice.random() < PROCESSES,
                )
        except Broken as broken:
            raise Broken(f"{broken}\n  the kubelet knew: {states}") from None
        finally:
            image.unlink()
        return SURVIVED

    def _look(self, folder: Path, states: dict[str, str]) -> None:
        """Raises Broken if a checkpoint is damaged or missing before claimd can rebuild it."""
        claims = names.plugin_folder(folder / "kubelet", DRIVER) / "claims"
        there = {observer.record(path) for path in claims.glob("[!.]*.json")}
        for name, state in states.items():
            if state == PREPARED and f"uid-{name}" not in there:
                raise Broken(f"lost: no checkpoint of {name}, which was prepared")
            if state == GONE and f"uid-{name}" in there:
                raise Broken(f"{name} was unprepared, and its checkpoint is back")


@contextlib.contextmanager
def mounted(image: Path, folder: Path, file_system: str) -> Iterator[None]:
    """Mounts the image while the block lasts. Broken if the kernel refuses it."""
    folder.mkdir()
    mount = ["mount", "-t", file_system, "-o", _OPTIONS[file_system], str(image), str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"the disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        # The lock file of a claimd in this process is open until its objects are gone. Those of one
        # that broke a promise are in the exception.
        gc.collect()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


# ---------------------------------------------------------------- the command line


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.machine.power", description=__doc__)
    parser.add_argument("kind", choices=KINDS, help="the file system; unsynced: without one sync")
    parser.add_argument("--cuts", type=int, default=1000, help="so many (default: 1000)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of calls in the guest")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: any")
    parser.add_argument("--only", action="append", help="this cut alone, of the life of the seed")
    failed = asyncio.run(_run(parser.parse_args()))
    return 1 if failed else 0


async def _run(asked: argparse.Namespace) -> int:
    # claimd runs in this process, and its log is long.
    logging.getLogger("claimd").addHandler(logging.NullHandler())
    began = time.monotonic()
    states = Path(tempfile.gettempdir()) / "claimd-machine"
    run = campaign.Campaign.begin(
        asked.kind,
        asked.seed,
        states / f"{asked.kind}-{asked.seed}.json",
        "python -m tests.machine.power",
    )
    recording = await _recording(run.path.with_suffix(".recording"), asked)
    async with world() as world_:
        bench = Bench(world_, recording, asked.seed)
        if asked.only:
            for cut in asked.only:
                print(f"{cut}: {await bench.attempt(cut)}")
            return 0
        points = cuts.draw(recording.events, ANSWERED, asked.cuts, asked.seed)
        try:
            await run.run(points, bench.attempt)
        finally:
            failed = run.report(time.monotonic() - began)
            print(f"{bench.promises} answers were checked")
    return failed


async def record(linux: kernel.Kernel, kind: str, seconds: float, seed: int) -> cuts.Recording:
    """Runs a guest, and returns the life of its disk."""
    file_system, program = KINDS[kind]
    return await lives.record(linux, file_system, seconds, seed, program=program)


async def _recording(path: Path, asked: argparse.Namespace) -> cuts.Recording:
    """Returns the life of the seed, which is recorded once and kept in a file."""
    if not path.exists():
        recording = await record(kernel.fetch(), asked.kind, asked.seconds, asked.seed)
        recording.save(path)
    recording = cuts.Recording.load(path)
    print(recording.summary())
    return recording


if __name__ == "__main__":
    raise SystemExit(main())
