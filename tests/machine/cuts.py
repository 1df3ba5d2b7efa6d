"""Losses of power in the recorded life of a disk: what the disk may hold afterwards, and what the
kubelet knew at that moment.

A loss of power keeps all that was flushed. Of the writes since the last flush it keeps any subset,
in blocks of 4 KiB. This module knows nothing about claimd.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Self

import msgspec

from .disk import Blocks, Event, Fact, Flush, Write, pieces

# Of the writes that were not flushed, the disk keeps all, none, or each block by chance.
VARIANTS: dict[str, tuple[float, ...]] = {
    "all": (1.0,),
    "none": (0.0,),
    "some": (0.2, 0.5, 0.8),
}


class Recording(msgspec.Struct, kw_only=True):
    """The life of a disk, and of the claims whose checkpoints it has."""

    file_system: str
    size: int
    ground: dict[int, bytes]  # the blocks before the machine started
    events: list[Event]
    claims: dict[str, int]  # the index of each one's GPU

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.msgpack.encode(self))

    def summary(self) -> str:
        kinds = Counter(type(event).__name__.lower() for event in self.events)
        return f"{self.file_system}: {dict(kinds)}"

    @classmethod
    def load(cls, path: Path) -> Self:
        return msgspec.msgpack.decode(path.read_bytes(), type=cls)


def draw(events: Sequence[Event], answers: Collection[str], count: int, seed: int) -> list[str]:
    """Returns that many cuts, as MOMENT/VARIANT, in the order of their moments.

    Half of the moments are those right after an answer: a fact whose state is one of `answers`. The
    others are anywhere after the first answer. No cut comes twice, so there may be fewer.
    """
    dice = random.Random(seed)
    answered = [
        number
        for number, event in enumerate(events, 1)
        if isinstance(event, Fact) and event.state in answers
    ]
    anywhere = range(answered[0], len(events) + 1)
    is_clean = _clean_moments(events)

    cuts: set[tuple[int, str]] = set()
    for _ in range(100 * count):
        moment = dice.choice(dice.choice((answered, anywhere)))
        variant = "all" if is_clean[moment] else dice.choice(("all", "none", "some", "some"))
        cuts.add((moment, variant))
        if len(cuts) == count:
            break
    return [f"{moment}/{variant}" for moment, variant in sorted(cuts)]


def _clean_moments(events: Sequence[Event]) -> list[bool]:
    """Tells for each number of events whether all writes are flushed after them."""
    clean = [True]
    for event in events:
        clean.append(isinstance(event, Flush) or (clean[-1] and not isinstance(event, Write)))
    return clean


class Replay:
    """The disk and the kubelet's knowledge, at a moment that can move forward."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._begin()

    def _begin(self) -> None:
        self._moment = 0
        self._durable = Blocks(self._recording.size, dict(self._recording.ground))
        self._open: list[Write] = []
        self.states: dict[str, str] = {}

    def go_to(self, moment: int) -> None:
        """Replays the events up to this number of them."""
        if moment < self._moment:
            self._begin()
        for event in self._recording.events[self._moment : moment]:
            if isinstance(event, Write):
                self._open.append(event)
            elif isinstance(event, Fact):
                self.states[event.claim] = event.state
            else:
                self._flush()
        self._moment = moment

    def _flush(self) -> None:
        for write in self._open:
            self._durable.write(write.offset, write.data)
        self._open = []

    def remains(self, variant: str, dice: random.Random) -> Blocks:
        """Returns one of the disks that a loss of power may leave at this moment."""
        chance = dice.choice(VARIANTS[variant])
        left = self._durable.copy()
        for write in self._open:
            for offset, piece in pieces(write.offset, write.data):
                if dice.random() < chance:
                    left.write(offset, piece)
        return left
