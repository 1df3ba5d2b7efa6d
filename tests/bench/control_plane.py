"""Which API server is asked: that of KUBECONFIG, else the rig's that is up, else one that is up for
the benchmark.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.rig import daemons, places

from . import api, ours, turn
from .errors import BenchError
from .program import running

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def kubeconfig() -> Iterator[Path]:
    if given := os.environ.get("KUBECONFIG"):
        yield Path(given).absolute()
        return
    own = places.STATE / "admin.kubeconfig"
    if daemons.pid_of("apiserver"):
        yield own
        return
    print(
        "no KUBECONFIG and no rig: a control plane of our own (12 minutes the first time)",
        file=sys.stderr,
    )
    _rig("packages")
    try:
        _rig("up", "--control-plane-only")
        yield own
    finally:
        _rig("down")


@contextlib.contextmanager
def simulated(folder: Path) -> Iterator[turn.Cluster]:
    """The simulated API server in a process of its own, which nobody measures here."""
    kubeconfig, log = folder / "kubeconfig", folder / "sim.log"
    command = [sys.executable, "-m", "claimd", "sim", "--kubeconfig", str(kubeconfig)]
    with running(command, log, os.environ | {"PYTHONPATH": ours.PYTHONPATH}) as server:
        server.wait_for("its first line", lambda: b"\n" in log.read_bytes())
        connected = api.connect(kubeconfig)
        yield turn.Cluster(api=connected, kubeconfig=kubeconfig)
        connected.close()


def _rig(*words: str) -> None:
    # Its words are for people; ours may be JSON.
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.rig", *words],
        cwd=ROOT,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"rig {' '.join(words)} ended with {done.returncode}; it has said why")
