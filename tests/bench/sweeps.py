"""How the cost grows: with the devices of a node, and with the claims in a call of the kubelet.

Each driver starts anew for each number of devices. One that cannot be told how many it shall have
has no part in this, and one that cannot publish so many has no figure there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import turn
from .figures import Values

DEVICES = (1, 8, 64, 128, 512)
CALLS = (1, 2, 4, 8, 16, 32, 64, 128)
CALM = 1.0  # seconds from the last call until memory is read

# A driver with so many devices.
Maker = Callable[[int], turn.Driver]
Rows = dict[str, list[Values]]


def with_more_devices(
    makers: Mapping[str, Maker],
    cluster: turn.Cluster,
    claims: int,
    numbers: Sequence[int] = DEVICES,
) -> Rows:
    """By driver, one row of figures a number of devices, with so many claims one by one."""
    work = turn.Work(claims=claims, waits_for_status=False)
    rows: Rows = {name: [] for name in makers}
    for devices, name in _turns(makers, numbers):
        driver = makers[name](devices)
        if devices > driver.most:
            continue
        print(f"{devices} devices: {name}", file=sys.stderr, flush=True)
        with turn.started(driver, cluster, f"{os.getpid()}-d{devices}", work) as turn_:
            row = turn_.start()
            turn_.need(devices)
            row |= turn_.one_by_one()
            time.sleep(CALM)
            row["resident"], row["anonymous"] = turn_.program.memory()
        rows[name].append(row)
    return rows


def with_more_claims(
    makers: Mapping[str, Maker],
    cluster: turn.Cluster,
    times: int,
    sizes: Sequence[int] = CALLS,
) -> Rows:
    """By driver, the milliseconds of a call with so many claims, each for a device of its own; the
    median of some calls.
    """
    rows: Rows = {}
    for name, maker in makers.items():
        print(f"{sizes[-1]} claims in a call: {name}", file=sys.stderr, flush=True)
        tag = f"{os.getpid()}-calls"
        with turn.started(maker(sizes[-1]), cluster, tag, turn.Work()) as turn_:
            turn_.start()
            turn_.need(sizes[-1])
            turn_.in_a_call(1, 1)  # the first claim of all pays for connections
            rows[name] = [
                {"claims": size, "prepare": turn_.in_a_call(size, times)} for size in sizes
            ]
    return rows


def _turns(makers: Mapping[str, Maker], numbers: Iterable[int]) -> Iterable[tuple[int, str]]:
    for number in numbers:
        for name in makers:
            yield number, name
