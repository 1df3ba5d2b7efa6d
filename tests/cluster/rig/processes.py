"""Finds the processes that container runtimes leave running, such as shims, by their arguments."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def of(command: str, belongs_to: Path) -> list[int]:
    """Returns the ids of the command's processes that have this path, or one in it, as an argument."""
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
    """Returns the process's children; none if it has ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def send(pid: int, number: signal.Signals) -> None:
    """Sends the signal. Does nothing if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
