"""Scenario `soak`: pods come and go while everything under them is killed, frozen and rolled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time

from tests.soak import folders, plugin
from tests.soak.faults import Faults
from tests.soak.load import Load
from tests.soak.stage import Stage

SPARED = 0.4  # of the time, at the end: the plugin is not killed, so that its growth can be seen
DRAIN = 400.0


def run(stage: Stage, *, minutes: float, rate: float, seed: int, sabotage: str = "") -> None:
    stage.begin()
    short = minutes < 4
    load = Load(api=stage.api, history=stage.history, namespace=stage.namespace, node=stage.node, rate=rate, seed=seed)
    faults = Faults(stage.api, seed, (1, 4) if short else (4, 14), stage.say)
    load.prepare()
    load.start()
    end = time.monotonic() + minutes * 60
    _sleep(5 if short else 15, (load, faults))
    faults.start()
    if sabotage:
        _sleep(10, (load, faults))
        SABOTAGE[sabotage](stage, random.Random(seed))
    while time.monotonic() < end:
        faults.spare_plugin = not short and time.monotonic() > end - SPARED * minutes * 60
        _sleep(min(10.0, max(0.1, end - time.monotonic())), (load, faults))
    faults.end()
    load.stop()
    took = load.ended - load.began
    stage.say(f"draining; {sum(load.made.values())} pods in {took:.0f} s, {sum(faults.done.values())} faults")
    for name in load.drain(DRAIN):
        stage.say(f"{name} has not gone")
    stage.found["load"] = {
        "seconds": round(took),
        "pods a minute": round(sum(load.made.values()) / took * 60, 1),
        "kinds": dict(load.made),
    }
    stage.found["faults"] = {
        kind: {"times": faults.done[kind], "longest s": round(faults.longest.get(kind, 0), 1)} for kind in faults.kinds
    }
    stage.end()
    if sum(load.made.values()) / took * 60 < rate * 0.97:
        stage.fail(
            "rate", f"only {sum(load.made.values()) / took * 60:.0f} pods a minute were made, asked were {rate:g}"
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


# ---------------------------------------------------------------- what a run must find: broken behind a frozen plugin


@contextlib.contextmanager
def _frozen() -> object:  # type: ignore[misc]
    pids = [each.pid for each in plugin.living()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
        threading.Event().wait(3)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _used(stage: Stage) -> list[str]:
    """Claims of pods that run."""
    with stage.history.lock:
        pods = [p for p in stage.history.pods.values() if p.running and p.asked is None]
        return [uid for p in pods for uid in p.claims.values() if uid]


def _lose_cdi(stage: Stage, chance: random.Random) -> None:
    with _frozen():  # type: ignore[attr-defined]
        for uid in _used(stage):
            _spec(uid).unlink(missing_ok=True)


def _lose_record(stage: Stage, chance: random.Random) -> None:
    with _frozen():  # type: ignore[attr-defined]
        for uid in _used(stage):
            (folders.RECORDS / f"{uid}.json").unlink(missing_ok=True)


def _give_twice(stage: Stage, chance: random.Random) -> None:
    with _frozen():  # type: ignore[attr-defined]
        first, second = chance.sample([uid for uid in _used(stage) if _spec(uid).exists()], 2)
        _spec(second).write_text(_spec(first).read_text().replace(first, second))


def _spec(uid: str) -> os.PathLike[str]:  # type: ignore[type-arg]
    return folders.CDI / f"claimd.dev-claim_{folders.DRIVER}_{uid}.json"


SABOTAGE = {"cdi": _lose_cdi, "record": _lose_record, "twice": _give_twice}
