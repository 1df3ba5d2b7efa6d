"""Limits that count what goes on, and not the time."""

import subprocess
import sys
import time

from tests.support import progress


def test_patience_counts_waits_and_not_the_time_of_others(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    patience = progress.Patience(1.0)
    for _ in range(19):
        now[0] += 60.0  # the machine let nobody run
        assert not patience.over()
    for _ in range(3):
        now[0] += progress.LONGEST
        over = patience.over()
    assert over


def test_what_stands_still_is_ended_and_what_moves_is_not():
    code = """
import time
from tests.support import progress
progress.STALLED = 1.0
with progress.watched():
    for _ in range(4):
        time.sleep(0.4)
        progress.moved()
    print("moved", flush=True)
    time.sleep(60)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (1, "moved\n")
    assert "Timeout (0:00:01)!" in done.stderr
