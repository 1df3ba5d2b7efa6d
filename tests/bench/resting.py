"""What it costs to have claimd when nothing happens, and after very much has: `python -m
tests.bench.resting --help`.

One `claimd run` a fake node, against the tests' API server, with claims prepared and the tests as
the kubelet. At rest it must write nothing and use no CPU; after 10,000 changes of the hardware its
memory must be what it was after 100.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from claimd.common import names
from claimd_devices import fake, faults, scan
from claimd_devices.gpu import Gpu, Roots
from tests.support import apiserver, podresources
from tests.support.kubelet import Kubelet, calling
from tests.support.worlds import DRIVER, NODE, claim_object, result

from .program import Program, running

NODES = {"16 GPUs": ["nvidia:h100=16"], "8 GPUs, 64 partitions": ["machine:mi300x-cpx"]}
SICK = ["amd:mi300x=2", "nvidia:h100=2"]  # the node that changes
WRITES = ("POST", "PUT", "PATCH", "DELETE")
IDLE_LIMIT = 0.3  # per cent of a core
GROWTH_LIMIT = 1.0  # MiB
CLAIMS = 4
FEW = 100  # changes to warm up
ROUND = ("renumber", "wedge", "unplug", "plug", "aer", "heal")  # ends as it began, but for numbers


@dataclass(kw_only=True)
class World:
    folder: Path
    api: apiserver.ApiServer
    program: Program
    gpus: tuple[Gpu, ...]
    endpoint: str  # of its DRA service

    def writes(self) -> int:
        return sum(self.api.count(method) for method in WRITES)

    def used(self) -> tuple[int, int, float]:
        """Writes, requests of any kind, and seconds of CPU so far."""
        return self.writes(), len(self.api.requests), self.program.cpu_time()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.resting", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="at rest; the goal is an hour (default 2)"
    )
    parser.add_argument(
        "--changes", type=int, default=10_000, help="of the hardware; 0: none (default 10000)"
    )
    parser.add_argument(
        "--settle", type=float, default=15.0, help="seconds before each look at it (default 15)"
    )
    asked = parser.parse_args()
    rows = asyncio.run(_measure(asked.minutes, asked.changes, asked.settle))
    for title, value, unit, limit in rows:
        verdict = (
            ""
            if limit is None
            else f"  limit {limit:g}{unit}  {'ok' if value <= limit else 'OVER'}"
        )
        print(f"{title:<58} {value:8.3f}{unit}{verdict}", flush=True)
    return 1 if any(limit is not None and value > limit for _, value, _, limit in rows) else 0


Rows = list[tuple[str, float, str, float | None]]


async def _measure(minutes: float, changes: int, settle: float) -> Rows:
    rows: Rows = []
    if minutes:
        async with contextlib.AsyncExitStack() as stack:
            worlds = {
                title: await stack.enter_async_context(running_world(words))
                for title, words in NODES.items()
            }
            await asyncio.sleep(settle)
            before = {title: world.used() for title, world in worlds.items()}
            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.sleep(60 * minutes)
            for title, world in worlds.items():
                writes, requests, cpu = (
                    now - then for now, then in zip(world.used(), before[title], strict=True)
                )
                share = cpu / (loop.time() - began) * 100
                rows.append((f"CPU at rest for {minutes:g} min, {title}", share, " %", IDLE_LIMIT))
                rows.append((f"writes to the API meanwhile, {title}", writes, "", 0.0))
                rows.append(
                    (f"reads and watches begun meanwhile, {title}", requests - writes, "", None)
                )
    if changes:
        async with running_world(SICK) as world:
            rows += await _change(world, changes, settle)
    return rows


@contextlib.asynccontextmanager
async def running_world(words: list[str]) -> AsyncIterator[World]:
    """A running claimd that is registered, has published, and holds claims."""
    with tempfile.TemporaryDirectory(prefix="r-") as name:
        folder = Path(name)
        fake.write(folder / "fake", fake.parse(words))
        faults.enable(folder / "fake")
        gpus = scan.scan(Roots.in_folder(folder / "fake")).gpus
        async with (
            apiserver.serve() as api,
            podresources.serve(names.pod_resources_socket(folder / "kubelet")) as pods,
        ):
            api.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
            kubelet = Kubelet(folder / "kubelet")
            with running(command(folder, api.url), folder / "log", None) as program:
                info = await kubelet.register(60)
                await apiserver.until(lambda: api.count("POST", "resourceslices"), 60)
                parts = [gpu for gpu in gpus if gpu.parent] or list(gpus)
                async with calling(info.endpoint) as caller:
                    for number, gpu in enumerate(parts[:CLAIMS]):
                        claim = api.put(
                            "resourceclaims", claim_object(f"c{number}", result(gpu.name))
                        )
                        answer = (await caller.prepare(claim))[claim["metadata"]["uid"]]
                        assert not answer.error, answer.error
                        ids = [id_ for device in answer.devices for id_ in device.cdi_device_ids]
                        pods.runs(f"pod-{number}", **{f"c{number}": ids})
                yield World(
                    folder=folder, api=api, program=program, gpus=gpus, endpoint=info.endpoint
                )


def command(folder: Path, url: str) -> list[str]:
    cluster = {
        "current-context": "t",
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "clusters": [{"name": "t", "cluster": {"server": url}}],
        "users": [{"name": "t", "user": {}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(cluster))
    settings = {
        "driver-name": DRIVER,
        "node-name": NODE,
        "kubelet-dir": folder / "kubelet",
        "cdi-dir": folder / "cdi",
        "root": folder / "fake",
        "kubeconfig": folder / "kubeconfig",
        "endpoint": f"unix:{folder}/endpoint.sock",
    }
    return [
        sys.executable,
        "-m",
        "claimd",
        "run",
        *(f"--{key}={value}" for key, value in settings.items()),
    ]


async def _change(world: World, changes: int, settle: float) -> Rows:
    """Memory after the first changes and after all. Each goes to files first and is then told as
    the kernel would.
    """
    few = min(FEW, changes)
    writes = world.writes()
    await _give(world, few)
    before = await _weighed(world, settle)
    await _give(world, changes - few)
    after = await _weighed(world, settle)
    return [
        (f"memory of its own after {few} changes", before, " MiB", None),
        (f"memory of its own after {changes} changes", after, " MiB", None),
        ("grown by", after - before, " MiB", GROWTH_LIMIT),
        ("writes to the API meanwhile", world.writes() - writes, "", None),
    ]


async def _give(world: World, changes: int) -> None:
    whole = [gpu for gpu in world.gpus if gpu.parent is None]
    for number in range(changes):
        gpu = whole[number // len(ROUND) % len(whole)]
        order = ROUND[number % len(ROUND)]
        await asyncio.to_thread(faults.inject, world.folder / "fake", order, gpu.address)
        log = world.folder / "fake/dev/kmsg"
        if number % 50 == 0 and log.exists() and log.stat().st_size > 1 << 16:
            log.unlink()  # the kernel's own is a ring
        await asyncio.sleep(0.01)


async def _weighed(world: World, settle: float) -> float:
    await asyncio.sleep(settle)
    return world.program.memory()[1]


if __name__ == "__main__":
    os.environ.pop("CLAIMD_CONFIG", None)
    sys.exit(main())
