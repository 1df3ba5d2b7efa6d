"""Scenario `soak`: pods come and go while everything under them is killed, frozen and rolled."""

from __future__ import annotations

import random
import time

from tests.soak import breaking
from tests.soak.faults import Faults
from tests.soak.load import Load
from tests.soak.stage import Stage

SPARED = 0.4  # of the time, at the end: the plugin is not killed, so that its growth can be seen
DRAIN = 180.0  # seconds within which another pod has to go


def run(stage: Stage, *, minutes: float, rate: float, seed: int, sabotage: str = "") -> None:
    stage.begin()
    short = minutes < 4
    load = Load(
        api=stage.api,
        history=stage.history,
        namespace=stage.namespace,
        node=stage.node,
        rate=rate,
        seed=seed,
    )
    faults = Faults(
        stage.api,
        seed,
        stage.say,
        pauses=(1, 3) if short else (4, 14),
        freezes=(2, 5) if short else (2, 10),
    )
    load.prepare()
    load.start()
    end = time.monotonic() + minutes * 60
    _sleep(5 if short else 15, (load, faults))
    faults.start()
    if sabotage:
        _sleep(10, (load, faults))
        breaking.WAYS[sabotage](stage, random.Random(seed))
    while time.monotonic() < end or (short and not all(faults.done[kind] for kind in faults.kinds)):
        faults.spare_plugin = not short and time.monotonic() > end - SPARED * minutes * 60
        _sleep(2 if short else 10, (load, faults))
    faults.end()
    load.stop()
    took = load.ended - load.began
    stage.say(
        f"draining; {sum(load.counts.values())} pods in {took:.0f} s, {sum(faults.done.values())} faults"
    )
    for name in load.drain(DRAIN):
        stage.say(f"{name} has not gone")
    stage.figures["load"] = {
        "seconds": round(took),
        "pods a minute": round(sum(load.counts.values()) / took * 60, 1),
        "kinds": dict(load.counts),
    }
    stage.figures["faults"] = {
        kind: {"times": faults.done[kind], "longest s": round(faults.longest.get(kind, 0), 1)}
        for kind in faults.kinds
    }
    stage.end()
    if sum(load.counts.values()) / took * 60 < rate * 0.97:
        stage.fail(
            "rate",
            f"only {sum(load.counts.values()) / took * 60:.0f} pods a minute were made, asked were {rate:g}",
        )
    for kind in faults.kinds:
        if not faults.done[kind]:
            stage.fail("no fault", f"there was no fault of the kind: {kind}")


def _sleep(seconds: float, threads: tuple[Load, Faults]) -> None:
    """Unless one of the threads dies, which ends the run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for thread in threads:
            if thread.trouble is not None:
                raise thread.trouble
        time.sleep(min(0.5, max(0.0, end - time.monotonic())))
