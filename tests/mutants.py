"""Mutation testing: small mistakes, one at a time, are put into a copy; the module's own tests have to notice.

`python -m tests.mutants` draws a sample by a seed (tests/mutations.py), runs for each mutant the
test files that mirror its module (tests/mirrors.py), without the slow tests, and prints the
survivors and the score. The same seed on the same sources draws the same mutants.

Before any mutant the same tests run on the copy as it is, and have to pass. That run is recorded
(tests/reach.py) and kept in .mutants until the sources change: the tests that reach the changed
lines then run first, the shortest first, and the first failure is the answer.

The tests run in forks of a process that has collected them (tests/collected.py), which takes a
fraction of a second. Only if none fails there, or the mutant does not fit in there, they run once
more in a fresh process, with the mutant in the file.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import queue
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked, mirrors, mutations, omissions, reach
from tests.collected import Order, Session
from tests.mutations import Mutant

ROOT = mirrors.ROOT
KEPT = ROOT / ".mutants"
COPIED = (
    "plugin",
    "devices",
    "tests",
    "proto",
    "deploy",
    "docs",
    "pyproject.toml",
    "Makefile",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)

# A mutant may run for ever. A test gets several times what it took without one.
SHORTEST_LIMIT = 20.0
PATIENCE = 5.0

RECORDING_LIMIT = 3600.0

# A test that takes this long waits for clocks and processes, and may fail on a busy machine: what
# it noticed it has to notice twice.
LONG_TEST = 0.5


_numbers = itertools.count(1)


@dataclass(frozen=True)
class Record:
    """What is known of a test file from the run without a mutant."""

    seconds: dict[str, float]  # of each test
    lines: dict[str, dict[str, list[int]]]  # of each module, by test

    def reaching(self, mutant: Mutant) -> list[str]:
        """The tests during which the mutated code runs; all of them if it runs on import."""
        reached = [test for test, lines in self.lines.items() if _touch(lines, mutant)]
        return list(self.seconds) if reach.OUTSIDE in reached else reached

    def runs_on_import(self, mutant: Mutant) -> bool:
        return _touch(self.lines.get(reach.OUTSIDE, {}), mutant)


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    outcome: str  # killed, survived, untested
    seconds: float


def _touch(lines: dict[str, list[int]], mutant: Mutant) -> bool:
    return not set(mutant.lines).isdisjoint(lines.get(mutant.module, ()))


def make_copy(copy: Path) -> None:
    copy.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, copy / name)


# The run without a mutant.


def records_of(files: list[str], copies: list[Path]) -> dict[str, Record]:
    """Runs what is not known yet, on copies that nothing was done to; ends the program if it fails."""
    KEPT.mkdir(exist_ok=True)
    sources = _digest_of_sources()
    kept: dict[str, Path] = {}
    for file in files:
        digest = hashlib.sha256(sources + file.encode() + (ROOT / file).read_bytes()).hexdigest()
        kept[file] = KEPT / f"{digest}.json"

    missing = [file for file in files if not kept[file].exists()]
    shares = [missing[start :: len(copies)] for start in range(min(len(copies), len(missing)))]
    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        for share, whole in zip(shares, pool.map(_recorded, shares, copies), strict=True):
            for file in share:
                own = {
                    part: {test: told for test, told in whole[part].items() if _is_of(file, test)}
                    for part in ("seconds", "lines")
                }
                kept[file].write_text(json.dumps(own))

    records: dict[str, Record] = {}
    for file in files:
        document = json.loads(kept[file].read_text())
        records[file] = Record(document["seconds"], document["lines"])
    return records


def _is_of(file: str, test: str) -> bool:
    """What ran while modules were imported counts for every file."""
    return test == reach.OUTSIDE or test.startswith(f"{file}::")


def _digest_of_sources() -> bytes:
    """Of everything that is copied but the test files themselves."""
    digest = hashlib.sha256()
    for name in COPIED:
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]):
            generated = "__pycache__" in path.parts or path.name.startswith("test_")
            if path.is_file() and not generated:
                digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.digest()


def _recorded(files: list[str], copy: Path) -> dict[str, dict[str, Any]]:
    """Recording slows a test down: a file that fails meanwhile has to pass without.

    It has two chances, as in `make unit`: others may keep the machine busy.
    """
    written = copy / "reach.json"
    forked.run(copy, files, {"REACH_WRITTEN": str(written)}, RECORDING_LIMIT)
    document: dict[str, dict[str, Any]] = json.loads(written.read_text())
    for file in dict.fromkeys(test.split("::")[0] for test in document["failed"]):
        status, output = forked.run(copy, [file], {}, RECORDING_LIMIT)
        if status:
            status, output = forked.run(copy, [file], {}, RECORDING_LIMIT)
        if status:
            sys.exit(f"{output[-3000:]}\n{file} fails without any mutant: mend that first")
    return document


# The run with one.


@dataclass(frozen=True)
class Worker:
    """A copy of the sources, and a process that has collected the tests in it."""

    copy: Path
    session: Session
    sound: dict[str, bool] = field(default_factory=dict)  # tests that pass in a fork, or do not

    def is_noticed_in_fork(self, mutant: Mutant, tests: dict[str, float]) -> bool:
        """Returns True if a test fails that passes without the mutant.

        A test that takes long has to fail twice, as in `_killed`.
        """
        failed = self._first_failure(mutant, tests)
        if not failed or failed not in tests or not self._is_sound(failed, tests[failed]):
            return False
        is_long = tests[failed] >= LONG_TEST
        return not is_long or self._first_failure(mutant, {failed: tests[failed]}) is not None

    def _first_failure(self, mutant: Mutant | None, tests: dict[str, float]) -> str | None:
        order = Order(
            path=str(self.copy / mutant.module) if mutant is not None else "",
            text=mutant.text if mutant is not None else "",
            line=mutant.line if mutant is not None else 0,
            limits={test: _limit(seconds) for test, seconds in tests.items()},
            seconds=60 + PATIENCE * sum(tests.values()),
        )
        return self.session.run(order).failed

    def _is_sound(self, test: str, seconds: float) -> bool:
        if test not in self.sound:
            self.sound[test] = self._first_failure(None, {test: seconds}) is None
        return self.sound[test]


def _limit(seconds: float) -> float:
    return max(SHORTEST_LIMIT, PATIENCE * seconds)


def verdict(mutant: Mutant, worker: Worker, records: dict[str, Record], *, whole: bool) -> Verdict:
    """Runs the mirrored tests with the mutant."""
    began = time.monotonic()
    tests = chosen(mutant, records, whole=whole)
    if not tests:
        return Verdict(mutant, "untested", 0.0)
    files = mirrors.tests_of(mutant.module)
    on_import = any(records[file].runs_on_import(mutant) for file in files)

    is_noticed = not on_import and worker.is_noticed_in_fork(mutant, tests)
    if not is_noticed:
        is_noticed = _is_noticed_in_file(mutant, worker.copy, tests)
    return Verdict(mutant, "killed" if is_noticed else "survived", time.monotonic() - began)


def _is_noticed_in_file(mutant: Mutant, copy: Path, tests: dict[str, float]) -> bool:
    """Runs the tests on a copy that has the mutant, and puts the module right again."""
    place = copy / mutant.module
    original, status = place.read_text(), place.stat()
    place.write_text(mutant.text)

    # Bytecode is told from its source by whole seconds and size: no two have the same second.
    os.utime(place, (status.st_atime, status.st_mtime + 10 * next(_numbers)))
    try:
        return _killed(copy, tests)
    finally:
        place.write_text(original)
        os.utime(place, (status.st_atime, status.st_mtime))


def chosen(mutant: Mutant, records: dict[str, Record], *, whole: bool) -> dict[str, float]:
    """How long each test takes, in the order in which they run.

    Without `whole` these are the tests that reach the mutant. If none does in its own process, a
    program that a test starts may: then all tests run.
    """
    reaching: dict[str, float] = {}
    others: dict[str, float] = {}
    for file in mirrors.tests_of(mutant.module):
        record = records[file]
        by_length = sorted(record.seconds, key=lambda test: record.seconds[test])
        reached = set(record.reaching(mutant))
        reaching |= {test: record.seconds[test] for test in by_length if test in reached}
        others |= {test: record.seconds[test] for test in by_length if test not in reached}
    return reaching | others if whole or not reaching else reaching


def _killed(copy: Path, tests: dict[str, float]) -> bool:
    # Most mistakes are noticed by the module's own file: the others are not even imported then.
    first = next(iter(tests)).split("::")[0]
    own = {test: seconds for test, seconds in tests.items() if _is_of(first, test)}
    failed = _first_failure(copy, own)
    rest = {test: seconds for test, seconds in tests.items() if test not in own}
    if failed is None and rest:
        failed = _first_failure(copy, rest)

    if failed is None:
        return False
    if tests.get(failed, 0.0) < LONG_TEST:
        return True
    return _first_failure(copy, {failed: tests[failed]}) is not None


def _first_failure(copy: Path, tests: dict[str, float]) -> str | None:
    """The name of the test that failed, empty if it was no single one; None if none failed."""
    names = copy / "chosen.json"
    names.write_text(json.dumps(list(tests)))
    each = _limit(max(tests.values()))
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    try:
        status, output = forked.run(
            copy,
            ["-x", "-o", f"timeout={each:.0f}", *files],
            {"REACH_CHOSEN": str(names)},
            timeout=60 + PATIENCE * sum(tests.values()),
        )
    except TimeoutError:
        return ""
    if status == 0:
        return None
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    return ""


def run(mutants: list[Mutant], workers: int, *, whole: bool) -> list[Verdict]:
    """Each worker has a copy of its own; the order of the verdicts is that of the mutants."""
    files: dict[str, None] = {}
    for mutant in mutants:
        files |= dict.fromkeys(mirrors.tests_of(mutant.module))

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, contextlib.ExitStack() as stack:
        copies = [Path(folder) / str(number) for number in range(workers)]
        for copy in copies:
            make_copy(copy)
        records = records_of(list(files), copies)

        free: queue.Queue[Worker] = queue.Queue()
        for copy in copies:
            session = Session(copy, list(files))
            stack.callback(session.close)
            free.put(Worker(copy, session))

        def judge(mutant: Mutant) -> Verdict:
            worker = free.get()
            try:
                answer = verdict(mutant, worker, records, whole=whole)
            finally:
                free.put(worker)
            print(
                f"{answer.outcome:9} {mutant.module}:{mutant.line}: {mutant.what} "
                f"({answer.seconds:.1f} s)",
                flush=True,
            )
            return answer

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return list(pool.map(judge, mutants))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("only", nargs="*", help="modules or folders; everything if left out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.0, help="exit 1 below this score, in %%")
    parser.add_argument(
        "--reaching", action="store_true", help="only tests that reach the mutant, to be quicker"
    )
    parser.add_argument(
        "--omissions", action="store_true", help="what a person forgets, not what one mistypes"
    )
    given = parser.parse_args()

    kind = omissions.of_source if given.omissions else mutations.of_source
    mutants = mutations.sample(given.seed, given.count, given.only, kind)
    verdicts = run(mutants, given.workers, whole=not given.reaching)

    alive = [each for each in verdicts if each.outcome != "killed"]
    print(f"\n{len(verdicts) - len(alive)} of {len(verdicts)} mutants were noticed", end="")
    score = 100.0 * (1 - len(alive) / max(1, len(verdicts)))
    print(f": {score:.0f} %")
    for each in alive:
        print(f"  {each.outcome}: {each.mutant.module}:{each.mutant.line}: {each.mutant.what}")
    return 1 if score < given.least else 0


if __name__ == "__main__":
    sys.exit(main())
