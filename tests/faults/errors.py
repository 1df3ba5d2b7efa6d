"""The campaign of errors: calls of real `claimd run` processes fail, one after the other, and after
each the rule of `errors_node` must hold.

An error is PHASE/TREE/CALL/ERROR/SKIP/TIMES: in this phase, of the calls of this kind about this
tree, so many succeed and then so many fail. Each life has two instances and ends after some errors;
each GPU that is asked for is asked for by two claims, one at each instance. What `shim` does not
reach, this does not reach either. An order that a process meets no call for is not counted.

    python -m tests.faults.errors --count 20000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import progress

from . import shim
from .errors_node import BRIEF, PODS, SOON, ErrorWorld, Node
from .world import FOR_MACHINES, Broken, world
from .zygote import Zygote

ERRORS = ("EIO", "EMFILE", "ENFILE", "ENOMEM", "ESTALE", "EDQUOT", "EINTR")
OURS = ("EMFILE", "ENFILE", "ENOMEM", "EINTR")  # they say nothing about the file
TREES = ("hardware", "cdi", "checkpoints", "kubelet", "api", "process")
MANY = 1 << 40  # more calls than there are
ROUNDS = 60  # in a life
TRIES = 6  # orders after which a place is left out where errors are seldom met
AT_ONCE = 10  # lives: much of their time is waiting
STARTING = 1.5  # seconds after which a start that fails again and again is let succeed

Phase = Callable[["Life", shim.Fault], Awaitable[None]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """An error, and the phase in which it is ordered."""

    phase: str
    fault: shim.Fault

    @classmethod
    def parse(cls, text: str) -> Point:
        phase, tree, call, error, skip, times = text.split("/")
        fault = shim.Fault(call=call, tree=tree, error=error, skip=int(skip), times=int(times))
        return cls(phase=phase, fault=fault)

    def __str__(self) -> str:
        fault = self.fault
        return "/".join(
            map(
                str,
                (self.phase, fault.tree, fault.call, fault.error, fault.skip, fault.times),
            )
        )


class Plan:
    """Which error comes next, by the dice: all combinations of a phase once, then all again."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

        # By phase, tree and call: how many calls there were in a round without an error, how many
        # errors were ordered, and how many of these were met.
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._ordered: Counter[tuple[str, str, str]] = Counter()
        self._met: Counter[tuple[str, str, str]] = Counter()
        self._left: dict[str, list[tuple[str, str, str]]] = {phase: [] for phase in PHASES}
        self._phases = list(PHASES) * 2

    def learn(self, phase: str, counts: dict[tuple[str, str], int]) -> None:
        """Notes how many calls there were in a round without an error."""
        for (tree, call), count in counts.items():
            if tree in TREES:
                self._seen[phase, tree, call] = max(self._seen[phase, tree, call], count)

    def next_phase(self) -> str:
        """Returns each phase once, and then some more often than others."""
        return self._phases.pop() if self._phases else self.dice.choice(REPEATED)

    def note(self, point: Point, is_met: bool) -> None:
        key = point.phase, point.fault.tree, point.fault.call
        self._ordered[key] += 1
        self._met[key] += is_met

    def next(self, phase: str) -> Point:
        if phase == "limit":
            return Point(phase=phase, fault=self._next_limit())
        left = self._left[phase]
        if not left:
            for key in sorted(key for key in self._seen if key[0] == phase and self._is_usual(key)):
                _, tree, call = key
                errors = ("EAGAIN", "ENOMEM") if call == "clone" else ERRORS
                left += [(tree, call, error) for error in errors]
            self.dice.shuffle(left)
        tree, call, error = left.pop()

        # Early calls are made each time, the last ones only sometimes.
        skip = int(self._seen[phase, tree, call] * self.dice.random() ** 3)
        times = self._times(tree, error)
        fault = shim.Fault(call=call, tree=tree, error=error, skip=skip, times=times)
        return Point(phase=phase, fault=fault)

    def _is_usual(self, key: tuple[str, str, str]) -> bool:
        """Whether an error in this place has a fair chance to be met."""
        return self._ordered[key] < TRIES or self._met[key] > self._ordered[key] / 4

    def _next_limit(self) -> shim.Fault:
        """Returns what a process may still have, as `skip`: descriptors, or bytes."""
        if self.dice.random() < 0.5:
            room = self.dice.randrange(12)
            return shim.Fault(call="limit", tree="files", error="EMFILE", skip=room)
        room = self.dice.choice((0, 1 << 16, 1 << 18, 1 << 20, 1 << 21, 1 << 23, 1 << 25))
        return shim.Fault(call="limit", tree="memory", error="ENOMEM", skip=room)

    def _times(self, tree: str, error: str) -> int:
        """Nobody is interrupted for ever. Files of a GPU that stay unreadable are a fault of it."""
        if error == "EINTR" or (tree == "hardware" and error not in OURS):
            return self.dice.choice((1, 1, 1, 2))
        return self.dice.choice((1, 1, 1, 2, MANY))


class Life:
    """Two instances on one node, and errors one after the other."""

    def __init__(self, campaign: Campaign, world_: ErrorWorld) -> None:
        self.campaign, self.plan = campaign, campaign.plan
        self.node = Node(world_)
        self.log: list[str] = []  # the errors so far
        self._second = NOTHING  # the error that the other instance meets in the same round
        self.victim = PODS[0]
        self._wanted: list[Any] = []  # the devices of all slices

    @property
    def page(self) -> shim.Page:
        return self.node.world.pages[self.victim]

    @property
    def other(self) -> str:
        return PODS[1 - PODS.index(self.victim)]

    async def live(self, points: list[Point]) -> None:
        """Tries these errors, or those of the plan."""
        try:
            await self._begin()
            for point in points or self._planned():
                await self.suffer(point)
            await self.node.published(self._wanted)
            await self.node.end()
        finally:
            await self.node.close()

    def _planned(self) -> Iterator[Point]:
        for _ in range(ROUNDS):
            if self.campaign.is_over():
                return
            yield self.plan.next(self.plan.next_phase())

    async def _begin(self) -> None:
        for pod in PODS:
            self.node.world.pages[pod].count()
            await self.node.start(pod)
        name = self.node.new_claim(0)
        await self.node.settle({name: PODS[0]}, 0, {})
        patience = progress.Patience(30.0)
        while not self._wanted and not patience.over():
            self._wanted = self.node.slices()
            await asyncio.sleep(0.02)

    async def suffer(self, point: Point) -> None:
        """An error in one instance, mostly one in the other as well, and what must hold then."""
        self.log.append(str(point))
        if point.phase in ("publish", "register"):
            self.victim = self.node.publisher
        else:
            self.victim = self.plan.dice.choice(PODS)
        orders = {self.victim: point}
        if self.campaign.has_two and point.phase in TOGETHER and point.fault is not NOTHING:
            orders[self.other] = self.plan.next(point.phase)
            self.log[-1] += f" and {orders[self.other]}"
        self._second = orders[self.other].fault if self.other in orders else NOTHING

        await PHASES[point.phase](self, point.fault)
        self._disarm()
        ends = self.node.take_ends()
        for pod, order in orders.items():
            self._note(order, self.node.world.pages[pod], ends[0] if ends else "answered again")
        self.node.check()
        self.campaign.rounds += 1
        progress.moved()

    def _note(self, point: Point, page: shim.Page, end: str) -> None:
        if point.fault is not NOTHING:
            self.plan.note(point, page.failed > 0)
        if page.failed or point.phase == "limit":
            self.campaign.count(point, page.failed, end)
        else:
            self.plan.learn(point.phase, page.counts())
            self.campaign.missed += point.fault is not NOTHING

    async def _arm(self, fault: shim.Fault) -> None:
        """Orders the errors. Those of the kubelet's sockets need connections that are new."""
        if "kubelet" in (fault.tree, self._second.tree):
            await self.node.reconnect()
        self.page.arm(fault if fault.call != "limit" else NOTHING)
        self.node.world.pages[self.other].arm(self._second)

    def _disarm(self) -> None:
        for page in self.node.world.pages.values():
            page.disarm()

    # ------------------------------------------------------------------ the phases

    async def start(self, fault: shim.Fault) -> None:
        """The instance dies or ends, and another starts while its neighbour lives."""
        node = self.node
        if self.plan.dice.random() < 0.5:
            await node.instances[self.victim].kill()
        else:
            await node.stop(self.victim)
        await self._arm(fault)
        healing = asyncio.get_running_loop().call_later(STARTING, self._disarm)
        try:
            await node.start(self.victim)
        finally:
            healing.cancel()
        self._disarm()
        await node.still_prepared(self.victim, 0)

    async def prepare(self, fault: shim.Fault) -> None:
        """Two claims ask for a GPU, one at each instance, in the same moment."""
        index = await self._free()
        pods = self._rivals(index)
        await self._arm(fault)
        answers = await self._ask(pods, index)
        if fault.tree == "api":
            await self._wait_for_error()  # the status is reported after the answer
        self._disarm()
        await self.node.settle(pods, index, answers)

    def _rivals(self, index: int) -> dict[str, str]:
        """Returns two claims for a GPU, with the instance that each is prepared by."""
        return {self.node.new_claim(index): pod for pod in (self.victim, self.other)}

    async def _ask(self, pods: dict[str, str], index: int) -> dict[str, Any]:
        asked = [self.node.call(pod, "prepare", name, index, BRIEF) for name, pod in pods.items()]
        return dict(zip(pods, await asyncio.gather(*asked), strict=True))

    async def unprepare(self, fault: shim.Fault) -> None:
        """A claim is given back while its successor asks for the GPU."""
        node, index = self.node, await self._held()
        name = node.holders[index]
        node.running.pop(name, None)
        successor = node.new_claim(index)
        await self._arm(fault)
        _, early = await asyncio.gather(
            node.call(self.victim, "unprepare", name, index, BRIEF),
            node.call(self.other, "prepare", successor, index, BRIEF),
        )
        if fault.tree == "api":
            await self._wait_for_error()
        self._disarm()
        # Even after an error the GPU may be free: the checkpoint is gone, but not durably. The other
        # instance makes that durable first.
        del node.holders[index]
        await node.unprepared(self.victim, name, index)
        await node.settle({successor: self.other}, index, {successor: early})

    async def repeat(self, fault: shim.Fault) -> None:
        """A claim that is prepared is asked for, as for a container's restart; so is its rival."""
        index = await self._held()
        rival = self.node.new_claim(index)
        await self._arm(fault)
        holder = self.node.holders[index]
        _, given = await asyncio.gather(
            self.node.call(self.victim, "prepare", holder, index, BRIEF),
            self.node.call(self.other, "prepare", rival, index, BRIEF),
        )
        self._disarm()
        if isinstance(given, tuple):
            raise Broken(f"GPU {index} of {holder} was given to {rival}")
        await self.node.unprepared(self.other, rival, index)
        await self.node.still_prepared(self.victim, index)

    async def scan(self, fault: shim.Fault) -> None:
        """The kernel tells of a change, during and after the fault."""
        await self._arm(fault)
        self.node.tell_of_hardware()
        await self._wait_for_error()
        self._disarm()
        self.node.tell_of_hardware()
        await self.node.still_prepared(self.victim, 0)

    async def repair(self, fault: shim.Fault) -> None:
        """Somebody else changes the CDI file of a running pod, and the fault meets the repair."""
        node = self.node
        path = node.path(node.holders[0])
        right = path.read_bytes()
        await self._arm(fault)
        path.write_bytes(b"{}")
        await self._wait_for_error(2.0)
        self._disarm()
        patience = progress.Patience(30.0)
        while path.read_bytes() != right:
            if patience.over():
                raise Broken("the CDI file that somebody has changed is not put right")
            await asyncio.sleep(0.02)
        await node.still_prepared(self.victim, 0)

    async def publish(self, fault: shim.Fault) -> None:
        """Somebody deletes a slice, and the fault meets its return."""
        await self._arm(fault)
        self.node.wipe_a_slice()
        await self._wait_for_error()
        self._disarm()
        await self.node.published(self._wanted)

    async def register(self, fault: shim.Fault) -> None:
        """The kubelet starts again, and registers who it finds."""
        await self._arm(fault)
        await self.node.try_to_register(self.victim)
        self._disarm()
        await self.node.registered(self.victim)

    async def limit(self, fault: shim.Fault) -> None:
        """The process may have no more descriptors, or hardly any memory, while two claims ask."""
        index = await self._free()
        pods = self._rivals(index)
        process = self.node.instances[self.victim].process.pid
        kind = _LIMITS[fault.tree]
        now = _descriptors(process) if fault.tree == "files" else _memory(process)
        before = resource.prlimit(process, kind)
        await self._arm(fault)
        resource.prlimit(process, kind, (now + fault.skip, before[1]))
        try:
            answers = await self._ask(pods, index)
        finally:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process, kind, before)
        await self.node.settle(pods, index, answers)

    async def stop(self, fault: shim.Fault) -> None:
        """The fault meets the end; the next instance does what is left."""
        await self._arm(fault)
        await self.node.stop(self.victim)
        page, failed = self.page, self.page.failed
        page.disarm()
        await self.node.start(self.victim)
        assert page.failed == failed, "the next process has met the fault"
        await self.node.still_prepared(self.victim, 0)

    async def _wait_for_error(self, seconds: float = SOON) -> None:
        """Gives work in the background time to meet the fault."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.page.failed:
            await asyncio.sleep(0.01)

    async def _free(self) -> int:
        """Returns the index of a GPU that nobody has; one is given back if there is none."""
        node = self.node
        free = [index for index in range(FOR_MACHINES + 1) if index not in node.holders]
        if free:
            return self.plan.dice.choice(free)
        index = await self._held()
        name = node.holders.pop(index)
        node.running.pop(name, None)
        await node.unprepared(self.other, name, index)
        return index

    async def _held(self) -> int:
        """Returns the index of a GPU that somebody has, but not the one that stays taken."""
        held = [index for index in self.node.holders if index != 0]
        if held:
            return self.plan.dice.choice(held)
        index = await self._free()
        await self.node.settle(self._rivals(index), index, {})
        return index


# Nobody meets this.
NOTHING = shim.Fault(call="clone", tree="", error="EIO")

PHASES: dict[str, Phase] = {
    phase.__name__: phase
    for phase in (
        *(Life.start, Life.prepare, Life.unprepare, Life.repeat, Life.scan, Life.repair),
        *(Life.publish, Life.register, Life.limit, Life.stop),
    )
}
# Phases in which the other instance may meet an error of its own.
TOGETHER = ("prepare", "unprepare", "repeat", "scan", "repair")

# Calls cost little time. A start costs the most, and the others wait for work in the background.
REPEATED = (
    *("prepare",) * 10,
    *("unprepare",) * 10,
    *("repeat",) * 6,
    *("scan",) * 4,
    *("start", "start", "start", "repair", "repair", "publish", "publish", "register", "register"),
    *("limit", "limit", "stop"),
)
_LIMITS = {"files": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_AS}


def _descriptors(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def _memory(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()


class Campaign:
    """What was tried, and what came of it."""

    def __init__(self, seed: int, count: int, *, has_two: bool = True) -> None:
        """With `has_two`, both instances meet errors in one round where that is possible."""
        self.seed, self.wanted, self.has_two = seed, count, has_two
        self.plan = Plan(seed)
        self.table: Counter[tuple[str, str, str, str]] = Counter()  # by phase, tree, call, error
        self.ends: Counter[str] = Counter()
        self.calls = 0  # all that have failed: an error may last
        self.missed = 0
        self.lives = self.rounds = 0
        self.broken: list[str] = []

    def count(self, point: Point, calls: int, end: str) -> None:
        fault = point.fault
        self.table[point.phase, fault.tree, fault.call, fault.error] += 1
        self.calls += calls
        self.ends[end] += 1

    @property
    def tried(self) -> int:
        return self.table.total()

    def is_over(self) -> bool:
        return self.tried >= self.wanted

    def stop(self) -> None:
        """Ends the campaign after the errors that are under way."""
        print("to be stopped", flush=True)
        self.wanted = 0

    async def run(self, lives: int = AT_ONCE) -> None:
        """Lives side by side, until there were enough errors. The first one meets none, and shows
        which calls there are in each phase.
        """
        phases = [phase for phase in PHASES if phase != "limit"]
        async with Zygote() as zygote:
            await self._live(zygote, [Point(phase=phase, fault=NOTHING) for phase in phases * 2])
            await asyncio.gather(*(self._live(zygote, []) for _ in range(lives)))

    async def _live(self, zygote: Zygote, points: list[Point]) -> None:
        kind = functools.partial(ErrorWorld, zygote=zygote)
        while not self.is_over():
            async with world(kind) as world_:
                life = Life(self, world_)
                try:
                    await life.live(points)
                    self.lives += 1
                    if not points:
                        print(f"{self.tried} errors, {len(self.broken)} broken", flush=True)
                except Broken as broken:
                    self.note(life, f"{broken}\n  its log ends:\n{world_.tail(25)}")
                if points:
                    return

    async def only(self, points: list[Point], times: int) -> None:
        """Tries these errors alone, so many times."""
        async with Zygote() as zygote:
            for _ in range(times):
                await self._live(zygote, points)

    def note(self, life: Life, why: str) -> None:
        again = f"python -m tests.faults.errors --only '{life.log[-1] if life.log else ''}'"
        before = ", ".join(life.log[-6:-1])
        self.broken.append(
            f"BROKEN at {self.tried} of seed {self.seed}: {why}\n  again: {again}\n  before: {before}"
        )
        print(self.broken[-1], flush=True)

    def report(self, seconds: float) -> str:
        """Returns the table by call and error, and by phase and tree."""
        lines = _table(self.table, lambda key: key[2], lambda key: key[3])
        lines += ["", *_table(self.table, lambda key: key[0], lambda key: key[1]), ""]
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.most_common())
        lines.append(
            f"{self.tried} errors in {self.rounds} rounds of {self.lives} lives ({self.calls} calls failed, {self.missed} "
            f"orders met none): {ends}; {len(self.broken)} broken; seed {self.seed}, {seconds:.0f} s"
        )
        return "\n".join(lines)


def _table(
    table: Counter[tuple[str, str, str, str]],
    row: Callable[[tuple[str, str, str, str]], str],
    column: Callable[[tuple[str, str, str, str]], str],
) -> list[str]:
    cells: Counter[tuple[str, str]] = Counter()
    for key, count in table.items():
        cells[row(key), column(key)] += count
    rows = sorted({name for name, _ in cells})
    columns = sorted({name for _, name in cells})
    lines = ["| | " + " | ".join(columns) + " | all |", "| --- |" + " ---: |" * (len(columns) + 1)]
    for name in rows:
        counts = [cells[name, other] for other in columns]
        lines.append(f"| {name} | " + " | ".join(map(str, [*counts, sum(counts)])) + " |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.errors", description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="so many errors (default: 20000)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the order")
    parser.add_argument("--only", action="append", type=Point.parse, help="this error alone")
    parser.add_argument("--times", type=int, default=10, help="how often, with --only")
    asked = parser.parse_args()
    began = time.monotonic()
    campaign = Campaign(asked.seed, asked.count, has_two=not asked.only)
    work = campaign.only(asked.only, asked.times) if asked.only else campaign.run()

    # A signal ends it after the errors that are under way, so that there is a report.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: campaign.stop())
    asyncio.run(work)
    print(campaign.report(time.monotonic() - began))
    return 1 if campaign.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
