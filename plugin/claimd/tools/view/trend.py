"""The numbers of free, held and sick GPUs over the last hours, since the page was started.

This module is pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from .rows import Row

# Seconds between two samples, and the number of samples that are kept: eight hours.
PERIOD = 60.0
MOST = 480


class Numbers(NamedTuple):
    """Numbers of whole devices. A device that is sick counts as sick only."""

    free: int = 0
    held: int = 0
    sick: int = 0


class Trend:
    """Counts the devices of each row, and keeps a sample of the sums for each minute."""

    def __init__(self) -> None:
        self._of_row: dict[str, Numbers] = {}
        self._samples: deque[tuple[float, Numbers]] = deque(maxlen=MOST)

    def count(self, name: str, row: Row | None) -> None:
        """Takes over the devices of a row, or forgets a row that is gone."""
        if row is None:
            self._of_row.pop(name, None)
        else:
            self._of_row[name] = count_devices(row["devices"])

    def sample(self, now: float) -> list[list[float]]:
        """Adds the sums of this moment. Returns all samples: time, free, held, sick."""
        sums = Numbers(*map(sum, zip(*self._of_row.values(), strict=True)))
        self._samples.append((now, sums))
        return [[round(time), *numbers] for time, numbers in self._samples]


def count_devices(devices: Iterable[Row]) -> Numbers:
    """Returns the numbers of the whole devices."""
    free = held = sick = 0
    for device in devices:
        if "parent" in device:
            continue
        if device.get("sick"):
            sick += 1
        elif device["use"] == "free":
            free += 1
        else:
            held += 1
    return Numbers(free, held, sick)
