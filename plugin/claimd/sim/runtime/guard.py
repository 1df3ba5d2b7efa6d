"""The guard: kills the containers of a runtime that has ended, also after a crash.

It runs by path, without the rest of the project. It reads each process group that starts (`+7`) or
ends (`-7`) from standard input, and kills the remaining ones at the end of the input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)

    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
