"""Feeds targets for a while: `python -m tests.fuzz --seconds 60 [TARGET …]`.

An input that reaches something new is kept in build/fuzz/TARGET, where the next run begins; one that
does harm is made small, printed, and kept in tests/cases/fuzz/TARGET. Python 3.12 or newer is needed
to see what is new; an older one changes examples blindly.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

from . import inputs, reach, target, targets

SLOW = 2.0  # seconds of the processor for one input of some hundred bytes
QUICK = 0.02  # for an example that is changed; a slower one is read once
STRIKES = 4  # of the clock, within that time
SMALLER = 2000  # tries to make an input small
KEPT = target.ROOT / "build/fuzz"
PRODUCT = tuple(f"{target.ROOT / folder}/" for folder in ("devices", "plugin"))


class TooLong(BaseException):
    """An input that is still being read; nothing that a target forgives."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of the processor for each target; default: 60"
    )
    parser.add_argument("--inputs", type=int, default=0, help="that end a target sooner")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--unreached", action="store_true", help="say which lines were not reached")
    parser.add_argument("targets", nargs="*", default=list(targets.TARGETS))
    arguments = parser.parse_args()

    if not reach.SEES:
        print("this Python does not say which lines are reached: examples are changed blindly")
    harm = 0
    for name in arguments.targets:
        run = Run(name, arguments.seed)
        run.feed(arguments.seconds, arguments.inputs or sys.maxsize)
        run.report(arguments.unreached)
        harm += len(run.harm)
    return 1 if harm else 0


class Run:
    """One target, from its examples to what was reached from them."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.target = targets.TARGETS[name]
        self.harm: set[str] = set()  # where it was done
        self.count = 0
        self.seconds = 0.0  # of the processor
        self.newest = 0  # the number of the last input that reached something new
        self._kept = KEPT / name
        self._reach = reach.Reach(*PRODUCT)
        self._seed = seed
        self._reads = 0
        self._under_way = (0, 0)  # the number of a read, and how often the clock has struck in it

    def feed(self, seconds: float, most: int) -> None:
        kept = [path.read_bytes() for path in sorted(self._kept.glob("*"))]
        examples = [*targets.examples(self.name), *kept]
        signal.signal(signal.SIGPROF, self._strike)
        signal.setitimer(signal.ITIMER_PROF, SLOW / STRIKES, SLOW / STRIKES)
        self._reach.begin()
        began = time.process_time()
        try:
            quick = [data for data in examples if self._takes(data) < QUICK]
            inputs_ = targets.make_inputs(self.name, random.Random(self._seed), quick or examples)
            ends = time.process_time() + seconds
            while self.count < most and (self.count % 64 or time.process_time() < ends):
                self._try(inputs_)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._reach.end()
            self.seconds = time.process_time() - began

    def _takes(self, data: bytes) -> float:
        began = time.process_time()
        self._read(data)
        return time.process_time() - began

    def _try(self, inputs_: inputs.Inputs) -> None:
        data = inputs_.next()
        self.count += 1
        before = self._reach.news
        self._read(data)
        if self._reach.news > before:
            self.newest = self.count
            inputs_.keep(data)
            self._keep(self._kept, data)

    def _read(self, data: bytes) -> None:
        place = self._place_of_harm(data)
        if place is None or place in self.harm:
            return
        self.harm.add(place)
        small = self._smaller(data, place)
        file = self._keep(targets.CORPUS / self.name, small)
        print(f"{self.name}: {small!r} does harm: {place}; kept as {file}", flush=True)

    def _place_of_harm(self, data: bytes) -> str | None:
        self._reads += 1
        try:
            self.target.read(data)
        except (Exception, TooLong) as error:  # noqa: BLE001 - whatever it is, it is looked for
            if not self.harm:
                traceback.print_exc()
            if isinstance(error, TooLong):
                return "it takes too long"
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if frame.filename.startswith(str(target.ROOT))]
            last = (own or frames)[-1]
            return f"{type(error).__name__} at {last.filename}:{last.lineno}"
        return None

    def _smaller(self, data: bytes, place: str) -> bytes:
        """The same harm with fewer bytes."""
        tries, size = 0, max(1, len(data) // 2)
        while size and place != "it takes too long":
            begin = 0
            while begin < len(data) and (tries := tries + 1) < SMALLER:
                shorter = data[:begin] + data[begin + size :]
                if self._place_of_harm(shorter) == place:
                    data = shorter
                else:
                    begin += size
            size //= 2
        return data

    def _keep(self, folder: Path, data: bytes) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / hashlib.sha256(data).hexdigest()[:12]
        file.write_bytes(data)
        return file.relative_to(target.ROOT)

    def _strike(self, _number: int, _frame: FrameType | None) -> None:
        """Raises where an input hangs, without a look at the clock for each."""
        number, strikes = self._under_way
        strikes = strikes + 1 if number == self._reads else 0
        self._under_way = (self._reads, strikes)
        if strikes >= STRIKES:
            raise TooLong

    def report(self, unreached: bool) -> None:
        own = {line for line in reach.lines(self.target.parts) if line[0].startswith(PRODUCT)}
        reached = own & self._reach.lines
        seen = f"{len(reached)} of {len(own)} lines, the last new way at input {self.newest:,}, "
        print(
            f"{self.name}: {self.count:,} inputs in {self.seconds:.0f} s of the processor, "
            f"{seen if reach.SEES else ''}{len(self.harm) or 'no'} harm (seed {self._seed})",
            flush=True,
        )
        if unreached and reach.SEES:
            for file, line in sorted(own - reached):
                print(f"  {Path(file).relative_to(target.ROOT)}:{line}")


if __name__ == "__main__":
    raise SystemExit(main())
