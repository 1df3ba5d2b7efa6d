"""The clock of the node steps by a year, forth and back, under a real claimd: no promise hangs on
it.
"""

import json
import os
import time
from pathlib import Path

import pytest

from tests.faults.stage import Stage
from tests.faults.world import world

PROMPT = 20.0  # seconds for a call, on a machine that is busy; the kubelet gives it 45
LIBRARIES = [
    path
    for path in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    if os.access(path, os.R_OK)
]


def step(clock, offset):
    """As NTP does it: from one instruction to the next. What is monotonic goes on as it did."""
    new = clock.with_suffix(".new")
    new.write_text(offset + "\n")
    new.replace(clock)


def year(stage, name):
    record = json.loads((stage.world.plugin / "claims" / f"uid-{name}.json").read_text())
    return int(record["claim"]["preparedAt"][:4])


@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed")
@pytest.mark.parametrize("first", ["+400d", "-400d"])
async def test_the_clock_steps(first):
    back = first.replace("+", "*").replace("-", "+").replace("*", "-")
    async with world() as world_:
        clock = world_.folder / "clock"
        step(clock, "+0")
        settings = {
            "LD_PRELOAD": LIBRARIES[0],
            "FAKETIME_TIMESTAMP_FILE": clock,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        claimd = await world_.start(
            tracer=["env", *(f"{key}={value}" for key, value in settings.items())]
        )
        assert await claimd.register(), world_.tail()
        stage = Stage(world=world_, claimd=claimd)
        assert await stage.prepare(("c", 0))
        begun = year(stage, "c")
        for name, index, offset in (("d", 1, first), ("e", 2, back)):
            step(clock, offset)
            before = time.monotonic()
            assert await stage.prepare(("c", 0), (name, index)), stage.errors
            assert time.monotonic() - before < PROMPT
            assert year(stage, name) != begun, "the clock did not step"
            await stage.settled()
            await stage.observe()
        await claimd.kill()
        await stage.recover()  # with the right clock again
        await stage.wind_down()
