"""Where claimd's memory goes: `python -m tests.bench.memory`.

Its own memory (anonymous) in MiB, one stage after the other, each in a new process of the system's
Python: what the interpreter has, what each library adds, claimd's code, and what it holds when it
runs for so many GPUs against the simulated API server. Twice: as installed, and with the bytecode
of the image, which has no docstrings.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import control_plane, ours, turn

ROUNDS = 5
GPUS = (8, 64)
SETTLED = 5.0  # seconds at rest until a running one is looked at


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a process does beside all that the stages before it do."""

    title: str
    code: str


STAGES = (
    Stage(title="Python itself", code="import sys"),
    Stage(
        title="its library: asyncio, TLS, logging and what they need",
        code="import asyncio, ssl, logging, argparse, ipaddress, uuid, urllib.parse",
    ),
    Stage(title="msgspec", code="import msgspec.json"),
    Stage(title="protobuf", code="import google.protobuf.descriptor_pb2"),
    Stage(title="grpcio", code="import grpc.aio"),
    Stage(title="claimd's code", code="import claimd.tools.cli.run, claimd.node.app"),
)

REPORT = """
for line in open("/proc/self/smaps_rollup"):
    if line.startswith("Anonymous:"):
        print(line.split()[1])
"""


def main() -> int:
    print(f"{'MiB':<56} {'installed':>16} {'image':>16}")
    rows = zip(*take(), strict=True)
    for (title, installed, more), (_, image, more_of_image) in rows:
        print(f"{title:<56} {installed:8.2f} {more:+7.2f} {image:8.2f} {more_of_image:+7.2f}")
    return 0


Rows = list[tuple[str, float, float]]  # title, memory, and what that is more than the stage before


def take() -> tuple[Rows, Rows]:
    """As installed, and with the image's bytecode. A running one is more than all of the code."""
    interpreter = ours.interpreter(ours.default_python())
    # Else who is first would compile, and have the memory of that.
    command = [interpreter, "-m", "compileall", "-q", "plugin", "devices"]
    subprocess.run(command, cwd=ours.ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="memory-") as name:
        folder = Path(name)
        with control_plane.simulated(folder) as cluster:
            return (
                _take(interpreter, cluster, folder, {}),
                _take(interpreter, cluster, folder, ours.compile_as_image(interpreter)),
            )


def _take(
    interpreter: Path, cluster: turn.Cluster, folder: Path, environment: dict[str, str]
) -> Rows:
    rows: Rows = []
    before = 0.0
    for number, stage in enumerate(STAGES, 1):
        now = statistics.median(
            _loaded(interpreter, STAGES[:number], environment) for _ in range(ROUNDS)
        )
        rows.append((stage.title, now, now - before))
        before = now
    for gpus in GPUS:
        now = _running(cluster, gpus, folder, environment)
        rows.append((f"running, for {gpus} GPUs", now, now - before))
    return rows


def _loaded(interpreter: Path, stages: Sequence[Stage], environment: dict[str, str]) -> float:
    code = "\n".join(stage.code for stage in stages) + REPORT
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ours.PYTHONPATH, **environment}
    said = subprocess.run(
        [interpreter, "-c", code], env=environment, check=True, capture_output=True
    ).stdout
    return int(said) / 1024


def _running(cluster: turn.Cluster, gpus: int, folder: Path, environment: dict[str, str]) -> float:
    kind = "image" if environment else "installed"
    driver = ours.driver(ours.default_python(), [f"nvidia:h100={gpus}"], folder / f"{kind}{gpus}")
    given = dict(driver.environment or {})
    given.pop("PYTHONPYCACHEPREFIX", None)
    driver = dataclasses.replace(driver, environment=given | environment)
    with turn.started(driver, cluster, f"{kind}{gpus}", turn.Work(claims=2)) as turn_:
        turn_.start()
        time.sleep(SETTLED)
        return turn_.program.memory()[1]


if __name__ == "__main__":
    sys.exit(main())
