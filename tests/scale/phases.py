"""What a fleet goes through, a function a phase. Each adds a row to the stage, or raises a
BenchError if something is lost or does not come about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.bench.api import Object
from tests.bench.errors import BenchError

from . import fleet, kubelets, measure
from .cluster import OTHERS
from .reader import CLAIMS, SLICES, StatusWatch
from .stage import Row, Stage, say

RECOVERY = 240.0  # seconds until a fleet must watch again
ARRIVAL = 60.0  # seconds without a report after which it is lost


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long, and how much."""

    alone: float = 20.0  # seconds
    rest: float = 660.0  # seconds; a watch lives for ten minutes at most, and so do other habits
    frozen: float = 100.0  # seconds; a watch is given up after 90 of silence
    claims: float = 1000.0  # a minute
    claims_for: float = 60.0  # seconds
    held: float = 15.0  # seconds from a claim's prepare to its unprepare
    at_once: float = 0.05  # of all nodes are updated at a time
    told: float = 25.0  # seconds after news: Events of it wait for up to 20
    calm: float = 60.0  # seconds from a storm to the rest
    settle: float = 8.0  # seconds after a phase, until what it has begun is over


async def alone(stage: Stage, lengths: Lengths) -> None:
    """The neighbour has the API server to itself."""
    await asyncio.sleep(lengths.settle)
    async with stage.measured("alone"):
        await asyncio.sleep(lengths.alone)


async def storm(stage: Stage, lengths: Lengths) -> None:
    """Every plugin starts in the same moment, until the slices of the last node stand."""
    _, stage.watches_before, _ = await stage.counters()
    async with stage.measured("storm") as row:
        began = time.time()
        await stage.fleet.start()
        row["seconds"] = await stage.fleet.until("published") - began
    await _all_stand(stage)
    await asyncio.sleep(lengths.settle)


async def rest(stage: Stage, lengths: Lengths) -> None:
    """Nothing happens, not even what a plugin does once, within a minute of its start."""
    await asyncio.sleep(lengths.calm)
    before = await _all_stand(stage)
    async with stage.measured("rest"):
        await asyncio.sleep(lengths.rest)
    await _unchanged(stage, before)


async def claims(stage: Stage, lengths: Lengths) -> None:
    """Claims are prepared and, a quarter of a minute later, unprepared; each is reported."""
    number = round(lengths.claims * lengths.claims_for / 60)
    works = await asyncio.to_thread(_made_claims, stage, number)
    watch = await asyncio.to_thread(StatusWatch, stage.reader, stage.fleet.driver)
    async with stage.measured("claims") as row:
        played = kubelets.Kubelets(socket=stage.fleet.socket)
        await played.work(works, lengths.claims / 60, lengths.held)
        await _arrived(lambda: len(watch.reported), number, "claims were reported")
        if stage.fleet.clears:
            await _arrived(lambda: len(watch.cleared), number, "reports were taken back")
    row["claims"] = number
    row["refused"] = played.refused
    row["prepare"] = _spread(played.took)
    late = [watch.reported[name] - at for name, at in played.prepared.items()]
    row["report"] = _spread([max(0.0, seconds) for seconds in late])
    await asyncio.to_thread(watch.close)
    await asyncio.to_thread(stage.furniture.admin, "DELETE", CLAIMS)


async def taints(stage: Stage, lengths: Lengths) -> None:
    """A third of all GPUs turns sick in one moment, and well again."""
    async with stage.measured("taints") as row:
        began = time.time()
        await asyncio.to_thread(stage.fleet.taint)
        row["seconds"] = await stage.fleet.until("tainted") - began
    await asyncio.sleep(lengths.told)
    async with stage.measured("taints gone") as row:
        began = time.time()
        await asyncio.to_thread(stage.fleet.untaint)
        row["seconds"] = await stage.fleet.until("untainted") - began
    await asyncio.sleep(lengths.told)


async def restart(stage: Stage, lengths: Lengths) -> None:
    """The API server is killed and started again, until all plugins watch."""
    before = await _all_stand(stage)
    async with stage.measured("restart") as row:
        await asyncio.to_thread(stage.plane.restart)
        row["since"] = back = time.time()
        row["seconds"] = await stage.watching_again(RECOVERY) - back
    await _unchanged(stage, before)
    await asyncio.sleep(lengths.settle)


async def split(stage: Stage, lengths: Lengths) -> None:
    """The API server answers nobody for so long that every watch is given up, then it does."""
    before = await _all_stand(stage)
    async with stage.measured("split") as row:
        with stage.plane.frozen():
            await asyncio.sleep(lengths.frozen)
        row["since"] = back = time.time()
        row["seconds"] = await stage.watching_again(RECOVERY) - back
    await _unchanged(stage, before)
    await asyncio.sleep(lengths.settle)


async def rolling(stage: Stage, lengths: Lengths) -> None:
    """Every plugin is replaced by a new one, some at a time; what is published stays."""
    before = await _all_stand(stage)
    async with stage.measured("rolling") as row:
        began = time.time()
        stage.fleet.restart(max(1, round(stage.fleet.place.nodes * lengths.at_once)))
        row["seconds"] = await stage.fleet.until("restarted") - began
    after = await _all_stand(stage)
    row["rewritten"] = sum(1 for name, version in before.items() if after.get(name) != version)
    await asyncio.sleep(lengths.settle)


Phase = Callable[[Stage, Lengths], Awaitable[None]]
# In the order in which they are played. What needs the rig's API server is in RIG.
ALL: Mapping[str, Phase] = {
    "alone": alone,
    "storm": storm,
    "rest": rest,
    "claims": claims,
    "taints": taints,
    "restart": restart,
    "split": split,
    "rolling": rolling,
}
RIG = ("restart", "split")


# ---------------------------------------------------------------- what must not be lost


async def _all_stand(stage: Stage) -> dict[str, str]:
    """The slices' resource versions; a BenchError if a node has none."""
    versions = await asyncio.to_thread(stage.reader.versions, stage.fleet.driver)
    if len(versions) < stage.fleet.place.nodes:
        raise BenchError(f"{len(versions)} slices stand of {stage.fleet.place.nodes} nodes")
    return versions


async def _unchanged(stage: Stage, before: dict[str, str]) -> None:
    after = await _all_stand(stage)
    if after != before:
        changed = [name for name in before if after.get(name) != before[name]]
        raise BenchError(
            f"{len(changed)} slices were written though nothing changed: {changed[:3]}"
        )


async def _arrived(count: Callable[[], int], wanted: int, what: str) -> None:
    before, progress = -1, time.monotonic()
    while (number := count()) < wanted:
        if number != before:
            before, progress = number, time.monotonic()
        if time.monotonic() - progress > ARRIVAL:
            raise BenchError(f"{number} of {wanted} {what}, and no more for {ARRIVAL:g} s")
        await asyncio.sleep(0.1)


def _spread(seconds: list[float]) -> Row:
    return {"p50": measure.quantile(seconds, 0.5), "p99": measure.quantile(seconds, 0.99)}


# ---------------------------------------------------------------- claims


def _made_claims(stage: Stage, number: int) -> list[kubelets.Work]:
    """Claims that are allocated by hand, one device each, one node after the other."""
    say(f"  {number} claims …")
    admin, place = stage.furniture.admin, stage.fleet.place
    nodes = fleet.node_names(place)
    devices = _devices(stage, nodes[0])
    works = []
    for index in range(number):
        node = nodes[index % len(nodes)]
        device = devices[index // len(nodes) % len(devices)]
        claim = _claim(f"{place.prefix}-claim-{index:05d}")
        stored = admin("POST", CLAIMS, claim)
        stored["status"] = _allocation(stored["metadata"]["name"], node, stage.fleet.driver, device)
        path = f"{CLAIMS}/{stored['metadata']['name']}/status"
        works.append(kubelets.Work(node=node, claim=admin("PUT", path, stored)))
    return works


def _devices(stage: Stage, node: str) -> list[str]:
    """Of the first node, which all others are like."""
    query = f"?fieldSelector=spec.nodeName%3D{node}"
    slices_ = stage.furniture.admin("GET", f"{SLICES}{query}")["items"]
    return [
        device["name"]
        for slice_ in slices_
        if slice_["spec"]["driver"] == stage.fleet.driver
        for device in slice_["spec"].get("devices") or ()
    ]


def _claim(name: str) -> Object:
    exactly = {"deviceClassName": "scale", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": OTHERS},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _allocation(claim: str, node: str, driver: str, device: str) -> Object:
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "gpu", "driver": driver, "pool": node, "device": device}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        },
        "reservedFor": [{"resource": "pods", "name": f"pod-{claim}", "uid": f"uid-{claim}"}],
    }
