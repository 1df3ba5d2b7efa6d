"""Power loss: what a recording's processes did is replayed up to every step, what was not synced is
left out in part, and claimd starts on what remains, after a boot that gave every device another
number. Then the kubelet tries again.

claimd is built here as `claimd run` builds it, but runs in this process, one after the other. A
point is RECORDING/STEP/VARIANT; of the variants, the first has all that was written, the second
nothing that was not synced. In half of the variants two instances start, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from claimd.common import names
from claimd.node import app, config
from claimd.node.prepare import cdi
from claimd.node.prepared import ClaimRef, PreparedClaim
from claimd.node.report import status
from claimd_devices.gpu import Gpu, Inventory
from tests.support import apiserver, drivers
from tests.support.worlds import DRIVER, NODE

from . import disk
from .recording import Recording
from .scenarios import NEW, OLD
from .stage import IDLE, Stage
from .world import FOREIGN, PATIENCE, Broken, Devices, Object, World

SURVIVED, SAME = "survived", "the same as another"
RENUMBERED = 64  # what is added to every minor by the boot


@dataclasses.dataclass(frozen=True)
class Hardware:
    """What the kernel shows; it does not change within a point."""

    last: Inventory

    async def rescan(self) -> Inventory:
        return self.last


def points(recordings: Iterable[Recording], variants: int, seed: int) -> list[str]:
    """Every step that changes or syncs something, and the end, in so many variants, in an order by
    the seed.
    """
    points_ = [
        f"{recording.name}/{step}/{variant}"
        for recording in recordings
        for step in _steps(recording)
        for variant in range(variants)
    ]
    random.Random(seed).shuffle(points_)
    return points_


def _steps(recording: Recording) -> list[int]:
    ground = next(number for number, step in enumerate(recording.steps) if step[1] == "settled")
    changing = [
        n for n, (_, what, *given) in enumerate(recording.steps) if what != "open" or given[2]
    ]
    return [number for number in changing if number > ground] + [len(recording.steps)]


def tree(recording: Recording, step: int, variant: int, seed: int) -> disk.Tree:
    dice = random.Random(f"{seed}/{recording.name}/{step}/{variant}")
    kept = 1.0 if variant % 2 == 0 else 0.0
    if variant < 2:
        choice = disk.Chooser(entries=kept, data=kept, random=dice)
    elif variant < 6:  # one change of an entry goes the other way, of the newest ones
        choice = disk.Chooser(entries=kept, data=kept, random=dice)
        recording.disk_at(step).remains(choice)
        choice = disk.Chooser(
            entries=kept, data=dice.random(), random=dice, skip=choice.counted - variant // 2
        )
    else:
        choice = disk.Chooser(entries=dice.choice([0.2, 0.5, 0.8]), data=dice.random(), random=dice)
    return recording.disk_at(step).remains(choice)


class Bench:
    """Where the points are tried: one world, in which every point has its folders."""

    def __init__(self, world: World, recordings: Iterable[Recording], seed: int) -> None:
        self.world, self.seed = world, seed
        self.recordings = {recording.name: recording for recording in recordings}
        self._boot = NextBoot(world)
        self._seen: set[str] = set()
        self._number = 0

    async def attempt(self, point: str) -> str:
        name, step, variant = point.rsplit("/", 2)
        recording = self.recordings[name]
        left = tree(recording, int(step), int(variant), self.seed)
        states = recording.states_at(int(step))
        key = hashlib.sha256(repr((left, sorted(states.items()))).encode()).hexdigest()
        if key in self._seen:
            return SAME
        self._seen.add(key)
        folder = self.world.folder / f"p{self._number}"
        self._number += 1
        disk.lay_out(left, folder)
        has_two = int(variant) % 4 in (1, 2)
        try:
            await self._boot.check(folder, recording.claims, states, has_two=has_two)
        except Broken as broken:
            raise Broken(
                f"{broken}\n  the kubelet knew: {states}\n  on the disk was:\n{_shown(left)}"
            ) from None
        finally:
            shutil.rmtree(folder)
        return SURVIVED


class NextBoot:
    """Starts claimd on what a loss of power has left, and checks that the promises hold.

    The world keeps nothing of a start. `as_process` starts real processes, and not claimd's objects
    in this process.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._inventory = Inventory.from_unsorted(_renumbered(gpu) for gpu in world.gpus)

    async def check(
        self,
        folder: Path,
        claims: Mapping[str, int],
        states: Mapping[str, str],
        *,
        has_two: bool,
        as_process: bool = False,
    ) -> None:
        """Raises Broken unless claimd keeps its promises on the folders `kubelet` and `cdi`.

        `claims` has the GPU of each claim, and `states` has what the kubelet knew. With `has_two`, a
        second instance starts after the first.
        """
        world = self.world
        world.kubelet, world.cdi = folder / "kubelet", folder / "cdi"
        world.plugin = names.plugin_folder(world.kubelet, DRIVER)
        (world.kubelet / "plugins").mkdir(parents=True, exist_ok=True)
        world.cdi.mkdir(exist_ok=True)
        (world.cdi / FOREIGN).write_text("{}")
        stage = Stage(world=world, claimd=None)  # type: ignore[arg-type]  # set at once
        for name, index in claims.items():
            if states.get(name, IDLE) != IDLE:
                stage.claim(name, index)
                stage.states[name] = states[name]
        start = self._process if as_process else self._in_process
        try:
            async with contextlib.AsyncExitStack() as stack:
                stage.claimd = await stack.enter_async_context(start(NEW))
                if has_two:
                    stage.beside = await stack.enter_async_context(start(OLD))
                await stage.observe()
                if isinstance(stage.claimd, InProcess):
                    stage.claimd.check(stage)
                await stage.retry()
                await stage.observe()
                await stage.wind_down()
        finally:
            self.world.forget()

    @contextlib.asynccontextmanager
    async def _process(self, pod_uid: str) -> AsyncIterator[Any]:
        claimd = await self.world.start(pod_uid)
        try:
            if not await claimd.register():
                raise Broken(f"claimd does not start:\n{self.world.tail()}")
            yield claimd
        finally:
            await claimd.kill()

    @contextlib.asynccontextmanager
    async def _in_process(self, pod_uid: str) -> AsyncIterator[Any]:
        world = self.world
        settings = config.Config(
            node_name=NODE,
            pod_uid=pod_uid,
            kubelet_dir=world.kubelet,
            cdi_dir=world.cdi,
            root=str(world.folder / "fake"),
            kubeconfig=str(world.folder / "kubeconfig"),
        )
        built = app.build(settings)
        built.driver.claims.hardware.watch = Hardware(self._inventory)
        built.reports.inventory = lambda: self._inventory
        status.OTHERS_TURN = 0.05  # who owed something has died with the power
        built.instance.enter()
        reporting = asyncio.ensure_future(built.reporter.run())
        try:
            try:
                await built.driver.claims.restorer.restore()
                await built.reports.catch_up()
                built.instance.on_registered()
            except Exception as error:
                raise Broken(f"claimd does not start: {error!r}") from error
            yield InProcess(built, self._inventory)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            await built.client.close()
            built.instance.leave()


class InProcess:
    """The kubelet's view of a claimd in this process; as world.Claimd, without gRPC."""

    dead, pod_uid = False, ""

    def __init__(self, built: app.App, inventory: Inventory) -> None:
        self._built, self._inventory = built, inventory

    async def prepare(self, *claims: Object, timeout: float = 30.0) -> dict[str, Devices | str]:
        deadline = asyncio.get_running_loop().time() + timeout
        answers = await drivers.prepare(
            self._built.driver, [_ref(claim) for claim in claims], deadline
        )
        return {
            claim["metadata"]["name"]: _given(answers[claim["metadata"]["uid"]]) for claim in claims
        }

    async def unprepare(self, *claims: Object) -> dict[str, str]:
        answers = await drivers.unprepare(self._built.driver, [_ref(claim) for claim in claims])
        return {
            claim["metadata"]["name"]: answers[claim["metadata"]["uid"]] or "" for claim in claims
        }

    async def until(self, fact: Callable[[], object], what: str) -> None:
        try:
            await apiserver.until(fact, PATIENCE)
        except AssertionError:
            raise Broken(f"{what} has not come about in {PATIENCE:g} s") from None

    def check(self, stage: Stage) -> None:
        """After the start: who is prepared has the GPU that it was given, under its new numbers."""
        for name, index in stage.claims.items():
            prepared = self._built.reports.checkpoints.claims.get(f"uid-{name}")
            if prepared is None:
                continue
            if [device.device for device in prepared.devices] != [stage.world.gpus[index].name]:
                raise Broken(f"claim {name} is recorded with {prepared.devices}")
            path = stage.world.cdi / names.cdi_file(DRIVER, prepared.uid)
            mounts = self._built.driver.claims.files.metadata.mounts(prepared)
            if path.read_bytes() != cdi.build(prepared, self._inventory, metadata=mounts):
                raise Broken(f"the CDI file of claim {name} is not of this boot")


def _ref(claim: Object) -> ClaimRef:
    meta = claim["metadata"]
    return ClaimRef(meta["namespace"], meta["name"], meta["uid"])


def _given(answer: PreparedClaim | str) -> Devices | str:
    if isinstance(answer, str):
        return answer
    return tuple(
        (d.device, (names.cdi_id(answer.uid, d.device, d.share_id),)) for d in answer.devices
    )


def _renumbered(gpu: Gpu) -> Gpu:
    nodes = tuple(dataclasses.replace(node, minor=node.minor + RENUMBERED) for node in gpu.nodes)
    return dataclasses.replace(gpu, nodes=nodes)


def _shown(tree_: disk.Tree, indent: str = "    ") -> str:
    lines = []
    for name, below in tree_.items():
        if isinstance(below, bytes):
            lines.append(f"{indent}{name}, {len(below)} bytes")
        else:
            lines += [f"{indent}{name}/", _shown(below, indent + "  ")]
    return "\n".join(line for line in lines if line)
