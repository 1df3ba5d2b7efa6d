"""Thousands of calls at once on the kubelet's socket, and a flood on the endpoint beside them.

A kubelet goes on meanwhile: it prepares claim after claim and gives each back. None of its calls
may fail, live has to be answered within a second, and each of the thousands has to be answered. Of
more connections than are served beside the kubelet's, all may be told to ask again, and hear it.

Then one neighbour prepares next to calls for thousands of claims: see `large_calls`.

    python -m tests.faults.callers
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import socket
import tempfile
import time
from pathlib import Path
from typing import Literal

from claimd.common import budgets, probe
from claimd.node.kubelet import server
from claimd.node.prepare import calls as node_calls
from tests.support import apiserver, call_flood, flood, progress
from tests.support.kubelet import Caller, calling

from . import hostile, large_calls

About = Literal["nobody's claims", "one claim", "claims of its own", "a device of another"]

SOON = 1.0  # seconds for live
GROWTH = 64 << 20  # bytes of memory: what the calls and their answers take while they wait
# And where all are told to ask again: thousands that have arrived. The DaemonSet has 256 MiB.
MOST_GROWTH = 128 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calls:
    """What is sent again and again, until the kubelet has seen enough."""

    about: About
    many: int  # at once, on each connection
    connections: int = 1

    @property
    def is_too_much(self) -> bool:
        """Whether even the kubelet is told to ask again, as docs/security.md says."""
        under_way = min(self.many, server.MOST_CALLS_A_CONNECTION)
        return under_way * self.connections >= budgets.CALLS.limit - budgets.CALLS.kept


CALLS: dict[str, Calls] = {
    "claims that do not exist": Calls(about="nobody's claims", many=5000),
    "one claim": Calls(about="one claim", many=5000),
    "thousands of claims": Calls(about="claims of its own", many=5000),
    # Each waits for some seconds for the device to be given back.
    "a device that another claim has": Calls(about="a device of another", many=500),
    "on three connections": Calls(about="nobody's claims", many=5000, connections=3),
    "on twelve connections": Calls(about="a device of another", many=500, connections=12),
}


async def attack(name: str, *, many: int = 0, claims: int = 200) -> str:
    """Returns the figures; AssertionError tells the broken promise.

    `many` is in the place of what the row says; the kubelet prepares so many claims meanwhile.
    """
    calls, trouble = CALLS[name], hostile.Trouble()
    calls = dataclasses.replace(calls, many=many or calls.many)
    address = f"127.0.0.1:{_free_port()}"
    async with hostile._world(Path(tempfile.gettempdir()), trouble) as world:
        endpoint = await world.start(endpoint=address)
        await apiserver.until(world.slices)
        names = _names(world, calls.about, calls.many)
        memory = world.usage()[0]
        with (
            call_flood.running(
                endpoint, names, calls=calls.many, channels=calls.connections
            ) as flooding,
            flood.running(address, many=900),
        ):
            async with calling(endpoint) as caller:
                waits, refused = await _prepare_all_along(
                    world, caller, address, claims, calls.is_too_much
                )
                growth = world.usage()[0] - memory
                ended = await asyncio.to_thread(flooding.end)
                await _prepare_all_along(world, caller, address, 1, False)
        log = (world.folder / "log").read_text()

    figures = (
        f"{claims} claims, {sorted(waits)[claims // 2]:.3f} s and {max(waits):.2f} s at most, "
        f"{refused} told to ask again; "
        f"{ended} of the calls; {growth >> 10} KiB more"
    )
    assert set(ended) <= {"answered", "busy"}, figures
    assert calls.is_too_much or "busy" not in ended, figures
    assert growth < (MOST_GROWTH if calls.is_too_much else GROWTH), figures
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
    world: hostile.World, caller: Caller, address: str, claims: int, may_be_busy: bool
) -> tuple[list[float], int]:
    """Claim after claim, each with a look at live; how long each prepare took, and how many of the
    calls were told to ask again.
    """
    waits, looks, refused = [], [], 0
    for number in range(claims):
        claim = world.claim(f"real-{number}", 0)
        uid = claim["metadata"]["uid"]

        began = time.monotonic()
        error = (await caller.prepare(claim))[uid].error
        waits.append(time.monotonic() - began)
        refused += _is_busy(error, may_be_busy)

        began = time.monotonic()
        assert (await asyncio.to_thread(probe.ask, address, "/livez", 20))[0]
        looks.append(time.monotonic() - began)

        while _is_busy((await caller.unprepare(claim))[uid].error, may_be_busy):
            refused += 1
            await asyncio.sleep(0.01)
        world.api.delete("resourceclaims", claim["metadata"]["name"], "default")
        progress.moved()
    assert sorted(looks)[-2:][0] < SOON, f"live took {max(looks):.2f} s"
    return waits, refused


def _is_busy(error: str, may_be: bool) -> bool:
    """Whether a call was told to ask again; AssertionError for every other trouble."""
    assert error in ("", node_calls.BUSY if may_be else ""), error
    return bool(error)


def _free_port() -> int:
    with socket.socket() as socket_:
        socket_.bind(("127.0.0.1", 0))
        port: int = socket_.getsockname()[1]
        return port


def main() -> None:
    argparse.ArgumentParser(prog="python -m tests.faults.callers", description=__doc__).parse_args()
    for name in CALLS:
        print(f"{name}: {asyncio.run(attack(name))}", flush=True)
    for name in large_calls.CASES:
        print(f"{name}: {asyncio.run(large_calls.measure(name))}", flush=True)


if __name__ == "__main__":
    main()
