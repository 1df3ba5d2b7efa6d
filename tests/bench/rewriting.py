"""How often a node rewrites its slices, and how many bytes that is for everybody who watches them:
`python -m tests.bench.rewriting`. Needs no Go, no cluster, no root.

One `claimd run` on a fake node, against the tests' API server: claims come and go, a GPU turns sick
and well again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass

from claimd_devices import faults
from tests.support import apiserver
from tests.support.kubelet import calling
from tests.support.worlds import claim_object, result

from .resting import World, running_world

NODES = {"8 H100": ["nvidia:h100=8"], "8 MI300X in 64 partitions": ["machine:mi300x-cpx"]}
SETTLE = 5.0  # seconds in which a write that is still to come would come


@dataclass(frozen=True, kw_only=True)
class Row:
    node: str
    what: str
    writes: int
    size: int  # bytes of JSON in all


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rewriting", description=__doc__)
    parser.add_argument("--claims", type=int, default=100, help="that come and go (default 100)")
    rows = asyncio.run(measured(parser.parse_args().claims))
    print("| node | | slices written | bytes |\n| --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row.node} | {row.what} | {row.writes} | {row.size:,} |")
    return 0


async def measured(claims: int) -> list[Row]:
    rows = []
    for node, words in NODES.items():
        async with running_world(words) as world:
            await asyncio.sleep(SETTLE)
            rows.append(row(node, "at the start", world, 0))

            seen = len(world.api.log)
            await come_and_go(world, claims)
            rows.append(row(node, f"{claims} claims come and go", world, seen))

            for what, order in (("a GPU turns sick", "xid"), ("and well again", "heal")):
                seen = len(world.api.log)
                sick = [gpu for gpu in world.gpus if gpu.parent is None][-1]
                await asyncio.to_thread(faults.inject, world.folder / "fake", order, sick.address)
                await apiserver.until(lambda before=seen: written(world, before))
                await asyncio.sleep(SETTLE)
                rows.append(row(node, what, world, seen))
    return rows


async def come_and_go(world: World, claims: int) -> None:
    """Prepared and unprepared one after the other, on the last device."""
    device = ([gpu for gpu in world.gpus if gpu.parent] or list(world.gpus))[-1].name
    async with calling(world.endpoint) as caller:
        for number in range(claims):
            claim = world.api.put("resourceclaims", claim_object(f"busy-{number}", result(device)))
            answer = (await caller.prepare(claim))[claim["metadata"]["uid"]]
            assert not answer.error, answer.error
            await caller.unprepare(claim)
            world.api.delete("resourceclaims", f"busy-{number}", claim["metadata"]["namespace"])
    await asyncio.sleep(SETTLE)


def written(world: World, since: int) -> list[int]:
    """The bytes of each slice as it was written, from that change on."""
    return [
        len(json.dumps(stored, separators=(",", ":")))
        for _, resource, stored in world.api.log[since:]
        if resource == "resourceslices"
    ]


def row(node: str, what: str, world: World, since: int) -> Row:
    sizes = written(world, since)
    return Row(node=node, what=what, writes=len(sizes), size=sum(sizes))


if __name__ == "__main__":
    os.environ.pop("CLAIMD_CONFIG", None)
    sys.exit(main())
