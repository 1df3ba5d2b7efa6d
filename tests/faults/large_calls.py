"""How long a neighbour waits next to large calls: the kubelet prepares one claim again and again.

Meanwhile other calls for thousands of claims of another namespace are prepared, reported, given
back and cleared. A process of its own plays the kubelet, so that the API server of the test does
not delay its clock.

    python -m tests.faults.callers
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from claimd.node.prepare import calls as node_calls
from tests.support import apiserver
from tests.support.kubelet import Caller, calling
from tests.support.worlds import claim_object, result

from . import hostile

# The calls at the same time, and the claims of each.
CASES = {
    "one call of 2,000 claims": (1, 2000),
    "20 calls of 100 claims": (20, 100),
    "one call of 300 claims": (1, 300),
}

# Rounds of the neighbour during the calls. There are one or two if it waits for their end.
FEWEST_ROUNDS = 10

USUAL = 60  # rounds of the neighbour alone
PAUSE = 0.005  # seconds between two rounds of the neighbour
MOST_TIMES, MOST = 3.0, 0.1  # of the usual median; seconds

Phases = dict[str, list[float]]


async def measure(name: str, claims: int = 0, *, is_quiet: bool = True) -> str:
    """Returns the figures; AssertionError tells the broken promise.

    `claims` is in the place of the claims of each call. On a machine that is not quiet only the
    number of the neighbour's rounds is judged.
    """
    calls, each = CASES[name]
    each = claims or each
    trouble = hostile.Trouble()
    async with hostile._world(Path(tempfile.gettempdir()), trouble) as world:
        endpoint = await world.start()
        await apiserver.until(world.slices)
        neighbour = world.claim("neighbour", 1)
        crowd = _put_crowd(world, calls, each)
        uids = [claim["metadata"]["uid"] for call in crowd for claim in call]
        async with _playing(endpoint, neighbour, crowd) as kubelet:
            phases = {"alone": await kubelet.ask("alone")}
            phases["prepare"] = await kubelet.ask("prepare")
            phases["reports"] = await kubelet.ask_until(lambda: _reported(world, uids) == len(uids))
            phases["unprepare"] = await kubelet.ask("unprepare")
            phases["clearing"] = await kubelet.ask_until(lambda: not _reported(world, uids))
        assert "Traceback" not in (world.folder / "log").read_text()
    figures = _describe(phases)
    usual = statistics.median(phases["alone"])
    assert len(phases["prepare"]) >= FEWEST_ROUNDS, figures
    if is_quiet:
        assert statistics.median(phases["prepare"]) <= MOST_TIMES * usual, figures
        assert max(phases["prepare"]) <= MOST, figures
    return figures


def _put_crowd(world: hostile.World, calls: int, each: int) -> list[list[dict[str, Any]]]:
    """Creates shares of one GPU for other namespaces."""
    crowd = []
    for call in range(calls):
        claims = []
        for number in range(each):
            name = f"crowd-{call}-{number}"
            share = result(world.gpus[0].name, shareID=str(uuid.uuid4()))
            obj = claim_object(name, share)
            obj["metadata"]["namespace"] = "crowd"
            claims.append(world.api.put("resourceclaims", obj))
        crowd.append(claims)
    return crowd


def _reported(world: hostile.World, uids: list[str]) -> int:
    """Returns how many claims of the crowd have a report."""
    store = world.api._store
    served = world.api._served("resourceclaims")
    count = 0
    for obj in store.page(served.kind.resource).items:
        is_crowd = obj["metadata"].get("namespace") == "crowd"
        count += is_crowd and bool(obj.get("status", {}).get("devices"))
    return count


def _describe(phases: Phases) -> str:
    usual = statistics.median(phases["alone"])
    figures = [f"alone {usual * 1e3:.1f} ms"]
    for phase, waits in phases.items():
        if phase == "alone":
            figures[0] += f", at most {max(waits) * 1e3:.1f}"
            continue
        ordered = sorted(waits)
        late = ordered[int(len(ordered) * 0.95)]
        figures.append(
            f"{phase}: {len(waits)} rounds, median {statistics.median(waits) * 1e3:.1f} ms, "
            f"95 of 100 {late * 1e3:.1f}, at most {max(waits) * 1e3:.1f}"
        )
    return "; ".join(figures)


# ---------------------------------------------------------------------- the kubelet's process


class _Kubelet:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def ask(self, phase: str) -> list[float]:
        """Returns how long each prepare of the neighbour took in this phase."""
        self._stdin.write(f"{phase}\n".encode())
        line = await self._stdout.readline()
        assert line, "the kubelet's process has failed"
        return cast("list[float]", json.loads(line))

    async def ask_until(self, fact: Any) -> list[float]:
        """The same while the node comes to rest: until the fact holds."""
        self._stdin.write(b"rest\n")
        while not fact():
            await asyncio.sleep(0.5)
        return await self.ask("end")


@contextlib.asynccontextmanager
async def _playing(
    endpoint: str, neighbour: dict[str, Any], crowd: list[list[dict[str, Any]]]
) -> AsyncIterator[_Kubelet]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, limit=1 << 24
    )
    assert process.stdin is not None
    names = [neighbour["metadata"], [[claim["metadata"] for claim in call] for call in crowd]]
    process.stdin.write(json.dumps([endpoint, *names]).encode() + b"\n")
    try:
        yield _Kubelet(process)
    finally:
        process.stdin.close()
        await process.wait()


async def _play() -> None:
    """Runs in the kubelet's process."""
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    endpoint, neighbour, crowd = json.loads(await lines.readline())
    neighbour = {"metadata": neighbour}
    calls = [[{"metadata": claim} for claim in call] for call in crowd]
    async with calling(endpoint) as caller:
        while phase := (await lines.readline()).decode().strip():
            if phase == "alone":
                await _rounds(caller, neighbour, asyncio.sleep(0.5))
                waits = await _rounds(caller, neighbour, None)
            elif phase == "rest":
                waits = await _rounds(caller, neighbour, lines.readline())
            else:
                waits = await _rounds(caller, neighbour, _call_all(caller, phase, calls))
            print(json.dumps(waits), flush=True)


async def _call_all(caller: Caller, verb: str, calls: list[list[dict[str, Any]]]) -> None:
    call = caller.prepare if verb == "prepare" else caller.unprepare
    await asyncio.gather(*(_repeat(call, claims) for claims in calls))


async def _repeat(call: Any, claims: list[dict[str, Any]]) -> None:
    """Calls until all claims are done, as the kubelet does. On a busy machine one call is too short."""
    while claims:
        answers = await call(*claims)
        errors = {uid: answer.error for uid, answer in answers.items() if answer.error}
        assert set(errors.values()) <= {node_calls.LATE}, errors
        claims = [claim for claim in claims if claim["metadata"]["uid"] in errors]


async def _rounds(caller: Caller, claim: dict[str, Any], until: Any) -> list[float]:
    """Prepares the claim and gives it back, until the other work ends; returns each prepare's time."""
    work = asyncio.ensure_future(until) if until is not None else None
    waits: list[float] = []
    uid = claim["metadata"]["uid"]
    while not (work.done() if work is not None else len(waits) >= USUAL):
        began = time.monotonic()
        answer = (await caller.prepare(claim))[uid]
        waits.append(time.monotonic() - began)
        assert not answer.error, answer.error
        assert not (await caller.unprepare(claim))[uid].error
        await asyncio.sleep(PAUSE)
    if work is not None:
        await work
    return waits


if __name__ == "__main__":
    asyncio.run(_play())
