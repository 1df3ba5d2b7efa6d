"""Processes that the runtimes start beside themselves, found by what they were called with."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def of(command: str, belongs_to: Path) -> list[int]:
    """Those of this command whose words name the socket or folder, or what lies in it."""
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        ours = any(word == str(belongs_to) or word.startswith(f"{belongs_to}/") for word in words)
        if ours and words[0].rsplit("/", 1)[-1] == command:
            pids.append(int(file.parent.name))
    return pids


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def send(pid: int, number: signal.Signals) -> None:
    """Sends the signal; a process that has gone already is no matter."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
