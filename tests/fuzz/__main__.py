"""Feeds targets for a while: `python -m tests.fuzz --seconds 60 [TARGET …]`.

Each round is another seed. An input that does harm is made small, printed, and kept in the corpus.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import traceback

from hypothesis import HealthCheck, given, seed, settings

from . import inputs, targets

ROUND = 200  # inputs of one seed
SLOW = 2.0  # seconds for one input of some hundred bytes, on a busy machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target; default: 60")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("targets", nargs="*", default=list(targets.TARGETS))
    arguments = parser.parse_args()

    failed = 0
    for name in arguments.targets:
        failed += not feed(name, arguments.seconds, arguments.seed)
    return 1 if failed else 0


def feed(name: str, seconds: float, first_seed: int) -> bool:
    """Whether nothing was found."""
    target, examples = targets.TARGETS[name], targets.examples(name)
    began, rounds, count = time.monotonic(), 0, 0
    last = b""

    def read(data: bytes) -> None:
        nonlocal count, last
        count, last = count + 1, data
        started = time.thread_time()
        target.read(data)
        assert time.thread_time() - started < SLOW, "it took too long"

    while time.monotonic() - began < seconds:
        once = settings(
            max_examples=ROUND,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )(given(inputs.of(examples, target.words))(read))
        try:
            seed(first_seed + rounds)(once)()
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            traceback.print_exc()
            file = targets.CORPUS / name / hashlib.sha256(last).hexdigest()[:12]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(last)
            print(
                f"{name}: {last!r} does harm; kept as {file.relative_to(targets.ROOT)}", flush=True
            )
            return False
        rounds += 1
    print(f"{name}: {count:,} inputs, nothing found (seeds from {first_seed})", flush=True)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
