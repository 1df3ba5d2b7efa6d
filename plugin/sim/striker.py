"""Kills a plugin in the middle of a prepare: `striker.py PID RECORDS CDI SECONDS`, run by path in its own process.

The plugin is let run for moments of a tenth of a millisecond, and looked at between them: when a record has come, it is
killed there and then, most often before its CDI file is written, and so before it has answered.
"""

from __future__ import annotations

import os
import signal
import sys
import time

MOMENT = 0.0001


def main(pid: int, records: str, cdi: str, seconds: float) -> int:
    before, end = listed(records), time.monotonic() + seconds
    say("lying in wait")
    try:
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            new = listed(records) - before
            if new:
                written = [uid for uid in new if any(uid in file for file in listed(cdi))]  # named after its claim
                os.kill(pid, signal.SIGKILL)
                say("the record and the CDI file were written" if written else "the record was written, no CDI file")
                return 0
            os.kill(pid, signal.SIGCONT)
            time.sleep(MOMENT)
    except ProcessLookupError:
        pass
    return 1


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def listed(folder: str) -> set[str]:
    try:
        return {name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json") and name[0] != "."}
    except FileNotFoundError:
        return set()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
