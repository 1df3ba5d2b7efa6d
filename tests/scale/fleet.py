"""A fleet: the plugins of many nodes in a few processes. Ours, and that of a peer which is a program
of its own.

Their processes say what is so by lines of JSON (`event`, `n`, and `t`, seconds since 1970) and take
a command a line. All of them say `started` and `published`; `tainted`, `untainted` and `restarted`
after the commands for it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from claimd.common import names
from claimd_devices import fake, faults
from tests.bench.errors import BenchError

from . import layout
from .program import Program

STUCK = 90.0  # seconds without progress after which what is waited for has failed
A_WORKER, FEW = 250, 20  # nodes of a worker at most; of one that has a CPU to itself at least
DEVICES, SICK = 8, 3  # of a node, and how many of them are the third that turns sick
TREE = ["nvidia:h100=8"]
PEER = Path(__file__).with_name("peer")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fleet finds everything."""

    folder: Path  # short, since sockets are below it
    prefix: str  # of the nodes' names
    nodes: int
    host: str
    port: int
    yields: bool  # a machine of its own: whoever else wants a core has it first

    @property
    def priority(self) -> Callable[[], object] | None:
        return _yield_cores if self.yields else None


class Fleet(Protocol):
    driver: str
    name: str
    clears: bool  # whether it takes a report back when the claim is unprepared
    place: Place

    async def start(self) -> None:
        """All at once. Returns as soon as the programs run."""

    async def until(self, event: str) -> float:
        """Seconds since 1970 when it was so of the last node; a BenchError if that does not come."""

    def taint(self) -> None: ...
    def untaint(self) -> None: ...
    def restart(self, at_once: int) -> None: ...
    def socket(self, node: str) -> Path: ...
    def pids(self) -> Sequence[int]: ...
    async def stop(self) -> None: ...


class Programs:
    """The processes of a fleet, and what they have said since the last command."""

    def __init__(self) -> None:
        self.all: list[Program] = []
        self._heard: list[int] = []

    def add(self, program: Program) -> None:
        self.all.append(program)
        self._heard.append(0)

    def say(self, *words: object) -> None:
        """To all; what they have said before counts no more."""
        self.forget()
        for program in self.all:
            program.say(*words)

    def forget(self) -> None:
        self._heard = [len(program.lines) for program in self.all]

    def reached(self, event: str) -> tuple[int, float]:
        """Of how many nodes it is so, and since when."""
        total, last = 0, 0.0
        for program, heard in zip(self.all, self._heard, strict=True):
            said = [line for line in program.lines[heard:] if line["event"] == event]
            if said:
                total += said[-1]["n"]
                last = max(last, said[-1]["t"])
        return total, last

    async def until(self, event: str, nodes: int) -> float:
        before, progress = -1, time.monotonic()
        while True:
            for program in self.all:
                program.check()
            number, at = self.reached(event)
            if number >= nodes:
                return at
            if number != before:
                before, progress = number, time.monotonic()
            if time.monotonic() - progress > STUCK:
                raise BenchError(
                    f"{event}: {number} of {nodes} nodes, and no more for {STUCK:g} s; "
                    f"{self.all[0].name} said last:\n{self.all[0].last_words()}"
                )
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for program in self.all:
            program.say("stop")
        await asyncio.gather(*(program.stop() for program in self.all))


class Ours:
    """claimd: up to A_WORKER plugins a process, all of which read one fake tree."""

    driver = "gpu.claimd.dev"
    name = "claimd"
    clears = True

    def __init__(self, place: Place) -> None:
        self.place = place
        self._tree = place.folder / "tree"
        self._programs = Programs()

    async def start(self) -> None:
        fake.write(self._tree, fake.parse(TREE))
        faults.enable(self._tree)
        environment = {
            "KUBERNETES_SERVICE_HOST": self.place.host,
            "KUBERNETES_SERVICE_PORT": str(self.place.port),
        }
        workers = max(
            min(1 + self.place.nodes // FEW, os.cpu_count() or 1), -(-self.place.nodes // A_WORKER)
        )
        first = 0
        for number in range(workers):
            count = (self.place.nodes - first) // (workers - number)
            program = Program(f"worker {number}", self.place.folder / f"worker-{number}.log")
            await program.start(
                self._command(first, count), environment, priority=self.place.priority
            )
            self._programs.add(program)
            first += count

    def _command(self, first: int, count: int) -> list[str]:
        settings = {
            "prefix": self.place.prefix,
            "first": first,
            "nodes": count,
            "folder": self.place.folder,
            "tree": self._tree,
            "driver": self.driver,
        }
        words = [f"--{key}={value}" for key, value in settings.items()]
        return [sys.executable, "-m", "tests.scale.worker", *words]

    async def until(self, event: str) -> float:
        return await self._programs.until(event, self.place.nodes)

    def taint(self) -> None:
        self._programs.say("expect", SICK)
        for address in fake.gpu_addresses(self._tree)[:SICK]:
            faults.inject(self._tree, "xid", address)

    def untaint(self) -> None:
        self._programs.say("expect", 0)
        for address in fake.gpu_addresses(self._tree)[:SICK]:
            faults.inject(self._tree, "heal", address)

    def restart(self, at_once: int) -> None:
        self._programs.say("restart", max(1, at_once // len(self._programs.all)))

    def socket(self, node: str) -> Path:
        folder = names.plugin_folder(self.place.folder / node, self.driver)
        sockets = sorted(folder.glob("dra*.sock"), key=lambda path: path.stat().st_mtime)
        if not sockets:
            raise BenchError(f"{node}: no DRA socket in {folder}")
        return sockets[-1]

    def pids(self) -> Sequence[int]:
        return [program.pid for program in self._programs.all]

    async def stop(self) -> None:
        await self._programs.stop()


class Peer:
    """Helpers of Kubernetes' own module for drivers in Go, all in one process."""

    driver = "scale.peer"
    name = "Go"
    clears = False

    def __init__(self, place: Place, kubeconfig: Path, program: Path) -> None:
        self.place, self._kubeconfig, self._program = place, kubeconfig, program
        self._programs = Programs()

    async def start(self) -> None:
        settings = {
            "kubeconfig": self._kubeconfig,
            "nodes": self.place.nodes,
            "prefix": self.place.prefix,
            "folder": self.place.folder,
            "devices": DEVICES,
            "driver": self.driver,
        }
        program = Program("the peer", self.place.folder / "peer.log")
        words = [f"--{key}={value}" for key, value in settings.items()]
        await program.start([str(self._program), *words, "--status"], priority=self.place.priority)
        self._programs.add(program)

    async def until(self, event: str) -> float:
        return await self._programs.until(event, self.place.nodes)

    def taint(self) -> None:
        self._programs.say("taint", "third")

    def untaint(self) -> None:
        self._programs.say("untaint")

    def restart(self, at_once: int) -> None:
        self._programs.say("restart", at_once)

    def socket(self, node: str) -> Path:
        return self.place.folder / node / "plugin" / "dra.sock"

    def pids(self) -> Sequence[int]:
        return [program.pid for program in self._programs.all]

    async def stop(self) -> None:
        await self._programs.stop()


def built_peer() -> Path:
    """The peer's program, built if its source is newer."""
    binary = Path.home() / ".cache/claimd-scale/peer"
    binary.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["nice", "go", "build", "-p", "1", "-o", str(binary), "."], cwd=PEER, check=False
    )
    if done.returncode:
        raise BenchError(f"go build in {PEER} ended with {done.returncode}")
    return binary


def node_names(place: Place) -> list[str]:
    return [layout.node_name(place.prefix, number) for number in range(place.nodes)]


def _yield_cores() -> None:
    """Of what plays the nodes: on a cluster they have cores of their own.

    A request of another client passes some ten threads of the API server and etcd. With a mere
    niceness each of them waits until the turn of a node, some milliseconds, is over.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
