"""Kills what containers have left when the runtime that started them is gone, however it ended.

Run by path, without the rest of the project. Told on standard input of every process group that
comes (`+7`) and goes (`-7`); the end of the input is the end of those that are left.
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
