"""Points to try, one after the other: progress, an order by a seed, a state on disk so that Ctrl-C
costs nothing, and for each failure the command that repeats it alone. What a point is, is decided
by others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .world import Broken

SAVE = 2.0  # seconds between two writes of the state
SHOW = 20.0  # the same between two lines of progress where there is no terminal
SHOWN = 12  # failures that are printed at the end


@dataclass(kw_only=True)
class Campaign:
    name: str
    seed: int
    path: Path
    program: str
    outcomes: dict[str, str] = field(
        default_factory=dict
    )  # of each point that was tried: died, missed, … or why it failed
    saved: float = 0.0
    shown: float = 0.0

    @classmethod
    def begin(
        cls, name: str, seed: int, path: Path, program: str = "python -m tests.faults"
    ) -> Campaign:
        """Returns a new one, or the one that was stopped. `program` runs the campaign of a name."""
        if path.exists():
            state = json.loads(path.read_text())
            if (state["name"], state["seed"]) == (name, seed):
                return cls(
                    name=name, seed=seed, path=path, program=program, outcomes=state["outcomes"]
                )
            raise SystemExit(
                f"{path} is of {state['name']} --seed {state['seed']}: name another file with --resume"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(name=name, seed=seed, path=path, program=program)

    async def run(self, points: Sequence[str], attempt: Callable[[str], Awaitable[str]]) -> None:
        """`attempt` returns in a word what became of the point, or raises Broken."""
        began, open_ = time.monotonic(), [point for point in points if point not in self.outcomes]
        if len(open_) < len(points):
            self.say(
                f"{len(points) - len(open_)} of {len(points)} points were tried before", end="\n"
            )
        try:
            for number, point in enumerate(open_, 1):
                try:
                    self.outcomes[point] = await attempt(point)
                except Broken as broken:
                    self.outcomes[point] = f"BROKEN: {broken}"
                    self.say(f"BROKEN {point}: {broken}\n  again: {self.command(point)}", end="\n")
                rate = number / (time.monotonic() - began)
                self.say(
                    f"{number} of {len(open_)}, {rate:.1f}/s, {(len(open_) - number) / rate:.0f} s to go, {point}"
                )
                if time.monotonic() > self.saved + SAVE:
                    self.save()
        finally:
            self.save()

    def command(self, point: str) -> str:
        return f"{self.program} {self.name} --seed {self.seed} --only '{point}'"

    def save(self) -> None:
        self.saved = time.monotonic()
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(
            json.dumps({"name": self.name, "seed": self.seed, "outcomes": self.outcomes}, indent=0)
        )
        os.replace(new, self.path)

    def report(self, seconds: float) -> int:
        """Prints what came of it; the number of failures."""
        broken = {point: why for point, why in self.outcomes.items() if why.startswith("BROKEN")}
        counts = Counter(
            "broken" if point in broken else why for point, why in self.outcomes.items()
        )
        figures = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        print(
            f"{self.name}: {figures}; seed {self.seed}, {seconds:.0f} s this time, state in {self.path}"
        )
        for point, why in list(broken.items())[:SHOWN]:
            print(f"  {why}\n    {self.command(point)}")
        return len(broken)

    def say(self, text: str, end: str = "") -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{self.name}: {text}", end=end, file=sys.stderr, flush=True)
        elif end or time.monotonic() > self.shown + SHOW:
            self.shown = time.monotonic()
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)
