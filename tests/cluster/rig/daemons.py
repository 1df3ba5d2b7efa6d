"""Starts daemons that outlive this program, finds them again, and stops exactly these. Which ones
there are is said elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .places import LOGS, STATE, RigError


def start(name: str, *command: object, env: Mapping[str, str] | None = None) -> None:
    if pid_of(name):
        raise RigError(f"{name} runs already (pid {pid_of(name)}): stop it first")
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(LOGS / f"{name}.log", "ab") as log:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=env,
        )
    _pid_file(name).write_text(f"{child.pid} {_started(child.pid)}")


def pid_of(name: str) -> int | None:
    """The daemon's process id, or None if it is gone: the time of its start tells it from another
    with its number.
    """
    try:
        pid, started = _pid_file(name).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _started(int(pid)) == started else None


def stop(name: str, first: signal.Signals = signal.SIGTERM, seconds: float = 20) -> None:
    pid = pid_of(name)
    if pid:
        os.kill(pid, first)
        if not _ends(name, seconds):
            os.kill(pid, signal.SIGKILL)
            _ends(name, seconds)
    _pid_file(name).unlink(missing_ok=True)


def wait_for(
    what: str, probe: Callable[[], object], *, needs: str = "", seconds: float = 120
) -> None:
    """Waits until the probe says yes. An exception counts as no; the death of what it needs ends
    the wait.
    """
    end = time.monotonic() + seconds
    reason = "it said no"
    while time.monotonic() < end:
        try:
            if probe():
                return
        except Exception as error:  # noqa: BLE001 - whatever is not there yet
            reason = repr(error)
        if needs and not pid_of(needs):
            raise RigError(f"{what}: {needs} died; its last words:\n{last_words(needs)}")
        time.sleep(0.2)
    log = f"; last words of {needs}:\n{last_words(needs)}" if needs else ""
    raise RigError(f"{what} was not there after {seconds:.0f} s: {reason}{log}")


def last_words(name: str, lines: int = 15) -> str:
    path = LOGS / f"{name}.log"
    return (
        "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
        if path.exists()
        else f"no {path}"
    )


def _ends(name: str, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not pid_of(name):
            return True
        time.sleep(0.05)
    return False


def _pid_file(name: str) -> Path:
    return STATE / f"{name}.pid"


def _started(pid: int) -> str:
    """Returns the start of a living process in the kernel's ticks; empty if it is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[0] in "ZX" else words[19]
