"""A driver's program while it runs: started, watched, weighed and stopped. What it serves is not
known here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .errors import BenchError

EVERY = 0.005  # seconds between two looks for a fact
PATIENCE = 60.0  # seconds until something that must come about has failed
STOP = 20.0  # seconds until a program that was asked to end is killed


class Program:
    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None
    ) -> None:
        self._command, self._log, self._environment = command, log, environment
        self._child: subprocess.Popen[bytes] | None = None
        self.began = 0.0

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.began = time.perf_counter()
            try:
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                )
            except OSError as error:
                raise BenchError(f"cannot run {self._command[0]}: {error.strerror}") from error

    @property
    def child(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, "not started"
        return self._child

    def wait_for(self, what: str, look: Callable[[], bool]) -> float:
        """Seconds from exec until the fact is so."""
        took = self.seconds_until(look, since=self.began, patience=PATIENCE)
        if took is None:
            raise BenchError(f"waited {PATIENCE:g} s in vain for {what}")
        return took

    def seconds_until(
        self, look: Callable[[], bool], *, since: float, patience: float
    ) -> float | None:
        """Seconds from `since` until the fact is so; None if it is not in time."""
        while not look():
            if self.child.poll() is not None:
                raise BenchError(f"it ended by itself with {self.child.returncode}")
            if time.perf_counter() - since > patience:
                return None
            time.sleep(EVERY)
        return time.perf_counter() - since

    def memory(self) -> tuple[float, float]:
        """MiB that are resident, and MiB of them that are its own: not a file's, and shared with
        nobody.
        """
        status, rollup = (
            _proc(self.child.pid, name).splitlines() for name in ("status", "smaps_rollup")
        )
        return _kilobytes(status, "VmRSS:") / 1024, _kilobytes(rollup, "Anonymous:") / 1024

    def cpu(self, seconds: float) -> float:
        """Per cent of one core that it uses in the coming seconds."""
        before, began = self.cpu_time(), time.perf_counter()
        time.sleep(seconds)
        return (self.cpu_time() - before) / (time.perf_counter() - began) * 100

    def cpu_time(self) -> float:
        """Seconds of CPU that it has used so far, all of its threads and what it has started."""
        return _cpu_time(self.child.pid)

    def stop(self) -> float:
        """Seconds until it has ended."""
        began = time.perf_counter()
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(STOP)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        return time.perf_counter() - began

    def last_words(self, lines: int = 20) -> str:
        said = (
            self._log.read_text(errors="replace").splitlines()[-lines:]
            if self._log.exists()
            else []
        )
        return "\n".join(said) or "nothing"


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None
) -> Iterator[Program]:
    """The program, started; ended at the latest when the context ends. An error of the context gets
    its last words.
    """
    program = Program(command, log, environment)
    program.start()
    try:
        yield program
    except BenchError as error:
        raise BenchError(f"{error}\n{command[0]} said last:\n{program.last_words()}") from error
    finally:
        program.stop()


def _cpu_time(pid: int) -> float:
    """To the nanosecond where the process runs, to the tick where it has ended and its parent has
    noticed.
    """
    try:
        used = time.clock_gettime(
            ~pid << 3 | 2
        )  # the kernel's clock of a process, see clock_getres(2)
    except OSError as error:
        raise BenchError(f"process {pid} has no clock: {error.strerror}; has it ended?") from error
    ended = _proc(pid, "stat").rsplit(")", 1)[1].split()[13:15]
    used += sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")

    # A child may end while it is looked at; then its parent has its time from the next look on.
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError, BenchError):
            for child in (thread / "children").read_text().split():
                used += _cpu_time(int(child))
    return used


def _proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError as error:
        raise BenchError(
            f"cannot read /proc/{pid}/{name}: {error.strerror}; does the program still run?"
        ) from error


def _kilobytes(lines: Sequence[str], name: str) -> int:
    for line in lines:
        if line.startswith(name):
            return int(line.split()[1])
    raise BenchError(f"the program has no {name} in /proc: it has ended")
