"""Death at every step: a real claimd is killed, or meets an error of the disk, at the Nth call of
each kind in each scenario; then it starts again, the kubelet tries again, and the observer looks.

A point is SCENARIO/CALL/N/kill or SCENARIO/CALL@PATH/N/ERROR (N+: from then on). Which N there are
is seen in a run without trouble. Power loss is another campaign.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from claimd.node import folder_watch

from . import scenarios, strace
from .stage import EARLY, PREPARING, UNDOING, UNPREPARING, Stage
from .world import Broken, Claimd, World

CALLS = f"{strace.STORING},{strace.TALKING}"
DIED, MISSED, SURVIVED, ENDED = "died", "missed", "survived an error", "ended with a message"
ERRORS = {
    "openat": ("ENOSPC", "EROFS", "EIO"),
    "write": ("ENOSPC", "EIO"),
    "pwrite64": ("ENOSPC", "EIO"),
    "fsync": ("EIO", "ENOSPC"),
    "rename": ("ENOSPC", "EROFS", "EIO"),
    "unlink": ("EROFS", "EIO"),
    "mkdir": ("ENOSPC", "EROFS"),
    "flock": ("ENOLCK",),
}
PID = "{pid}"


@dataclass(frozen=True, kw_only=True)
class Point:
    scenario: str
    call: str
    path: str  # within the world's folder; "" for any
    when: str
    trouble: str

    @classmethod
    def parse(cls, text: str) -> Point:
        scenario, rest = text.split("/", 1)
        what, when, trouble = rest.rsplit("/", 2)
        call, _, path = what.partition("@")
        return cls(scenario=scenario, call=call, path=path, when=when, trouble=trouble)

    def __str__(self) -> str:
        return f"{self.scenario}/{self.call}{'@' if self.path else ''}{self.path}/{self.when}/{self.trouble}"

    @property
    def inject(self) -> str:
        kind = "signal=SIGKILL" if self.trouble == "kill" else f"error={self.trouble}"
        return f"{self.call}:{kind}:when={self.when}"


async def points(
    world: World, seed: int, names: Iterable[str] = tuple(scenarios.SCENARIOS)
) -> list[str]:
    """All that there are in the scenarios of these names, in an order by the seed."""
    points_: list[str] = []
    for scenario in (scenarios.SCENARIOS[name] for name in names):
        log = world.folder / "strace"
        async with _acted(world, scenario, log, None) as (stage, _):
            end = time.time()
        await stage.recover()
        await stage.wind_down()
        if stage.claimd.traced:
            await stage.claimd.kill()
            await strace.finished(log, stage.claimd.process.pid)
        points_ += _points(scenario, [call for call in strace.read(log) if call.time < end], world)
    random.Random(seed).shuffle(points_)
    return points_


def _points(scenario: scenarios.Scenario, calls: list[strace.Call], world: World) -> Iterator[str]:
    ordinals: Counter[tuple[int, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    kills: set[tuple[str, int]] = set()
    for call in calls:
        ordinals[call.thread, call.name] += 1
        path = strace.path(call)
        ours = path.startswith(f"{world.folder}/")
        if ours or call.name not in ("openat", "close"):
            kills.add((call.name, ordinals[call.thread, call.name]))
        if ours and call.name in ERRORS:
            times[call.name, path.removeprefix(f"{world.folder}/")] += 1
    for name, number in sorted(kills):
        yield str(
            Point(scenario=scenario.name, call=name, path="", when=str(number), trouble="kill")
        )
    for (name, path), count in sorted(times.items()):
        if path.startswith(("fake/", "log", "kubeconfig")):
            continue
        if re.search(r"/[0-9a-f]{32}$|\.[0-9a-f]{32}$", path):
            continue  # named after an instance that has a new name at each start
        tail = path.rpartition(".")[2]
        known = (
            path
            if not (path.startswith("cdi/.") and tail.isdigit())
            else path.removesuffix(tail) + PID
        )
        if known.endswith(PID) and scenario.starts:
            continue  # its number is not known beforehand
        whens = [str(number) for number in range(1, min(count, 3) + 1)]
        for when in whens if scenario.starts else [*whens, "1+"]:
            for error in ERRORS[name]:
                yield str(
                    Point(scenario=scenario.name, call=name, path=known, when=when, trouble=error)
                )


@contextlib.asynccontextmanager
async def _acted(
    world: World, scenario: scenarios.Scenario, log: Path, point: Point | None
) -> AsyncIterator[tuple[Stage, Claimd]]:
    """The scenario, traced to its end; and who was traced."""
    log.unlink(missing_ok=True)
    stage = Stage(world=world, claimd=await _idle(world))
    stage.beside = await _neighbour(world, wanted=scenario.beside)
    if point and point.trouble != "kill":
        stage.patience = 3.0
    if scenario.beside:
        stage.patience = 2 * folder_watch.GLANCE_INTERVAL  # the one that publishes looks meanwhile
    await scenario.before(stage)
    inject = point.inject if point else ""
    paths = [f"{world.folder}/{point.path}"] if point and point.path else []
    if scenario.starts:
        if not scenario.pod_uid:
            await stage.claimd.kill()
        stage.claimd = victim = await world.start(
            scenario.pod_uid,
            tracer=strace.command(log, calls=CALLS, inject=inject, paths=paths, fast=not inject),
        )
        await scenario.act(stage)
        if inject and not victim.dead:
            await strace.let_go(victim.process.pid)
        yield stage, victim
        return
    victim = stage.claimd
    paths = [path.replace(PID, str(victim.process.pid)) for path in paths]
    async with strace.attached(victim.process.pid, log, calls=CALLS, inject=inject, paths=paths):
        await scenario.act(stage)
    yield stage, victim


async def _idle(world: World) -> Claimd:
    """A process without a pod's uid that serves; the one of the last point if it does."""
    for claimd in world.running:
        if not claimd.dead and not claimd.pod_uid and not claimd.traced:
            return claimd
    await world.end()
    claimd = await world.start()
    if not await claimd.register():
        raise Broken("claimd does not start")
    await claimd.until(world.published, "the slices")
    return claimd


async def _neighbour(world: World, *, wanted: bool) -> Claimd | None:
    """The instance that lives beside the one that may die. Without it, it is ended."""
    for claimd in world.running:
        if claimd.pod_uid == scenarios.BESIDE and not claimd.dead:
            if wanted:
                return claimd
            await claimd.stop()
    if not wanted:
        return None
    claimd = await world.start(scenarios.BESIDE)
    if not await claimd.register():
        raise Broken("the instance beside it does not start")
    return claimd


async def attempt(world: World, text: str) -> str:
    """What became of this point. Broken if a promise was not kept; whatever runs then is ended."""
    point = Point.parse(text)
    world.forget()
    try:
        return await _attempt(world, point)
    except Broken as broken:
        await world.end()
        kept = world.tail()
        world.clean()
        raise Broken(f"{broken}\n  its log ends:\n    " + kept.replace("\n", "\n    ")) from None


async def _attempt(world: World, point: Point) -> str:
    scenario = scenarios.SCENARIOS[point.scenario]
    (world.folder / "log").write_bytes(b"")
    async with _acted(world, scenario, world.folder / "strace", point) as (stage, victim):
        if victim.dead:
            await victim.kill()  # until its code is known
        code = victim.code
    killed = code in (-9, 255)  # asyncio says 255 where it could not wait for the process
    outcome = (
        (DIED if killed else MISSED) if point.trouble == "kill" else _survived(world, stage, victim)
    )
    if point.call == "unlink" and point.path.endswith((".new", ".gone")) and outcome != DIED:
        await stage.claimd.kill()  # what could not be swept is swept at the next start
    if (
        scenario.starts
        and not victim.dead
        and not stage.uids(PREPARING, UNPREPARING, EARLY, UNDOING)
    ):
        await stage.observe()  # nobody asks for what runs: a start has to see to it by itself
    await stage.recover()
    await stage.wind_down()
    if stage.claimd.pod_uid or stage.claimd.traced:
        await stage.claimd.kill()
    return outcome


def _survived(world: World, stage: Stage, victim: Claimd) -> str:
    log = world.folder / "log"
    if "(INJECTED)" not in (world.folder / "strace").read_text(errors="replace"):
        return MISSED
    text = log.read_text(errors="replace")
    if "Traceback" in text:
        raise Broken("an error of the disk gave a stack trace")
    code = victim.code
    if code not in (None, 0) and not (code == 1 and "claimd: " in text):
        raise Broken(f"an error of the disk ended claimd with {code}")
    if any("unexpected trouble" in error for error in stage.errors):
        raise Broken(f"an error of the disk was unexpected: {stage.errors}")
    return SURVIVED if code in (None, 0) else ENDED
