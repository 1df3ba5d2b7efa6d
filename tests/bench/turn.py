"""One driver's turn: the same work for every driver, in the same order, in folders and with a node
of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from . import figures
from .api import Api, Object
from .errors import BenchError
from .kubelet import Kubelet
from .node import Node, Place
from .program import Program, running

PLACEHOLDERS = ("kubelet", "cdi", "dir", "node", "kubeconfig", "devices")
BATCH = 32  # claims in one call, as in the table's title
BATCHES = 5  # fewer where fewer than 300 claims are asked for
REPEATS = 3  # of a prepare that has been done
CHECK_EVERY = 20  # claims; the CDI folder is read between measurements, so not at each
REST = 3.0  # seconds from the last call until the driver counts as idle
STATUS_PATIENCE = 2.0
SLICE_PATIENCE = 45.0
IN_MEMORY = Path("/dev/shm")

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What takes turns. The command's words may hold PLACEHOLDERS in braces; without a shell."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] | None = None
    devices: int = 64  # for who has the placeholder
    most: int = 1 << 20  # devices that it can publish
    version: str = ""

    @property
    def can_have_more(self) -> bool:
        return any("{devices}" in word for word in self.command)

    def of(self, devices: int) -> Driver:
        """The same with so many devices."""
        return dataclasses.replace(self, devices=devices)


@dataclass(frozen=True, kw_only=True)
class Work:
    claims: int = 300  # prepared one by one; two at least, for a p99
    idle: float = 60.0  # seconds for which the CPU is measured

    # For what some drivers never bring.
    waits_for_status: bool = True
    waits_for_slices: bool = True  # that were lost


@dataclass(frozen=True, kw_only=True)
class Cluster:
    api: Api
    kubeconfig: Path


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a turn found: its figures, and each single prepare in milliseconds."""

    figures: figures.Values
    prepares: tuple[float, ...]


def parse(name: str, command: str) -> Driver:
    """A driver by its command line, quoted as for a shell."""
    try:
        words = tuple(shlex.split(command))
        for word in words:
            word.format(**dict.fromkeys(PLACEHOLDERS, ""))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        known = ", ".join(f"{{{place}}}" for place in PLACEHOLDERS)
        raise BenchError(
            f"the command of {name} is not understood ({error!r}); placeholders are {known}"
        ) from error
    if not words:
        raise BenchError(f"the command of {name} is empty")
    return Driver(name=name, command=words)


def take(driver: Driver, cluster: Cluster, tag: str, work: Work) -> Taken:
    """All figures of one turn. `tag` tells its node and claims from those of other turns."""
    with started(driver, cluster, tag, work) as turn:
        values = turn.start()
        turn.need(BATCH)
        values |= turn.one_by_one() | turn.many() | turn.again() | turn.rest()
        if work.waits_for_slices:
            values |= turn.lost_slices()
        values["stop"] = turn.program.stop()
        return Taken(figures=values, prepares=tuple(turn.prepares))


@contextlib.contextmanager
def started(driver: Driver, cluster: Cluster, tag: str, work: Work) -> Iterator[Turn]:
    """The driver's program on a node of its own; both are away when the context ends."""
    name = f"bench-{driver.name}-{tag}".lower()
    node = Node(cluster.api, name)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b-")))
        for part in ("plugins", "plugins_registry"):
            (folder / part).mkdir()

        # The CDI folder of a node is below /var/run, which is in memory.
        in_memory = IN_MEMORY if IN_MEMORY.is_dir() else None
        cdi = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b-", dir=in_memory)))
        node.create()
        stack.callback(node.delete)
        words: dict[str, object] = {"kubelet": folder, "cdi": cdi, "dir": folder}
        words |= {"node": name, "kubeconfig": cluster.kubeconfig, "devices": driver.devices}
        command = [word.format(**words) for word in driver.command]
        kubelet = Kubelet(folder, cdi)
        program = stack.enter_context(running(command, folder / "log", driver.environment))
        stack.callback(kubelet.close)
        yield Turn(node=node, kubelet=kubelet, program=program, work=work)


class Turn:
    """The work, piece by piece; `start` comes first."""

    def __init__(self, *, node: Node, kubelet: Kubelet, program: Program, work: Work) -> None:
        self.node, self.kubelet, self.program, self.work = node, kubelet, program, work
        self.places: list[Place] = []
        self.slices: list[Object] = []
        self.prepares: list[float] = []

    def start(self) -> dict[str, float | None]:
        registered = self.program.wait_for("a driver that registers", self.kubelet.register)
        published = self.program.wait_for("ResourceSlices", self._has_slices)
        used = self.program.cpu_time()
        for item in self.slices:
            self.places += [
                (item["spec"]["pool"]["name"], device["name"]) for device in item["spec"]["devices"]
            ]
        return {
            "exec_to_registered": registered,
            "exec_to_slices": published,
            "cpu_to_slices": used,
            "devices": len(self.places),
        }

    def _has_slices(self) -> bool:
        """Whether every slice of each pool is there."""
        self.slices = self.node.slices(self.kubelet.driver)
        pools = [item["spec"]["pool"] for item in self.slices]
        return bool(pools) and all(
            sum(other["name"] == pool["name"] for other in pools) == pool["resourceSliceCount"]
            for pool in pools
        )

    def need(self, devices: int) -> None:
        if len(self.places) < devices:
            raise BenchError(
                f"the driver publishes {len(self.places)} devices; the work needs {devices}"
            )

    def one_by_one(self) -> dict[str, float | None]:
        """Prepare, status and unprepare of one claim after the other; what they take of the
        driver's CPU is counted over all of them.

        A claim of a driver that reports statuses is unprepared when its status is there, as with
        pods, which last: one that has to say less would seem to cost less.
        """
        unprepares: list[float] = []
        statuses: list[float] = []
        reports = self.work.waits_for_status
        before = self.program.cpu_time()
        for index in range(self.work.claims):
            claims = [self._claim("one", index)]
            took, ids = _timed(self.kubelet.prepare, claims)
            self.prepares.append(took)
            if index % CHECK_EVERY == 0:
                self.kubelet.check_prepared(ids)
            if reports:
                since = self._reported(claims[0])
                if since is not None:
                    statuses.append(since)
                elif statuses:
                    raise BenchError(
                        f"no status of claim {index} within {STATUS_PATIENCE:g} s, as the others have one"
                    )
                reports = since is not None
            took, _ = _timed(self.kubelet.unprepare, claims)
            unprepares.append(took)
            if index % CHECK_EVERY == 0:
                self.kubelet.check_gone(claims)
            self.node.remove(claims)
        used = self.program.cpu_time() - before
        values: dict[str, float | None] = {
            "prepare_p50": statistics.median(self.prepares),
            "prepare_p99": figures.p99(self.prepares),
            "cpu_per_claim": used / self.work.claims * 1e3,
            "unprepare_p50": statistics.median(unprepares),
        }
        status = statistics.median(statuses) if statuses else None
        return {**values, "status_after_prepare": status}

    def _reported(self, claim: Object) -> float | None:
        took = self.program.seconds_until(
            lambda: self.node.is_reported(claim),
            since=time.perf_counter(),
            patience=STATUS_PATIENCE,
        )
        return None if took is None else took * 1e3

    def many(self) -> dict[str, float | None]:
        """All claims of a pod, or of several, in one call."""
        return {"prepare_batch": self.in_a_call(BATCH, min(BATCHES, -(-self.work.claims // 60)))}

    def in_a_call(self, size: int, times: int) -> float:
        """Milliseconds of a prepare of so many claims, the median of several."""
        calls = []
        for number in range(times):
            claims = [self._claim(f"many-{size}-{number}", index) for index in range(size)]
            took, ids = _timed(self.kubelet.prepare, claims)
            calls.append(took)
            self.kubelet.check_prepared(ids)
            self.kubelet.unprepare(claims)
            self.kubelet.check_gone(claims)
            self.node.remove(claims)
        return statistics.median(calls)

    def again(self) -> dict[str, float | None]:
        """The kubelet asks again for what is prepared, as after each of its restarts."""
        claims = [self._claim("again", index) for index in range(BATCH)]
        first = self.kubelet.prepare(claims)
        repeats = []
        for _ in range(REPEATS):
            for claim in claims:
                took, ids = _timed(self.kubelet.prepare, [claim])
                repeats.append(took)
                for uid, given in ids.items():
                    if given != first[uid]:
                        raise BenchError(
                            f"claim {uid} was given {first[uid]} first and {given} when asked again"
                        )
        self.kubelet.unprepare(claims)
        self.node.remove(claims)
        return {"prepare_again_p50": statistics.median(repeats)}

    def rest(self) -> dict[str, float | None]:
        """What it costs to have it, long after the last call."""
        time.sleep(min(REST, self.work.idle))
        resident, anonymous = self.program.memory()
        return {
            "resident": resident,
            "anonymous": anonymous,
            "idle_cpu": self.program.cpu(self.work.idle),
        }

    def lost_slices(self) -> dict[str, float | None]:
        """Somebody deletes them; counted from the answer to the last deletion."""
        lost = self.node.slices(self.kubelet.driver)
        known = {item["metadata"]["uid"] for item in lost}

        def are_back() -> bool:
            there = {item["metadata"]["uid"] for item in self.node.slices(self.kubelet.driver)}
            return len(there - known) >= len(lost)

        self.node.delete_slices(lost)
        since = time.perf_counter()
        return {
            "slice_back": self.program.seconds_until(are_back, since=since, patience=SLICE_PATIENCE)
        }

    def _claim(self, name: str, index: int) -> Object:
        place = self.places[index % len(self.places)]
        return self.node.claim(f"{self.node.name}-{name}-{index}", self.kubelet.driver, place)


def _timed(call: Callable[[list[Object]], Answer], claims: list[Object]) -> tuple[float, Answer]:
    """Milliseconds, and what the call said."""
    began = time.perf_counter()
    answer = call(claims)
    return (time.perf_counter() - began) * 1e3, answer
