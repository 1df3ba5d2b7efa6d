"""Starts daemons that keep running after this program ends, finds them again and stops them.

The modules `control_plane` and `node` name the daemons.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .places import LOGS, STATE, RigError

# Without a reference Python would warn about a daemon that this program leaves running.
_children: list[subprocess.Popen[bytes]] = []


def start(name: str, *command: object, env: Mapping[str, str] | None = None) -> None:
    """Starts a daemon under a name. Its output goes to a file in LOGS."""
    if pid_of(name):
        raise RigError(f"{name} runs already (pid {pid_of(name)}); stop it first")
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
    _children.append(child)
    _pid_file(name).write_text(f"{child.pid} {_start_time(child.pid)}")


def pid_of(name: str) -> int | None:
    """Returns the daemon's process id, or None if the daemon has ended.

    The start time is compared too, since the kernel may have given the id to another process.
    """
    try:
        pid, started = _pid_file(name).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _start_time(int(pid)) == started else None


def stop(name: str, first: signal.Signals = signal.SIGTERM, seconds: float = 20) -> None:
    """Sends the signal `first` to the daemon, and SIGKILL if it still runs after these seconds."""
    pid = pid_of(name)
    if pid:
        os.kill(pid, first)
        if not _wait_for_end(name, seconds):
            os.kill(pid, signal.SIGKILL)
            _wait_for_end(name, seconds)
    _pid_file(name).unlink(missing_ok=True)


def wait_for(
    what: str, probe: Callable[[], object], *, needs: str = "", seconds: float = 120
) -> None:
    """Waits until `probe` returns something true. An exception of the probe counts as false.

    Raises RigError after these seconds, or as soon as the daemon `needs` has ended.
    """
    end = time.monotonic() + seconds
    reason = "the check failed without an error"
    while time.monotonic() < end:
        try:
            if probe():
                return
        except Exception as error:  # noqa: BLE001 - anything may fail before the daemon is ready
            reason = repr(error)
        if needs and not pid_of(needs):
            raise RigError(
                f"{what} is not ready, because {needs} has ended; its last log lines:\n"
                f"{last_words(needs)}"
            )
        time.sleep(0.2)

    log = f"; the last log lines of {needs}:\n{last_words(needs)}" if needs else ""
    raise RigError(f"{what} was not ready after {seconds:.0f} s: {reason}{log}")


def last_words(name: str, lines: int = 15) -> str:
    """Returns the last lines of a daemon's log, or a sentence if there is no log."""
    path = LOGS / f"{name}.log"
    return (
        "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
        if path.exists()
        else f"there is no log {path}"
    )


def _wait_for_end(name: str, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not pid_of(name):
            return True
        time.sleep(0.05)
    return False


def _pid_file(name: str) -> Path:
    return STATE / f"{name}.pid"


def _start_time(pid: int) -> str:
    """Returns the start time of a process in clock ticks, or "" if it has ended or is a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if words[0] in "ZX" else words[19]
