"""One driver's turn: the same work for every driver, in the same order, in folders and with a node
of its own.
"""

from __future__ import annotations

import contextlib
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

PLACEHOLDERS = ("kubelet", "cdi", "dir", "node", "kubeconfig")
BATCH = 32  # claims in one call, as in the table's title
BATCHES = 5
REPEATS = 3  # of a prepare that has been done
CHECK_EVERY = 20  # claims; the CDI folder is read between measurements, so not at each
REST = 3.0  # seconds from the last call until the driver counts as idle
STATUS_PATIENCE = 5.0
SLICE_PATIENCE = 45.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What takes turns. The command's words may hold PLACEHOLDERS in braces; without a shell."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    claims: int = 300  # prepared one by one; two at least, for a p99
    idle: float = 60.0  # seconds for which the CPU is measured


@dataclass(frozen=True, kw_only=True)
class Cluster:
    api: Api
    kubeconfig: Path


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


def take(driver: Driver, cluster: Cluster, tag: str, work: Work) -> figures.Values:
    """All figures of one turn. `tag` tells its node and claims from those of other turns."""
    with _turn(driver, cluster, f"bench-{driver.name}-{tag}".lower(), work) as turn:
        found = (
            turn.start()
            | turn.one_by_one()
            | turn.many()
            | turn.again()
            | turn.rest()
            | turn.lost_slices()
        )
        return {**found, "stop": turn.program.stop()}


@contextlib.contextmanager
def _turn(driver: Driver, cluster: Cluster, name: str, work: Work) -> Iterator[_Turn]:
    node = Node(cluster.api, name)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="b-")))
        for part in ("plugins", "plugins_registry", "cdi"):
            (folder / part).mkdir()
        node.create()
        stack.callback(node.delete)
        words: dict[str, object] = {"kubelet": folder, "cdi": folder / "cdi", "dir": folder}
        words |= {"node": name, "kubeconfig": cluster.kubeconfig}
        command = [word.format(**words) for word in driver.command]
        kubelet = Kubelet(folder, folder / "cdi")
        program = stack.enter_context(running(command, folder / "log", driver.environment))
        stack.callback(kubelet.close)
        yield _Turn(node=node, kubelet=kubelet, program=program, work=work)


class _Turn:
    def __init__(self, *, node: Node, kubelet: Kubelet, program: Program, work: Work) -> None:
        self.node, self.kubelet, self.program, self.work = node, kubelet, program, work
        self.places: list[Place] = []
        self.slices: list[Object] = []

    def start(self) -> dict[str, float | None]:
        registered = self.program.wait_for("a driver that registers", self.kubelet.register)
        published = self.program.wait_for("ResourceSlices", self._has_slices)
        for item in self.slices:
            self.places += [
                (item["spec"]["pool"]["name"], device["name"]) for device in item["spec"]["devices"]
            ]
        if len(self.places) < BATCH:
            raise BenchError(
                f"the driver publishes {len(self.places)} devices; the work needs {BATCH}"
            )
        return {
            "exec_to_registered": registered,
            "exec_to_slices": published,
            "devices": len(self.places),
        }

    def _has_slices(self) -> bool:
        self.slices = self.node.slices(self.kubelet.driver)
        return bool(self.slices)

    def one_by_one(self) -> dict[str, float | None]:
        prepares, unprepares, reported = [], [], None
        for index in range(self.work.claims):
            claims = [self._claim("one", index)]
            took, ids = _timed(self.kubelet.prepare, claims)
            prepares.append(took)
            if index % CHECK_EVERY == 0:
                self.kubelet.check_prepared(ids)
            if index == 0:
                reported = self._reported(claims[0])
            took, _ = _timed(self.kubelet.unprepare, claims)
            unprepares.append(took)
            if index % CHECK_EVERY == 0:
                self.kubelet.check_gone(claims)
            self.node.remove(claims)
        return {
            "prepare_p50": statistics.median(prepares),
            "prepare_p99": figures.p99(prepares),
            "unprepare_p50": statistics.median(unprepares),
            "status_after_prepare": reported,
        }

    def _reported(self, claim: Object) -> float | None:
        took = self.program.seconds_until(
            lambda: self.node.is_reported(claim),
            since=time.perf_counter(),
            patience=STATUS_PATIENCE,
        )
        return None if took is None else took * 1e3

    def many(self) -> dict[str, float | None]:
        """All claims of a pod, or of several, in one call."""
        calls = []
        for number in range(BATCHES):
            claims = [self._claim(f"many-{number}", index) for index in range(BATCH)]
            took, ids = _timed(self.kubelet.prepare, claims)
            calls.append(took)
            self.kubelet.check_prepared(ids)
            self.kubelet.unprepare(claims)
            self.kubelet.check_gone(claims)
            self.node.remove(claims)
        return {"prepare_batch": statistics.median(calls)}

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
