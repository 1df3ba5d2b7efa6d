"""What a soak must find: files that are broken on purpose behind a frozen plugin. `--sabotage` asks
for one of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.objects import DRIVER
from tests.soak import folders, plugin
from tests.soak.stage import Stage, until

SEEN = 2.0  # seconds for the observer to see it


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    pids = [each.pid for each in plugin.living()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def lose_cdi(stage: Stage, chance: random.Random) -> None:
    used = _used(stage)
    with frozen():
        for uid in used:
            _spec(uid).unlink(missing_ok=True)
        time.sleep(SEEN)


def lose_record(stage: Stage, chance: random.Random) -> None:
    used = _used(stage)
    with frozen():
        for uid in used:
            (folders.RECORDS / f"{uid}.json").unlink(missing_ok=True)
        time.sleep(SEEN)


def give_twice(stage: Stage, chance: random.Random) -> None:
    first, second = chance.sample(_used(stage), 2)
    with frozen():
        _spec(second).write_text(_spec(first).read_text().replace(first, second))
        time.sleep(SEEN)


def _used(stage: Stage) -> list[str]:
    """Claims of pods that run, two at least."""

    def look() -> list[str]:
        with stage.history.lock:
            pods = [
                each for each in stage.history.pods.values() if each.running and each.asked is None
            ]
            used_uids = {
                uid for each in pods for uid in each.claims.values() if uid and _spec(uid).exists()
            }
        return sorted(used_uids) if len(used_uids) >= 2 else []

    used: list[str] = until("two claims in use", look)
    return used


def _spec(uid: str) -> Path:
    return folders.CDI / f"claimd.dev-claim_{DRIVER}_{uid}.json"


WAYS = {"cdi": lose_cdi, "record": lose_record, "twice": give_twice}
