"""The machine that all of it runs on: what it is, and room for many plugins on it."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.rig import places

from .stage import Row, say

# A plugin watches two sets of folders; the rest is for whoever else is here.
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
A_PLUGIN, OTHERS = 4, 128


def described() -> Row:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "memory": round(memory),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "etcd": places.ETCD,
    }


@contextlib.contextmanager
def room_for(nodes: int) -> Iterator[None]:
    """The kernel's limits are wide enough meanwhile, as far as we may change them.

    A node has them to itself in the field. Where they stay narrow, plugins look at their folders by
    the clock, which costs CPU.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    before = INOTIFY.read_text()
    wanted = max(int(before), nodes * A_PLUGIN + OTHERS)
    try:
        INOTIFY.write_text(str(wanted))
    except OSError as error:
        say(f"{INOTIFY} stays {before.strip()}: {error.strerror}")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            INOTIFY.write_text(before)
