"""Thousands of calls at once on the kubelet's socket, and a flood on the endpoint beside them.

A kubelet goes on meanwhile: it prepares claim after claim and gives each back. None of its calls
may fail, live has to be answered within a second, and each of the thousands has to be answered.

    python -m tests.faults.callers
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plugin import probe
from tests.support import apiserver, call_flood, flood, progress
from tests.support.kubelet import Caller, calling

from . import hostile

About = Literal["nobody's claims", "one claim", "claims of its own", "a device of another"]

SOON = 1.0  # seconds for live
GROWTH = 64 << 20  # bytes of memory: what the calls and their answers take while they wait


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What is sent again and again, until the kubelet has seen enough."""

    about: About
    many: int  # at once, on each connection
    connections: int = 1


CALLS: dict[str, Calls] = {
    "claims that do not exist": Calls(about="nobody's claims", many=5000),
    "one claim": Calls(about="one claim", many=5000),
    "thousands of claims": Calls(about="claims of its own", many=5000),
    # Each waits for some seconds for the device to be given back.
    "a device that another claim has": Calls(about="a device of another", many=500),
    "on four connections": Calls(about="nobody's claims", many=5000, connections=4),
    "on twelve connections": Calls(about="a device of another", many=500, connections=12),
}


async def attack(name: str, *, many: int = 0, claims: int = 200) -> str:
    """Returns the figures; AssertionError tells the broken promise.

    `many` is in the place of what the row says; the kubelet prepares so many claims meanwhile.
    """
    calls, trouble = CALLS[name], hostile.Trouble()
    many = many or calls.many
    address = f"127.0.0.1:{_free_port()}"
    async with hostile._world(Path(tempfile.gettempdir()), trouble) as world:
        endpoint = await world.start(endpoint=address)
        await apiserver.until(world.slices)
        names = _names(world, calls.about, many)
        memory = world.usage()[0]
        with (
            call_flood.running(endpoint, names, calls=many, channels=calls.connections) as flooding,
            flood.running(address, many=900),
        ):
            async with calling(endpoint) as caller:
                waits = await _prepare_all_along(world, caller, address, claims)
            growth = world.usage()[0] - memory
            ended = await asyncio.to_thread(flooding.end)
        log = (world.folder / "log").read_text()

    figures = (
        f"{claims} claims, {sorted(waits)[claims // 2]:.3f} s and {max(waits):.2f} s at most; "
        f"{ended} of the calls; {growth >> 10} KiB more"
    )
    assert set(ended) == {"answered"}, figures
    assert growth < GROWTH, figures
    assert "Traceback" not in log, figures
    return figures


def _names(world: hostile.World, about: About, many: int) -> list[str]:
    """The claims that are asked for; those that exist are allocated."""
    names = [f"crowd-{number}" for number in range(many)]
    if about == "one claim":
        names = names[:1]
    if about != "nobody's claims":
        for number, name in enumerate(names):
            world.claim(name, 1 if about == "a device of another" else 1 + number % 3)
    return names


async def _prepare_all_along(
    world: hostile.World, caller: Caller, address: str, claims: int
) -> list[float]:
    """Claim after claim, each with a look at live; how long each prepare took."""
    waits, looks = [], []
    for number in range(claims):
        claim = world.claim(f"real-{number}", 0)
        uid = claim["metadata"]["uid"]

        began = time.monotonic()
        answer = (await caller.prepare(claim))[uid]
        waits.append(time.monotonic() - began)
        assert not answer.error, answer.error

        began = time.monotonic()
        assert (await asyncio.to_thread(probe.ask, address, "/livez", 20))[0]
        looks.append(time.monotonic() - began)

        assert not (await caller.unprepare(claim))[uid].error
        world.api.delete("resourceclaims", claim["metadata"]["name"], "default")
        progress.moved()
    assert sorted(looks)[-2] < SOON, f"live took {max(looks):.2f} s"
    return waits


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def main() -> None:
    argparse.ArgumentParser(prog="python -m tests.faults.callers", description=__doc__).parse_args()
    for name in CALLS:
        print(f"{name}: {asyncio.run(attack(name))}", flush=True)


if __name__ == "__main__":
    main()
